/** What patches restore: heads in the order of their effect, MLPs and positions as a heat map. A click patches a part. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type App, useApp } from "../app";
import { cssColour, differenceColour } from "../colour";
import { copyText } from "../copy";
import { describeHead, shortenSite } from "../describe";
import { FONT, readColours, shorten } from "../map/painter";
import type { Contrast, PatchedPart, PatchPart, Run } from "../protocol";
import { useCopied, useSize } from "../views/hooks";
import { formatShare } from "./contrast_view";
import { type MeasuredSweep, restoredShare } from "./state";

const PARTS: PatchPart[] = ["attention", "mlp", "residual"];
const SHOWN_HEADS = 15;
const ROW_PIXELS = 13;
const LEFT = 26; // of the heat map: its layers

export function Restores({ contrast, run }: { contrast: Contrast; run: Run }) {
  const app = useApp();
  const words = app.words.value.contrast;
  const part = useSignal<PatchPart>("attention");
  const measured = app.contrast.sweeps.value[part.value];
  const { isCopied, say } = useCopied(app);
  const hasGap = restoredShare(0, contrast.metric!) !== null;
  return (
    <section class="jk-restores">
      <h3>{words.restoresTitle}</h3>
      <p class="jk-hint">{hasGap ? words.restoresHint : words.noGap}</p>
      {hasGap && (
        <>
          <div class="jk-toolbar">
            <div class="jk-choice" role="group" aria-label={words.restoresTitle}>
              {PARTS.map((name) => (
                <button key={name} aria-pressed={part.value === name} data-part={name} onClick={() => (part.value = name)}>
                  {words.parts[name]}
                </button>
              ))}
            </div>
            <button
              class={measured ? "" : "jk-main"}
              data-action="sweep"
              disabled={app.task.value?.name === "sweep"}
              onClick={() => void app.contrast.measure(part.value)}
            >
              {words.measure[part.value]}
            </button>
            {measured?.sweep.code && (
              <button data-action="sweep-python" title={app.words.value.copyPythonHint} onClick={() => say(copyText(measured.sweep.code))}>
                {isCopied.value ? app.words.value.copied : app.words.value.copyPython}
              </button>
            )}
          </div>
          <p class="jk-hint">{words.partHints[part.value]}</p>
          {measured && (part.value === "attention" ? <HeadList measured={measured} /> : <HeatMap key={part.value} run={run} contrast={contrast} measured={measured} />)}
        </>
      )}
    </section>
  );
}

function HeadList({ measured: { sweep, effects } }: { measured: MeasuredSweep }) {
  const app = useApp();
  const words = app.words.value.contrast;
  const rows = sweep.layers
    .flatMap(({ site }, layer) =>
      Array.from({ length: sweep.columns }, (_, head) => ({ site, head, share: restoredShare(effects[layer * sweep.columns + head], sweep.metric) })),
    )
    .filter((row): row is { site: number; head: number; share: number } => row.share !== null)
    .sort((a, b) => b.share - a.share);
  const shown = rows.length > SHOWN_HEADS + 3 ? [...rows.slice(0, SHOWN_HEADS), ...rows.slice(-3)] : rows;
  const most = Math.max(...shown.map(({ share }) => Math.abs(share)), 1e-9);
  const { site: selectedSite, head: selectedHead } = app.selection.current.value;
  return (
    <ol class="jk-effect-bars" data-restores>
      {shown.map(({ site, head, share }) => {
        const patch: PatchedPart = { part: "attention", site, head, position: null };
        const width = (Math.abs(share) / most) * 50;
        return (
          <li key={`${site}.${head}`}>
            <button
              class={`jk-quiet${site === selectedSite && head === selectedHead ? " jk-current" : ""}`}
              data-patch-head={`${site}.${head}`}
              aria-pressed={app.contrast.isPatched(patch)}
              title={words.restored(formatShare(share))}
              onClick={() => {
                app.selection.chooseHead(site, head);
                app.contrast.toggle(patch);
              }}
            >
              <span class="jk-label">{describeHead(app, { site, head })}</span>
              <span class="jk-track jk-both">
                <span class={`jk-bar${share < 0 ? " jk-negative" : ""}`} style={{ width: `${width}%`, left: share < 0 ? `${50 - width}%` : "50%" }} />
              </span>
              <span class="jk-number">{formatShare(share)}</span>
            </button>
          </li>
        );
      })}
    </ol>
  );
}

function HeatMap({ run, contrast, measured: { sweep, effects } }: { run: Run; contrast: Contrast; measured: MeasuredSweep }) {
  const app = useApp();
  const words = app.words.value.contrast;
  const ref = useRef<HTMLCanvasElement>(null);
  const size = useSize(ref);
  const cursor = useSignal<{ layer: number; column: number } | null>(null);
  const rows = sweep.layers.length;
  const width = size.value.width;
  const theme = app.theme.value;
  const patches = app.contrast.patches.value;
  const shareAt = (layer: number, column: number) => restoredShare(effects[layer * sweep.columns + column], sweep.metric);
  const cellWidth = (width - LEFT) / sweep.columns;
  const partAt = (layer: number, column: number): PatchedPart => ({ part: sweep.part, site: sweep.layers[layer].site, head: null, position: column });
  const tokens = contrast.target.length && sweep.columns === contrast.target.length ? contrast.target : contrast.source;
  const TOP = Math.min(58, 14 + 6 * Math.max(...tokens.map((token) => token.length))); // of the tokens
  const labelsOfLayer = (layer: number) => (run.sites[sweep.layers[layer].site].query_sequence === "target" ? contrast.target : contrast.source);

  useEffect(() => {
    const canvas = ref.current!;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    const height = TOP + rows * ROW_PIXELS;
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    const context = canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const colours = readColours(theme);
    context.fillStyle = colours.empty;
    context.fillRect(LEFT, TOP, width - LEFT, rows * ROW_PIXELS);
    const most = Math.max(1, ...Array.from(effects, (value) => Math.abs(restoredShare(value, sweep.metric) ?? 0)));
    const cell = (layer: number, column: number) => [LEFT + column * cellWidth, TOP + layer * ROW_PIXELS, cellWidth, ROW_PIXELS] as const;
    context.font = `11px ${FONT}`;
    context.textBaseline = "middle";
    for (let layer = 0; layer < rows; layer++) {
      for (let column = 0; column < sweep.columns; column++) {
        const share = shareAt(layer, column);
        if (share === null) continue;
        context.fillStyle = cssColour(differenceColour(share, "linear", most, theme));
        const [x, y, wide, high] = cell(layer, column);
        context.fillRect(x, y, wide - (wide > 6 ? 1 : 0), high - 1);
      }
      context.fillStyle = colours.soft;
      context.textAlign = "right";
      context.fillText(String(run.sites[sweep.layers[layer].site].layer), LEFT - 5, TOP + (layer + 0.5) * ROW_PIXELS, LEFT - 6);
    }
    context.textAlign = "left";
    context.fillStyle = colours.ink;
    const step = Math.max(1, Math.ceil(12 / cellWidth));
    for (let column = 0; column < sweep.columns; column += step) {
      context.save();
      context.translate(LEFT + (column + 0.5) * cellWidth, TOP - 4);
      context.rotate(-Math.PI / 3);
      context.fillText(shorten(context, tokens[column] ?? String(column), 56), 0, 0);
      context.restore();
    }
    const frame = (layer: number, column: number, colour: string, line: number) => {
      const [x, y, wide, high] = cell(layer, column);
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.strokeRect(x, y, Math.max(wide, 3), high);
    };
    for (const patch of patches)
      if (patch.part === sweep.part && patch.position !== null) {
        const layer = sweep.layers.findIndex(({ site }) => site === patch.site);
        if (layer >= 0) frame(layer, patch.position, colours.accent, 2.5);
      }
    if (cursor.value) frame(cursor.value.layer, cursor.value.column, colours.ink, 1.5);
  }, [measuredKey(sweep, effects), width, theme, patches, cursor.value, app.language.value]);

  const find = (event: MouseEvent) => {
    const bounds = ref.current!.getBoundingClientRect();
    const column = Math.floor((event.clientX - bounds.left - LEFT) / cellWidth);
    const layer = Math.floor((event.clientY - bounds.top - TOP) / ROW_PIXELS);
    return column >= 0 && column < sweep.columns && layer >= 0 && layer < rows ? { layer, column } : null;
  };
  const patch = (at: { layer: number; column: number } | null) => {
    if (at && shareAt(at.layer, at.column) !== null) app.contrast.toggle(partAt(at.layer, at.column));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const moves: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const at = cursor.value ?? { layer: 0, column: 0 };
    const move = moves[event.key];
    if (move) cursor.value = { layer: Math.max(0, Math.min(at.layer + move[0], rows - 1)), column: Math.max(0, Math.min(at.column + move[1], sweep.columns - 1)) };
    else if (event.key === "Enter" || event.key === " ") patch(cursor.value);
    else return;
    event.preventDefault();
  };
  const at = cursor.value;
  const share = at && shareAt(at.layer, at.column);
  const best = findBest(effects, sweep.metric);
  return (
    <>
      <canvas
        ref={ref}
        class="jk-restored-map"
        style={{ height: `${TOP + rows * ROW_PIXELS}px` }}
        tabIndex={0}
        role="application"
        data-restored-map={sweep.part}
        aria-label={`${words.parts[sweep.part]}. ${words.restoresHint}`}
        onMouseMove={(event) => (cursor.value = find(event))}
        onMouseLeave={() => (cursor.value = null)}
        onClick={(event) => patch(find(event))}
        onKeyDown={onKeyDown}
      />
      <p class="jk-value" role="status" aria-live="polite">
        {at
          ? `${describePart(app, run, sweep.part, sweep.layers[at.layer].site, labelsOfLayer(at.layer), at.column)}: ${share === null ? words.noPartner : words.restored(formatShare(share!))}`
          : best !== null &&
            `${app.words.value.strongest}: ${describePart(app, run, sweep.part, sweep.layers[Math.floor(best / sweep.columns)].site, labelsOfLayer(Math.floor(best / sweep.columns)), best % sweep.columns)}, ${words.restored(formatShare(restoredShare(effects[best], sweep.metric)!))}`}
      </p>
    </>
  );
}

function measuredKey(sweep: MeasuredSweep["sweep"], effects: Float32Array): string {
  return `${sweep.part} ${sweep.seconds} ${effects.length}`;
}

function findBest(effects: Float32Array, metric: { clean: number; corrupted: number }): number | null {
  let best: number | null = null;
  effects.forEach((effect, index) => {
    const share = restoredShare(effect, metric);
    if (share !== null && (best === null || share > restoredShare(effects[best], metric)!)) best = index;
  });
  return best;
}

function describePart(app: App, run: Run, part: PatchPart, site: number, labels: string[], position: number | null): string {
  const words = app.words.value.contrast;
  const { layer } = run.sites[site];
  const name = typeof layer === "string" ? shortenSite(layer) : String(layer);
  if (position === null) return words.mlpAll(name);
  const label = `${labels[position] ?? ""} [${position}]`;
  return part === "mlp" ? words.mlpAt(name, label) : words.residualAt(name, label);
}

/** Describe a patched part in one line. */
export function describePatch(app: App, run: Run, contrast: Contrast, { part, site, head, position }: PatchedPart): string {
  if (part === "attention") return describeHead(app, { site, head: head! });
  const labels = run.sites[site].query_sequence === "target" ? contrast.target : contrast.source;
  return describePart(app, run, part, site, labels, position);
}
