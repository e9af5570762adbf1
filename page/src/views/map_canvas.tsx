/** One map: a canvas with a cursor, which can be moved by mouse and keyboard, zoomed, and cut. */

import { effect, type Signal, useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import { ablates, describeHead, formatWeight, labelsOf, listCuts } from "../describe";
import { listBands } from "../map/bands";
import { chooseValues, findLargest, layOut, type MapPicture, nameLabelling, paintMap, type Rectangle, requestTiles } from "../map/painter";
import { type MapId, nameMap, type VisibleValues } from "../map/tiles";
import { type Area, beginMap, clampViewport, revealCell, type Viewport, WHOLE, zoomAt } from "../map/viewport";
import type { Shown } from "../protocol";
import { AskError } from "../wire/client";
import { useSize } from "./hooks";

/** What maps that are shown side by side share. */
export interface MapGestures {
  viewport: Signal<Viewport | null>; // null: the whole map
  cursor: Signal<{ query: number; key: number } | null>;
  rectangle: Signal<Rectangle | null>;
  isSelecting: Signal<boolean>;
  value: Signal<string>; // the sentence below the map
  values: Signal<Map<Shown, VisibleValues>>;
  most: Signal<number>;
  isSampled: Signal<boolean>; // the map on screen is a preview
  zoom: RefObject<((factor: number) => void) | null>; // zooms around the cursor
}

export const ZOOM_STEP = 1.5; // of a key or a button
const WHEEL_SPEED = 0.0016;

export function MapCanvas({ shown, gestures, title }: { shown: Shown; gestures: MapGestures; title?: string }) {
  const app = useApp();
  const canvasRef = useRef<HTMLCanvasElement>(null);
  const size = useSize(canvasRef);
  const hasFocus = useSignal(false);

  useEffect(() => {
    const canvas = canvasRef.current!;
    const context = canvas.getContext("2d")!;
    let frame = 0;
    let valuesTimer: ReturnType<typeof setTimeout> | undefined;

    const buildPicture = (): MapPicture | null => {
      const run = app.run.current.value;
      const site = app.selection.site.value;
      const { width, height } = size.value;
      if (!run || !site || !width) return null;
      if (shown !== "clean" && !run.edited) return null;
      const selection = app.selection.current.value;
      const map: MapId = { run: run.run, shown, site: selection.site, head: selection.head, skipFirst: app.skipFirst.value };
      const shape = { queries: site.queries, keys: site.keys };
      const [queryLabels, keyLabels] = [labelsOf(run, site.query_sequence), labelsOf(run, site.key_sequence)];
      const area = layOut(width, height, queryLabels, keyLabels);
      const viewport = clampViewport(gestures.viewport.value ?? beginMap(shape, area, run.audio?.positions), shape, area);
      const words = app.words.value;
      // maps side by side have one scale
      const others: Shown[] = app.shown.value === "all" && shown !== "difference" ? ["clean", "edited"] : [shown];
      const largest = others.map((other) => findLargest(app.tiles, { ...map, shown: other }, shape) ?? 0);
      const most = Math.max(...largest) || 1;
      return {
        map,
        shape,
        viewport,
        area,
        queryLabels,
        keyLabels,
        scale: app.scale.value,
        most,
        theme: app.theme.value,
        cursor: gestures.cursor.value,
        selectedQuery: selection.query,
        otherQueries: app.selection.otherTokens.value,
        selectedKey: selection.key,
        rectangle: gestures.rectangle.value,
        cut: shown === "clean" ? [] : listCuts(run.edits, site, selection.head),
        isAblated: shown === "edited" && run.edits.some((edit) => ablates(edit, site, selection.head)),
        bands: site.key_sequence === "source" ? listBands(run) : [],
        values: gestures.values.value.get(shown) ?? null,
        hasFocus: hasFocus.value,
        axisNames: { queries: words.queries, keys: words.keys },
      };
    };

    const draw = () => {
      frame = 0;
      const picture = buildPicture();
      if (!picture) return;
      const ratio = devicePixelRatio || 1;
      const { width, height } = size.peek();
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
      }
      const { isComplete, isSampled } = paintMap(context, app.tiles, picture);
      gestures.isSampled.value = isSampled;
      canvas.dataset.complete = String(isComplete);
      canvas.dataset.ablated = String(picture.isAblated);
      canvas.dataset.labels = nameLabelling(picture.viewport.zoom);
      canvas.dataset.zoom = String(picture.viewport.zoom);
      canvas.dataset.most = String(picture.most);
      if (shown === "difference") app.largestDifference.value = picture.most;
      if (shown !== "difference" || app.shown.peek() === "difference") gestures.most.value = picture.most;
    };

    const stop = effect(() => {
      app.tiles.version.value; // draw again when a tile arrives
      const picture = buildPicture();
      if (!picture) return;
      requestTiles(app.tiles, picture);
      const wanted = chooseValues(picture);
      clearTimeout(valuesTimer);
      if (wanted) {
        const held = picture.values;
        const isHeld =
          held?.map === nameMap(picture.map) &&
          held.row <= wanted.query &&
          held.column <= wanted.key &&
          held.row + held.rows >= wanted.query + wanted.queries &&
          held.column + held.columns >= wanted.key + wanted.keys;
        if (!isHeld) valuesTimer = setTimeout(() => void loadValues(picture.map, wanted), 60);
      }
      if (!frame) frame = requestAnimationFrame(draw);
    });

    const loadValues = async (map: MapId, { query, key, queries, keys }: Rectangle) => {
      try {
        const values = await app.tiles.loadValues(map, query, key, queries, keys);
        if (app.run.current.peek()?.run !== map.run) return;
        gestures.values.value = new Map(gestures.values.peek()).set(shown, values);
      } catch (error) {
        if (!(error instanceof AskError)) throw error;
      }
    };

    return () => {
      stop();
      clearTimeout(valuesTimer);
      cancelAnimationFrame(frame);
    };
  }, [shown]);

  // A map that is zoomed in follows the selected token.
  const { query: selectedQuery, key: selectedKey } = app.selection.current.value;
  useEffect(() => {
    const now = current();
    if (!now || selectedQuery === null || gestures.viewport.peek() === null) return;
    const key = selectedKey ?? Math.max(0, Math.ceil(now.viewport.x));
    gestures.viewport.value = revealCell(now.viewport, selectedQuery, key, now.shape, now.area);
  }, [selectedQuery, selectedKey]);

  // The weight under the cursor: from the numbers that are loaded, else one exact cell.
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = effect(() => {
      const cursor = gestures.cursor.value;
      const run = app.run.current.value;
      const site = app.selection.site.value;
      const words = app.words.value;
      const { site: siteIndex, head } = app.selection.current.value;
      clearTimeout(timer);
      if (!cursor || !run || !site || (shown !== "clean" && !run.edited)) {
        gestures.value.value = "";
        return;
      }
      const isAlone = app.shown.value !== "all";
      if (!isAlone && shown !== "edited") return; // one of the three maps writes the sentence
      const map: MapId = { run: run.run, shown, site: siteIndex, head, skipFirst: app.skipFirst.value };
      const nameCell = (): [string, string] => [
        `${labelsOf(run, site.query_sequence)[cursor.query]} [${cursor.query}]`,
        `${labelsOf(run, site.key_sequence)[cursor.key]} [${cursor.key}]`,
      ];
      const tell = (weight: number, isExact: boolean, clean: number | null = null) => {
        const change = clean === null ? "" : ` (${words.clean} ${formatWeight(clean)})`;
        const number = formatWeight(weight, shown === "difference") + change;
        const isForbidden = weight === 0 && shown !== "difference" && site.is_causal && cursor.key > cursor.query;
        const note = isForbidden ? ` (${words.notAllowed})` : "";
        gestures.value.value = words.cellValue(...nameCell(), `${isExact ? "" : `${words.approximately} `}${number}${note}`);
      };
      const held = gestures.values.value.get(shown);
      const row = cursor.query - (held?.row ?? 0);
      const column = cursor.key - (held?.column ?? 0);
      const isHeld = held?.map === nameMap(map) && row >= 0 && row < held.rows && column >= 0 && column < held.columns;
      if (isAlone && isHeld) {
        tell(held.weights[row * held.columns + column], held.isExact);
        return;
      }
      gestures.value.value = words.cellValue(...nameCell(), "…"); // never the number of another cell or map
      timer = setTimeout(async () => {
        try {
          const cell = await app.tiles.loadValues(map, cursor.query, cursor.key, 1, 1);
          const clean = isAlone ? null : await app.tiles.loadValues({ ...map, shown: "clean" }, cursor.query, cursor.key, 1, 1);
          if (gestures.cursor.peek() === cursor) tell(cell.weights[0], cell.isExact, clean?.weights[0] ?? null);
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

  const current = (): { area: Area; viewport: Viewport; shape: { queries: number; keys: number } } | null => {
    const run = app.run.current.peek();
    const site = app.selection.site.peek();
    const { width, height } = size.peek();
    if (!run || !site || !width) return null;
    const shape = { queries: site.queries, keys: site.keys };
    const area = layOut(width, height, labelsOf(run, site.query_sequence), labelsOf(run, site.key_sequence));
    return { area, shape, viewport: clampViewport(gestures.viewport.peek() ?? beginMap(shape, area, run.audio?.positions), shape, area) };
  };

  /** Return the cell at a point; on the labels, the nearest cell of that row or column. */
  const cellAt = (event: MouseEvent, isClamped = false) => {
    const now = current();
    if (!now) return null;
    const bounds = canvasRef.current!.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    let key = Math.floor(now.viewport.x + (x - now.area.left) / now.viewport.zoom);
    let query = Math.floor(now.viewport.y + (y - now.area.top) / now.viewport.zoom);
    if (isClamped) {
      key = Math.max(0, Math.min(key, now.shape.keys - 1));
      query = Math.max(0, Math.min(query, now.shape.queries - 1));
    }
    const onRowLabel = x < now.area.left && y >= now.area.top;
    const inside = key >= 0 && key < now.shape.keys && query >= 0 && query < now.shape.queries;
    if (onRowLabel && query >= 0 && query < now.shape.queries) return { query, key: null };
    return inside && x >= now.area.left && y >= now.area.top ? { query, key } : null;
  };

  const drag = useRef<{ x: number; y: number; viewport: Viewport; start: { query: number; key: number } | null; hasMoved: boolean } | null>(null);

  const onPointerDown = (event: PointerEvent) => {
    const now = current();
    if (!now || event.button !== 0) return;
    const cell = cellAt(event);
    const isRectangle = (event.shiftKey || gestures.isSelecting.peek()) && cell?.key != null;
    drag.current = {
      x: event.clientX,
      y: event.clientY,
      viewport: now.viewport,
      start: isRectangle ? { query: cell!.query, key: cell!.key! } : null,
      hasMoved: false,
    };
    if (isRectangle) gestures.rectangle.value = { ...drag.current.start!, queries: 1, keys: 1 };
    canvasRef.current!.setPointerCapture(event.pointerId);
  };

  const onPointerMove = (event: PointerEvent) => {
    const now = current();
    if (!now) return;
    const from = drag.current;
    if (!from) {
      const cell = cellAt(event);
      if (cell?.key != null) gestures.cursor.value = { query: cell.query, key: cell.key };
      return;
    }
    if (Math.hypot(event.clientX - from.x, event.clientY - from.y) > 3) from.hasMoved = true;
    if (from.start) {
      const cell = cellAt(event, true)!;
      const key = cell.key ?? 0;
      gestures.rectangle.value = {
        query: Math.min(from.start.query, cell.query),
        key: Math.min(from.start.key, key),
        queries: Math.abs(cell.query - from.start.query) + 1,
        keys: Math.abs(key - from.start.key) + 1,
      };
    } else if (from.hasMoved) {
      const { zoom } = from.viewport;
      const moved = {
        zoom,
        x: from.viewport.x - (event.clientX - from.x) / zoom,
        y: from.viewport.y - (event.clientY - from.y) / zoom,
      };
      gestures.viewport.value = clampViewport(moved, now.shape, now.area);
    }
  };

  const onPointerUp = (event: PointerEvent) => {
    const from = drag.current;
    drag.current = null;
    if (!from || from.hasMoved || from.start) return;
    const cell = cellAt(event);
    if (!cell) return;
    gestures.rectangle.value = null;
    if (cell.key === null && app.selection.adds(event)) app.selection.toggleToken(cell.query);
    else app.selection.change({ query: cell.query, key: cell.key });
    if (cell.key !== null) gestures.cursor.value = { query: cell.query, key: cell.key };
    if (cell.key !== null) app.tokenTab.value = "cell";
  };

  useEffect(() => {
    const canvas = canvasRef.current!;
    const onWheel = (event: WheelEvent) => {
      const now = current();
      if (!now) return;
      event.preventDefault();
      const bounds = canvas.getBoundingClientRect();
      const factor = Math.exp(-event.deltaY * (event.deltaMode === 1 ? 20 : 1) * WHEEL_SPEED);
      gestures.viewport.value = zoomAt(
        now.viewport, factor, event.clientX - bounds.left, event.clientY - bounds.top, now.shape, now.area,
      );
    };
    canvas.addEventListener("wheel", onWheel, { passive: false });
    return () => canvas.removeEventListener("wheel", onWheel);
  }, []);

  const findCursor = () => {
    const { query, key } = app.selection.current.peek();
    return gestures.cursor.peek() ?? { query: query ?? 0, key: key ?? 0 };
  };
  const zoomAtCursor = (factor: number) => {
    const now = current();
    if (!now) return;
    const { viewport, area, shape } = now;
    const { query, key } = findCursor();
    const px = area.left + (key + 0.5 - viewport.x) * viewport.zoom;
    const py = area.top + (query + 0.5 - viewport.y) * viewport.zoom;
    gestures.viewport.value = zoomAt(viewport, factor, px, py, shape, area);
  };
  gestures.zoom.current = zoomAtCursor;

  const onKeyDown = (event: KeyboardEvent) => {
    const now = current();
    if (!now || event.ctrlKey || event.metaKey || event.altKey) return;
    const cursor = findCursor();
    const step = event.shiftKey ? 10 : 1;
    const moves: Record<string, [number, number]> = {
      ArrowUp: [-step, 0],
      ArrowDown: [step, 0],
      ArrowLeft: [0, -step],
      ArrowRight: [0, step],
      Home: [0, -now.shape.keys],
      End: [0, now.shape.keys],
      PageUp: [-now.shape.queries, 0],
      PageDown: [now.shape.queries, 0],
    };
    const move = moves[event.key];
    if (move) {
      const query = Math.max(0, Math.min(cursor.query + move[0], now.shape.queries - 1));
      const key = Math.max(0, Math.min(cursor.key + move[1], now.shape.keys - 1));
      gestures.cursor.value = { query, key };
      const moved = revealCell(now.viewport, query, key, now.shape, now.area);
      // a whole map stays whole when the panel becomes smaller
      if (moved.x !== now.viewport.x || moved.y !== now.viewport.y) gestures.viewport.value = moved;
    } else if (event.key === "Enter") {
      app.selection.change({ query: cursor.query, key: cursor.key });
      app.tokenTab.value = "cell";
    } else if (event.key === "Delete" || event.key === "Backspace") {
      app.edits.knockOut(gestures.rectangle.peek() ?? { ...cursor, queries: 1, keys: 1 });
      gestures.rectangle.value = null;
    } else if (event.key === "+" || event.key === "=" || event.key === "-") {
      zoomAtCursor(event.key === "-" ? 1 / ZOOM_STEP : ZOOM_STEP);
    } else if (event.key === "0") {
      gestures.viewport.value = app.run.current.peek()?.audio ? WHOLE : null;
    } else if (event.key === "Escape") {
      gestures.rectangle.value = null;
    } else {
      return;
    }
    event.preventDefault();
  };

  const site = app.selection.site.value;
  const words = app.words.value;
  const label = site ? words.mapLabel(describeHead(app, app.selection.current.value), site.queries, site.keys) : "";
  return (
    <figure class="jk-map">
      {title && <figcaption>{title}</figcaption>}
      <canvas
        ref={canvasRef}
        class={gestures.isSelecting.value ? "jk-selecting" : ""}
        data-map={shown}
        tabIndex={0}
        role="application"
        aria-describedby={app.guide.summaryId}
        aria-label={`${label}. ${words.cellHelp}`}
        onPointerDown={onPointerDown}
        onPointerMove={onPointerMove}
        onPointerUp={onPointerUp}
        onKeyDown={onKeyDown}
        onFocus={() => (hasFocus.value = true)}
        onBlur={() => (hasFocus.value = false)}
      />
    </figure>
  );
}
