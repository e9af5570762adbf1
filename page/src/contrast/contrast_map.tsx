/** A map of two aligned inputs: of the first, of the second, or their difference. Three of them share their viewport. */

import { effect, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import { describeHead, formatWeight } from "../describe";
import { chooseValues, findLargest, layOut, type MapPicture, paintMap, requestTiles } from "../map/painter";
import { type MapId, nameMap, type VisibleValues } from "../map/tiles";
import { clampViewport, fitMap, revealCell, type Viewport, zoomAt } from "../map/viewport";
import type { Contrast, Run, Sequence, Shown } from "../protocol";
import { AskError } from "../wire/client";
import { useSize } from "../views/hooks";

export interface SharedGestures {
  viewport: Signal<Viewport | null>; // null: the whole map
  cursor: Signal<{ query: number; key: number } | null>;
  sentence: Signal<string>;
  values: Signal<Map<Shown, VisibleValues>>;
  most: Signal<number>; // of the difference
}

const ZOOM_STEP = 1.5;
const WHEEL_SPEED = 0.0016;

/** Return the label of each aligned pair: both tokens where they differ, "·" where a text has none. */
export function labelPairs(run: Run, contrast: Contrast, sequence: Sequence): string[] {
  const [first, second] = sequence === "target" ? [run.target, contrast.target] : [run.source, contrast.source];
  return contrast.pairs[sequence].map(([left, right]) => {
    const labels = [left === null ? "·" : first[left], right === null ? "·" : second[right]];
    return labels[0] === labels[1] ? labels[0] : labels.join("|");
  });
}

export function ContrastMap({ shown, title, gestures }: { shown: Shown; title: string; gestures: SharedGestures }) {
  const app = useApp();
  const canvasRef = useRef<HTMLCanvasElement>(null);
  const size = useSize(canvasRef);

  /** What is mapped now; a site whose positions are no tokens, such as patches, has numbers as labels. */
  const describe = () => {
    const run = app.run.current.value;
    const contrast = app.contrast.current.value;
    const site = app.selection.site.value;
    const { width, height } = size.value;
    if (!run || !contrast || !site || !width) return null;
    const labels = (sequence: Sequence, count: number, firstCount: number) => {
      const paired = labelPairs(run, contrast, sequence);
      return count === firstCount ? paired : Array.from({ length: count }, (_, index) => String(index));
    };
    const queryLabels = labels(site.query_sequence, site.queries, (site.query_sequence === "target" ? run.target : run.source).length);
    const keyLabels = labels(site.key_sequence, site.keys, (site.key_sequence === "target" ? run.target : run.source).length);
    const shape = { queries: queryLabels.length, keys: keyLabels.length };
    const area = layOut(width, height, queryLabels, keyLabels);
    const viewport = clampViewport(gestures.viewport.value ?? fitMap(shape, area), shape, area);
    const { site: siteIndex, head } = app.selection.current.value;
    const map: MapId = { run: run.run, shown, site: siteIndex, head, skipFirst: app.skipFirst.value, contrast: contrast.contrast };
    return { map, shape, area, viewport, queryLabels, keyLabels };
  };

  useEffect(() => {
    const canvas = canvasRef.current!;
    const context = canvas.getContext("2d")!;
    let frame = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;

    const buildPicture = (): MapPicture | null => {
      const described = describe();
      if (!described) return null;
      const words = app.words.value;
      const sides: Shown[] = shown === "difference" ? ["difference"] : ["clean", "edited"]; // both texts have one scale
      const largest = sides.map((side) => findLargest(app.tiles, { ...described.map, shown: side }, described.shape) ?? 0);
      return {
        ...described,
        scale: app.scale.value,
        most: Math.max(...largest) || 1,
        theme: app.theme.value,
        cursor: gestures.cursor.value,
        selectedQuery: null,
        otherQueries: [],
        selectedKey: null,
        isAblated: false,
        rectangle: null,
        cut: [],
        bands: [],
        values: gestures.values.value.get(shown) ?? null,
        hasFocus: false,
        axisNames: { queries: words.queries, keys: words.keys },
      };
    };

    const draw = () => {
      frame = 0;
      const picture = buildPicture();
      if (!picture) return;
      const ratio = devicePixelRatio || 1;
      const { width, height } = size.peek();
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.dataset.complete = String(paintMap(context, app.tiles, picture).isComplete);
      if (shown === "difference") gestures.most.value = picture.most;
    };

    const load = async (map: MapId, wanted: { query: number; key: number; queries: number; keys: number }) => {
      try {
        const values = await app.tiles.loadValues(map, wanted.query, wanted.key, wanted.queries, wanted.keys);
        gestures.values.value = new Map(gestures.values.peek()).set(shown, values);
      } catch (error) {
        if (!(error instanceof AskError)) throw error;
      }
    };

    const stop = effect(() => {
      app.tiles.version.value; // draw again when a tile arrives
      const picture = buildPicture();
      if (!picture) return;
      requestTiles(app.tiles, picture);
      clearTimeout(timer);
      const wanted = chooseValues(picture);
      const held = picture.values;
      if (wanted && (held?.map !== nameMap(picture.map) || held.row !== wanted.query || held.column !== wanted.key || held.rows !== wanted.queries))
        timer = setTimeout(() => void load(picture.map, wanted), 60);
      if (!frame) frame = requestAnimationFrame(draw);
    });
    const onWheel = (event: WheelEvent) => {
      const now = describe();
      if (!now || !event.ctrlKey) return; // the view itself scrolls
      event.preventDefault();
      const bounds = canvas.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY * WHEEL_SPEED), event.clientX - bounds.left, event.clientY - bounds.top);
    };
    canvas.addEventListener("wheel", onWheel, { passive: false });
    return () => {
      stop();
      clearTimeout(timer);
      cancelAnimationFrame(frame);
      canvas.removeEventListener("wheel", onWheel);
    };
  }, [shown]);

  // The exact weights under the cursor, of both texts; the difference writes them.
  useEffect(() => {
    if (shown !== "difference") return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = effect(() => {
      const cursor = gestures.cursor.value;
      const now = describe();
      clearTimeout(timer);
      if (!cursor || !now || cursor.query >= now.shape.queries || cursor.key >= now.shape.keys) {
        gestures.sentence.value = "";
        return;
      }
      const words = app.words.value;
      const cell = [`${now.queryLabels[cursor.query]} [${cursor.query}]`, `${now.keyLabels[cursor.key]} [${cursor.key}]`] as const;
      gestures.sentence.value = words.cellValue(...cell, "…");
      timer = setTimeout(async () => {
        try {
          const sides: Shown[] = ["clean", "edited"];
          const loaded = await Promise.all(sides.map((side) => app.tiles.loadValues({ ...now.map, shown: side }, cursor.query, cursor.key, 1, 1)));
          if (gestures.cursor.peek() !== cursor) return;
          const [first, second] = loaded.map(({ weights }) => weights[0]);
          gestures.sentence.value = words.cellValue(
            ...cell,
            words.contrast.cell(formatWeight(first), formatWeight(second), formatWeight(second - first, true)),
          );
        } catch (error) {
          if (!(error instanceof AskError)) throw error;
        }
      }, 40);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [shown]);

  const zoom = (factor: number, x: number, y: number) => {
    const now = describe();
    if (now) gestures.viewport.value = zoomAt(now.viewport, factor, x, y, now.shape, now.area);
  };
  const cellAt = (event: MouseEvent) => {
    const now = describe();
    if (!now) return null;
    const bounds = canvasRef.current!.getBoundingClientRect();
    const key = Math.floor(now.viewport.x + (event.clientX - bounds.left - now.area.left) / now.viewport.zoom);
    const query = Math.floor(now.viewport.y + (event.clientY - bounds.top - now.area.top) / now.viewport.zoom);
    return query >= 0 && query < now.shape.queries && key >= 0 && key < now.shape.keys ? { query, key } : null;
  };
  const drag = useRef<{ x: number; y: number; viewport: Viewport } | null>(null);
  const onPointerMove = (event: PointerEvent) => {
    const now = describe();
    const from = drag.current;
    if (!now) return;
    if (!from) {
      const cell = cellAt(event);
      if (cell) gestures.cursor.value = cell;
      return;
    }
    const { zoom: pixels } = from.viewport;
    const moved = { zoom: pixels, x: from.viewport.x - (event.clientX - from.x) / pixels, y: from.viewport.y - (event.clientY - from.y) / pixels };
    gestures.viewport.value = clampViewport(moved, now.shape, now.area);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const now = describe();
    if (!now || event.ctrlKey || event.metaKey || event.altKey) return;
    const cursor = gestures.cursor.peek() ?? { query: 0, key: 0 };
    const moves: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (move) {
      const query = Math.max(0, Math.min(cursor.query + move[0], now.shape.queries - 1));
      const key = Math.max(0, Math.min(cursor.key + move[1], now.shape.keys - 1));
      gestures.cursor.value = { query, key };
      gestures.viewport.value = revealCell(now.viewport, query, key, now.shape, now.area);
    } else if (["+", "=", "-"].includes(event.key)) {
      const toPixel = (index: number, start: number, edge: number) => edge + (index + 0.5 - start) * now.viewport.zoom;
      const [x, y] = [toPixel(cursor.key, now.viewport.x, now.area.left), toPixel(cursor.query, now.viewport.y, now.area.top)];
      zoom(event.key === "-" ? 1 / ZOOM_STEP : ZOOM_STEP, x, y);
    } else if (event.key === "0") gestures.viewport.value = null;
    else return;
    event.preventDefault();
  };
  return (
    <figure class="jk-map">
      <figcaption>{title}</figcaption>
      <canvas
        ref={canvasRef}
        data-contrast={shown}
        tabIndex={0}
        role="application"
        aria-label={`${title}, ${describeHead(app, app.selection.current.value)}. ${app.words.value.contrast.mapHelp}`}
        onPointerDown={(event) => {
          const now = describe();
          if (!now || event.button !== 0) return;
          drag.current = { x: event.clientX, y: event.clientY, viewport: now.viewport };
          canvasRef.current!.setPointerCapture(event.pointerId);
        }}
        onPointerMove={onPointerMove}
        onPointerUp={() => (drag.current = null)}
        onKeyDown={onKeyDown}
      />
    </figure>
  );
}
