/** The image with the weights of its patches over it. */

import { effect, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type App, useApp } from "../app";
import { overlayColour, shade } from "../colour";
import { describeHead, formatWeight } from "../describe";
import type { Run, Site } from "../protocol";
import { Legend } from "./legend";
import { useLine, useSize } from "./hooks";

export function ImageView() {
  const app = useApp();
  const words = app.words.value;
  const run = app.run.current.value;
  const site = app.selection.site.value;
  const ref = useRef<HTMLCanvasElement>(null);
  const picture = useSignal<ImageBitmap | null>(null);
  const opacity = useSignal(0.75);
  const value = useSignal("");
  const row = useLine(app, "query");
  const box = useRef<HTMLDivElement>(null);
  const size = useSize(box);

  useEffect(() => {
    const bytes = app.run.pictureBytes;
    if (!bytes) return;
    let isCurrent = true;
    createImageBitmap(new Blob([bytes.slice()], { type: "image/png" })).then((bitmap) => {
      if (isCurrent) picture.value = bitmap;
    });
    return () => {
      isCurrent = false;
    };
  }, [run]);

  const most = useSignal(1);
  useEffect(
    () =>
      effect(() => {
        const now = app.run.current.value;
        const shown = app.selection.site.value;
        const bitmap = picture.value;
        const side = Math.floor(Math.min(size.value.width, size.value.height));
        if (!now?.image || !shown || !bitmap || !side) return;
        const canvas = ref.current!;
        const ratio = devicePixelRatio || 1;
        const { width, height } = now.image;
        const scale = side / Math.max(width, height);
        const [w, h] = [width * scale, height * scale];
        canvas.width = w * ratio;
        canvas.height = h * ratio;
        canvas.style.width = `${w}px`;
        canvas.style.height = `${h}px`;
        const context = canvas.getContext("2d")!;
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.imageSmoothingEnabled = width * 2 > w;
        context.drawImage(bitmap, 0, 0, w, h);
        const weights = row.value;
        if (!shown.grid) return;
        const { rows, columns, prefix } = shown.grid;
        if (weights.length !== prefix + rows * columns) return;
        let largest = 0;
        for (let patch = prefix; patch < weights.length; patch++) largest = Math.max(largest, weights[patch]);
        most.value = largest || 1;
        const theme = app.theme.value;
        const [cellWidth, cellHeight] = [w / columns, h / rows];
        for (let patch = 0; patch < rows * columns; patch++) {
          const weight = weights[prefix + patch];
          context.fillStyle = overlayColour(opacity.value * shade(weight, app.scale.value, most.value));
          context.fillRect((patch % columns) * cellWidth, Math.floor(patch / columns) * cellHeight, cellWidth + 0.5, cellHeight + 0.5);
        }
        const { query } = app.selection.current.value;
        if (shown.query_sequence === "source" && query !== null && query >= prefix) {
          const patch = query - prefix;
          context.strokeStyle = theme === "light" ? "#d1462f" : "#ffb35c";
          context.lineWidth = 3;
          context.strokeRect((patch % columns) * cellWidth + 1.5, Math.floor(patch / columns) * cellHeight + 1.5, cellWidth - 3, cellHeight - 3);
        }
      }),
    [],
  );

  const patchAt = (event: MouseEvent): number | null => {
    if (!site?.grid) return null;
    const { rows, columns, prefix } = site.grid;
    const bounds = ref.current!.getBoundingClientRect();
    const column = Math.floor(((event.clientX - bounds.left) / bounds.width) * columns);
    const line = Math.floor(((event.clientY - bounds.top) / bounds.height) * rows);
    if (column < 0 || line < 0 || column >= columns || line >= rows) return null;
    return prefix + line * columns + column;
  };
  const onMove = (event: MouseEvent) => {
    const position = patchAt(event);
    const weight = position === null ? undefined : row.value[position];
    value.value = position === null || weight === undefined ? "" : `${namePatch(app, site!, position)}: ${formatWeight(weight)}`;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (!site?.grid || site.query_sequence !== "source") return;
    const { columns, rows, prefix } = site.grid;
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    if (!(event.key in steps)) return;
    const query = Math.max(0, Math.min((app.selection.current.value.query ?? prefix) + steps[event.key], prefix + rows * columns - 1));
    app.selection.change({ query, key: null });
    event.preventDefault();
  };
  const canShow = !site || site.grid !== null;
  return (
    <div class="jk-image-view">
      <div class="jk-toolbar">
        <strong class="jk-title">{run && site ? words.imageTitle(nameQuery(app, run, site), describeHead(app, app.selection.current.value)) : ""}</strong>
        {site?.grid && site.grid.prefix > 0 && site.query_sequence === "source" && (
          <button onClick={() => app.selection.change({ query: 0, key: null })}>{words.classToken}</button>
        )}
        <label class="jk-slider">
          {words.opacity}
          <input type="range" min={0} max={1} step={0.05} value={opacity.value} onInput={(event) => (opacity.value = Number(event.currentTarget.value))} />
        </label>
      </div>
      {!canShow && <p class="jk-hint">{words.notOverImage}</p>}
      <div class="jk-picture" ref={box}>
        <canvas
          ref={ref}
          tabIndex={0}
          role="application"
          aria-describedby={app.guide.summaryId}
          aria-label={words.imageHint}
          onMouseMove={onMove}
          onMouseLeave={() => (value.value = "")}
          onKeyDown={onKeyDown}
          onClick={(event) => {
            const position = patchAt(event);
            if (position !== null && site?.query_sequence === "source") app.selection.change({ query: position, key: null });
          }}
        />
      </div>
      <div class="jk-map-foot">
        <p class="jk-value" aria-live="polite">
          {value.value || words.imageHint}
        </p>
        <Legend kind="overlay" most={most.value} />
      </div>
    </div>
  );
}

function namePatch(app: App, site: Site, position: number): string {
  const words = app.words.value;
  if (!site.grid || position < site.grid.prefix) return words.classToken;
  const patch = position - site.grid.prefix;
  return words.patch(Math.floor(patch / site.grid.columns), patch % site.grid.columns);
}

function nameQuery(app: App, run: Run, site: Site): string {
  const { query } = app.selection.current.value;
  if (query === null) return "";
  return site.query_sequence === "target" ? `“${run.target[query]}”` : namePatch(app, site, query);
}
