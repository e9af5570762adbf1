/** The visible part of a map: which cell is at which pixel. */

export interface Viewport {
  x: number; // the key at the left edge, with a fraction
  y: number; // the query at the top edge
  zoom: number; // pixels per cell
}

export interface MapShape {
  queries: number;
  keys: number;
}

export interface Area {
  left: number;
  top: number;
  width: number;
  height: number;
}

export const MAX_ZOOM = 96;
const MAX_FIT_ZOOM = 72; // of a map of few tokens
const MIN_ROW = 6; // pixels of a row of audio

/** Return the viewport that shows a whole map. */
export function fitMap({ queries, keys }: MapShape, area: Area): Viewport {
  const zoom = Math.min(area.width / keys, area.height / queries, MAX_FIT_ZOOM);
  return { x: 0, y: 0, zoom };
}

/** The whole map, where a map begins with a part of it: no zoom is smaller. */
export const WHOLE: Viewport = { x: 0, y: 0, zoom: 0 };

/** Return the viewport that a map begins with: the whole map, but of audio only the recording, without the silence after
 * it, and with rows that can be told apart. */
export function beginMap(shape: MapShape, area: Area, positions: number | undefined): Viewport {
  if (positions === undefined) return fitMap(shape, area);
  const recording = { queries: Math.min(shape.queries, positions), keys: Math.min(shape.keys, positions) };
  const zoom = Math.max(fitMap(recording, area).zoom, Math.min(MIN_ROW, area.height / shape.queries));
  return { x: 0, y: 0, zoom };
}

/** Keep a viewport inside of the map. */
export function clampViewport(viewport: Viewport, shape: MapShape, area: Area): Viewport {
  const smallest = Math.min(fitMap(shape, area).zoom, 24);
  const zoom = Math.min(Math.max(viewport.zoom, smallest), MAX_ZOOM);
  const clamp = (start: number, count: number, pixels: number) =>
    Math.max(0, Math.min(start, count - pixels / zoom));
  return { zoom, x: clamp(viewport.x, shape.keys, area.width), y: clamp(viewport.y, shape.queries, area.height) };
}

/** Zoom around a point of the canvas, which keeps its cell. */
export function zoomAt(viewport: Viewport, factor: number, px: number, py: number, shape: MapShape, area: Area): Viewport {
  const x = viewport.x + (px - area.left) / viewport.zoom;
  const y = viewport.y + (py - area.top) / viewport.zoom;
  const { zoom } = clampViewport({ ...viewport, zoom: viewport.zoom * factor }, shape, area);
  return clampViewport({ zoom, x: x - (px - area.left) / zoom, y: y - (py - area.top) / zoom }, shape, area);
}

/** Move a viewport as little as needed to show a cell. */
export function revealCell(viewport: Viewport, query: number, key: number, shape: MapShape, area: Area): Viewport {
  const reveal = (start: number, index: number, pixels: number) => {
    const visible = pixels / viewport.zoom;
    if (index < start) return index;
    return index + 1 > start + visible ? index + 1 - visible : start;
  };
  const moved = { ...viewport, x: reveal(viewport.x, key, area.width), y: reveal(viewport.y, query, area.height) };
  return clampViewport(moved, shape, area);
}

/** Return the level whose cells are at least one pixel wide. */
export function chooseLevel(zoom: number): number {
  return Math.max(0, Math.ceil(-Math.log2(zoom) - 1e-9));
}

/** Return the level at which a map is a single tile. */
export function topLevel({ queries, keys }: MapShape, tile: number): number {
  return Math.max(0, Math.ceil(Math.log2(Math.max(queries, keys, 1) / tile)));
}
