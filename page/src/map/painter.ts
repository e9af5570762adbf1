/** Paint a map on a canvas: tiles, labels, numbers in the cells, the cursor and a selected rectangle. */

import { cssColour, decodeByte, differenceColour, inkOn, type Scale, type Theme, weightColour } from "../colour";
import { type Band, paintBands } from "./bands";
import { type MapId, nameMap, TILE, type TileId, type TileStore, type VisibleValues } from "./tiles";
import { type Area, chooseLevel, type MapShape, topLevel, type Viewport } from "./viewport";

export const FONT = 'system-ui, "Noto Sans KR", "Apple SD Gothic Neo", "Malgun Gothic", NanumGothic, sans-serif';
const LABEL_ZOOM = 9; // pixels per cell from which every token has its label
const THIN_ZOOM = 2.5; // from which some tokens have theirs; below it, positions have numbers
const MAX_SLANTED = 64; // labels of keys that need room at the right
const LABEL_SPACE = 12; // pixels between two labels, where only some tokens have theirs
const VALUE_ZOOM = 34; // pixels per cell from which numbers fit
const MAX_VALUES = 4096;
const ABLATED_STEP = 14; // pixels between two lines over the map of an ablated head

export interface Rectangle {
  query: number;
  key: number;
  queries: number;
  keys: number;
}

export interface MapPicture {
  map: MapId;
  shape: MapShape;
  viewport: Viewport;
  area: Area;
  queryLabels: string[];
  keyLabels: string[];
  scale: Scale;
  most: number;
  theme: Theme;
  cursor: { query: number; key: number } | null;
  selectedQuery: number | null;
  otherQueries: number[]; // further rows that are selected
  selectedKey: number | null;
  rectangle: Rectangle | null;
  cut: Rectangle[]; // cells that an edit removed
  isAblated: boolean; // nothing reads the output of this head
  bands: Band[]; // stretches of keys that are marked
  values: VisibleValues | null;
  hasFocus: boolean;
  axisNames: { queries: string; keys: string };
}

const measure = typeof OffscreenCanvas === "undefined" ? null : new OffscreenCanvas(1, 1).getContext("2d");
const measured = new WeakMap<string[], number>();

/** Return the width of the longest label, of at most 600. */
function measureLabels(labels: string[]): number {
  let longest = measured.get(labels);
  if (longest === undefined) {
    measure!.font = `700 13px ${FONT}`;
    longest = Math.max(8, ...labels.slice(0, 600).map((label) => measure!.measureText(label).width));
    measured.set(labels, longest);
  }
  return longest;
}

/** Whether all tiles are there, and whether some of them read only some rows of each cell. */
export interface PaintedMap {
  isComplete: boolean;
  isSampled: boolean;
}

/** Return the area of a canvas that holds the cells; the labels are to the left and above. */
export function layOut(width: number, height: number, queryLabels: string[], keyLabels: string[]): Area {
  const left = Math.min(Math.max(measureLabels(queryLabels) + 14, 72), 112, width * 0.3);
  const top = Math.min(Math.max(measureLabels(keyLabels) * 0.87 + 20, 44), 100, height * 0.3);
  const right = keyLabels.length > MAX_SLANTED ? 4 : Math.min(Math.max(measureLabels(keyLabels) * 0.5, 4), 36, width * 0.1); // slanted labels
  return { left, top, width: width - left - right, height: height - top - 4 };
}

export function listVisibleTiles(shape: MapShape, viewport: Viewport, area: Area, level: number): TileId[] {
  const size = TILE << level;
  const first = (start: number) => Math.floor(start / size);
  const last = (start: number, pixels: number, count: number) =>
    Math.floor((Math.min(start + pixels / viewport.zoom, count) - 1e-6) / size);
  const tiles: TileId[] = [];
  for (let row = first(viewport.y); row <= last(viewport.y, area.height, shape.queries); row++)
    for (let column = first(viewport.x); column <= last(viewport.x, area.width, shape.keys); column++)
      tiles.push({ level, row, column });
  return tiles;
}

/** Request what a picture needs: the whole map as one tile, and the visible tiles. */
export function requestTiles(store: TileStore, { map, shape, viewport, area }: MapPicture): void {
  const top = topLevel(shape, TILE);
  const level = Math.min(chooseLevel(viewport.zoom), top);
  const tiles = listVisibleTiles(shape, viewport, area, level);
  const whole = { level: top, row: 0, column: 0 };
  store.request(map, level === top ? tiles : [whole, ...tiles]);
}

/** Return the largest weight of a map, for its colour scale; null before it is loaded. */
export function findLargest(store: TileStore, map: MapId, shape: MapShape): number | null {
  const tile = store.get(map, { level: topLevel(shape, TILE), row: 0, column: 0 });
  if (!tile) return null;
  const isDifference = map.shown === "difference";
  let largest = 0;
  for (const byte of tile.bytes) {
    const size = isDifference ? Math.abs(byte - 128) : byte;
    if (size > largest) largest = size;
  }
  return Math.abs(decodeByte(isDifference ? 128 + largest : largest, isDifference));
}

export function paintMap(context: CanvasRenderingContext2D, store: TileStore, picture: MapPicture): PaintedMap {
  const { area, viewport, theme } = picture;
  const { canvas } = context;
  const ratio = devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.width / ratio, canvas.height / ratio);
  const colours = readColours(theme);
  context.fillStyle = colours.empty;
  const shownWidth = Math.min(area.width, (picture.shape.keys - viewport.x) * viewport.zoom);
  const shownHeight = Math.min(area.height, (picture.shape.queries - viewport.y) * viewport.zoom);
  context.fillRect(area.left, area.top, shownWidth, shownHeight);

  context.save();
  context.beginPath();
  context.rect(area.left, area.top, shownWidth, shownHeight);
  context.clip();
  const painted = paintTiles(context, store, picture);
  paintGrid(context, picture, colours);
  paintSkipped(context, picture, colours);
  if (picture.isAblated) hatch(context, area.left, area.top, shownWidth, shownHeight, colours.cut, ABLATED_STEP);
  paintNumbers(context, picture);
  paintMarks(context, picture, colours);
  context.restore();

  context.strokeStyle = colours.line;
  context.strokeRect(area.left - 0.5, area.top - 0.5, shownWidth + 1, shownHeight + 1);
  paintLabels(context, picture, colours);
  paintBands(context, picture, colours.soft, colours.cut, colours.empty);
  return painted;
}

interface Colours {
  ink: string;
  soft: string;
  line: string;
  empty: string;
  accent: string;
  cut: string;
}

export function readColours(theme: Theme): Colours {
  return theme === "light"
    ? { ink: "#1c2330", soft: "#5b6472", line: "#c4cad4", empty: "#eef1f5", accent: "#d1462f", cut: "#d1462f" }
    : { ink: "#e6eaf0", soft: "#9aa5b5", line: "#3a4353", empty: "#1b212c", accent: "#ffb35c", cut: "#ff7b5c" };
}

function paintTiles(context: CanvasRenderingContext2D, store: TileStore, picture: MapPicture): PaintedMap {
  const { map, shape, viewport, area, scale, most, theme } = picture;
  const isDifference = map.shown === "difference";
  const top = topLevel(shape, TILE);
  const level = Math.min(chooseLevel(viewport.zoom), top);
  let isComplete = true;
  let isSampled = false;
  for (const id of listVisibleTiles(shape, viewport, area, level)) {
    const tile = store.get(map, id);
    if (tile) {
      isSampled ||= tile.isSampled;
      const cell = 2 ** id.level * viewport.zoom;
      const x = area.left + (id.column * TILE * 2 ** id.level - viewport.x) * viewport.zoom;
      const y = area.top + (id.row * TILE * 2 ** id.level - viewport.y) * viewport.zoom;
      context.imageSmoothingEnabled = cell < 1;
      context.drawImage(store.paint(tile, isDifference, scale, most, theme), x, y, tile.columns * cell, tile.rows * cell);
      continue;
    }
    isComplete = false;
    paintCoarser(context, store, picture, id, top);
  }
  return { isComplete, isSampled };
}

/** Fill the place of a tile that is not loaded with a coarser one. */
function paintCoarser(context: CanvasRenderingContext2D, store: TileStore, picture: MapPicture, id: TileId, top: number): void {
  const { map, viewport, area, scale, most, theme } = picture;
  for (let level = id.level + 1; level <= top; level++) {
    const shift = level - id.level;
    const coarse = { level, row: id.row >> shift, column: id.column >> shift };
    const tile = store.get(map, coarse);
    if (!tile) continue;
    const bitmap = store.paint(tile, map.shown === "difference", scale, most, theme);
    const span = TILE >> shift; // cells of the coarse tile that cover the missing one
    const sx = (id.column - (coarse.column << shift)) * span;
    const sy = (id.row - (coarse.row << shift)) * span;
    const columns = Math.min(span, tile.columns - sx);
    const rows = Math.min(span, tile.rows - sy);
    if (columns <= 0 || rows <= 0) return;
    const cell = 2 ** level * viewport.zoom;
    const x = area.left + (id.column * TILE * 2 ** id.level - viewport.x) * viewport.zoom;
    const y = area.top + (id.row * TILE * 2 ** id.level - viewport.y) * viewport.zoom;
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap, sx, sy, columns, rows, x, y, columns * cell, rows * cell);
    return;
  }
}

/** The cells that are visible: [first, end) of queries and keys. */
export function listVisibleCells({ shape, viewport, area }: Pick<MapPicture, "shape" | "viewport" | "area">) {
  const firstQuery = Math.max(0, Math.floor(viewport.y));
  const firstKey = Math.max(0, Math.floor(viewport.x));
  const endQuery = Math.min(shape.queries, Math.ceil(viewport.y + area.height / viewport.zoom));
  const endKey = Math.min(shape.keys, Math.ceil(viewport.x + area.width / viewport.zoom));
  return { firstQuery, firstKey, endQuery, endKey };
}

/** Return the rectangle whose numbers are shown in the cells; null if they do not fit. */
export function chooseValues(picture: Pick<MapPicture, "shape" | "viewport" | "area">): Rectangle | null {
  if (picture.viewport.zoom < VALUE_ZOOM) return null;
  const { firstQuery, firstKey, endQuery, endKey } = listVisibleCells(picture);
  const queries = endQuery - firstQuery;
  const keys = endKey - firstKey;
  return queries * keys <= MAX_VALUES && queries > 0 && keys > 0 ? { query: firstQuery, key: firstKey, queries, keys } : null;
}

function paintGrid(context: CanvasRenderingContext2D, picture: MapPicture, colours: Colours): void {
  const { viewport, area } = picture;
  if (viewport.zoom < 14) return;
  const { firstQuery, firstKey, endQuery, endKey } = listVisibleCells(picture);
  context.strokeStyle = colours.line;
  context.lineWidth = 0.5;
  context.beginPath();
  for (let query = firstQuery; query <= endQuery; query++) {
    const y = Math.round(area.top + (query - viewport.y) * viewport.zoom) + 0.5;
    context.moveTo(area.left, y);
    context.lineTo(area.left + area.width, y);
  }
  for (let key = firstKey; key <= endKey; key++) {
    const x = Math.round(area.left + (key - viewport.x) * viewport.zoom) + 0.5;
    context.moveTo(x, area.top);
    context.lineTo(x, area.top + area.height);
  }
  context.stroke();
  context.lineWidth = 1;
}

/** Hatch the first key's column if it is left out. */
function paintSkipped(context: CanvasRenderingContext2D, picture: MapPicture, colours: Colours): void {
  const { map, viewport, area } = picture;
  if (!map.skipFirst || viewport.x >= 1) return;
  const width = Math.max(viewport.zoom, 2);
  const x = area.left - viewport.x * viewport.zoom;
  context.save();
  context.beginPath();
  context.rect(x, area.top, width, area.height);
  context.clip();
  context.fillStyle = colours.empty;
  context.fillRect(x, area.top, width, area.height);
  hatch(context, x, area.top, width, area.height, colours.line, 6);
  context.restore();
}

/** Draw diagonal lines over a part of the canvas, one every `step` pixels. */
function hatch(context: CanvasRenderingContext2D, left: number, top: number, width: number, height: number, colour: string, step: number): void {
  context.strokeStyle = colour;
  context.globalAlpha = 0.6;
  context.beginPath();
  for (let y = top; y < top + height + width; y += step) {
    context.moveTo(left, y);
    context.lineTo(left + width, y - width);
  }
  context.stroke();
  context.globalAlpha = 1;
}

/** Write a weight in at most four characters. */
export function formatCell(weight: number, isDifference: boolean): string {
  const size = Math.abs(weight);
  if (size < 0.0005) return "0";
  const sign = weight < 0 ? "−" : isDifference ? "+" : "";
  return sign + (size >= 0.995 ? size.toFixed(1) : size.toFixed(size < 0.01 ? 3 : 2).replace(/^0/, ""));
}

function paintNumbers(context: CanvasRenderingContext2D, picture: MapPicture): void {
  const { map, values, viewport, area, scale, most, theme } = picture;
  if (!values || values.map !== nameMap(map) || viewport.zoom < VALUE_ZOOM) return;
  const isDifference = map.shown === "difference";
  context.font = `${Math.min(13, viewport.zoom / 3.2)}px ${FONT}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let row = 0; row < values.rows; row++) {
    for (let column = 0; column < values.columns; column++) {
      const weight = values.weights[row * values.columns + column];
      if (weight === 0) continue;
      const isHidden = map.skipFirst && values.column + column === 0;
      const colour = isDifference
        ? differenceColour(weight, scale, most, theme)
        : weightColour(isHidden ? 0 : weight, scale, most, theme);
      context.fillStyle = inkOn(colour);
      const x = area.left + (values.column + column + 0.5 - viewport.x) * viewport.zoom;
      const y = area.top + (values.row + row + 0.5 - viewport.y) * viewport.zoom;
      context.fillText(formatCell(weight, isDifference), x, y);
    }
  }
}

function paintMarks(context: CanvasRenderingContext2D, picture: MapPicture, colours: Colours): void {
  const { viewport, area, cursor, rectangle, cut, selectedQuery } = picture;
  const toX = (key: number) => area.left + (key - viewport.x) * viewport.zoom;
  const toY = (query: number) => area.top + (query - viewport.y) * viewport.zoom;
  context.strokeStyle = colours.cut;
  for (const { query, key, queries, keys } of cut) {
    const [x, y, width, height] = [toX(key), toY(query), keys * viewport.zoom, queries * viewport.zoom];
    if (width < 3 && height < 3) continue;
    context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + width, y + height);
    context.moveTo(x + width, y);
    context.lineTo(x, y + height);
    context.stroke();
  }
  for (const query of selectedQuery === null ? [] : [selectedQuery, ...picture.otherQueries]) {
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(area.left - 2, toY(query), area.width + 4, Math.max(viewport.zoom, 1));
    context.lineWidth = 1;
  }
  if (rectangle) {
    context.strokeStyle = colours.accent;
    context.setLineDash([5, 3]);
    context.strokeRect(toX(rectangle.key), toY(rectangle.query), rectangle.keys * viewport.zoom, rectangle.queries * viewport.zoom);
    context.setLineDash([]);
  }
  if (cursor) {
    context.strokeStyle = colours.ink;
    context.lineWidth = picture.hasFocus ? 2.5 : 1.5;
    const size = Math.max(viewport.zoom, 5);
    const shift = (size - viewport.zoom) / 2;
    context.strokeRect(toX(cursor.key) - shift, toY(cursor.query) - shift, size, size);
    context.lineWidth = 1;
  }
}

function paintLabels(context: CanvasRenderingContext2D, picture: MapPicture, colours: Colours): void {
  const { viewport, area, queryLabels, keyLabels, cursor, selectedQuery } = picture;
  const { firstQuery, firstKey, endQuery, endKey } = listVisibleCells(picture);
  const { zoom } = viewport;
  const hasLabels = zoom >= THIN_ZOOM;
  const isThin = zoom < LABEL_ZOOM;
  const size = isThin ? 11 : Math.min(13, Math.max(9, Math.min(zoom, 11), zoom * 0.6));
  const step = hasLabels ? (isThin ? Math.ceil(LABEL_SPACE / zoom) : 1) : chooseTickStep(zoom);
  const isInside = (offset: number, extent: number) => offset >= -1 && offset <= extent + 1;
  context.textBaseline = "middle";

  context.textAlign = "right";
  const markedQueries = [cursor?.query, selectedQuery, ...picture.otherQueries];
  for (const query of chooseLabelled(firstQuery, endQuery, step, hasLabels && isThin ? markedQueries : [], zoom)) {
    const offset = (query + 0.5 - viewport.y) * zoom;
    if (!isInside(offset, area.height)) continue;
    const isMarked = markedQueries.includes(query);
    context.font = `${isMarked ? "700 " : ""}${size}px ${FONT}`;
    context.fillStyle = isMarked ? colours.ink : colours.soft;
    const text = hasLabels ? queryLabels[query] : String(query);
    context.fillText(shorten(context, text, area.left - 10), area.left - 6, area.top + offset);
  }

  const isShort = hasLabels && measureLabels(keyLabels) <= step * zoom; // labels as wide as their place are not rotated
  context.textAlign = "left";
  const markedKeys = [cursor?.key, picture.selectedKey];
  for (const key of chooseLabelled(firstKey, endKey, step, hasLabels && isThin ? markedKeys : [], zoom)) {
    const offset = (key + 0.5 - viewport.x) * zoom;
    if (!isInside(offset, area.width)) continue;
    const isMarked = markedKeys.includes(key);
    context.font = `${isMarked ? "700 " : ""}${size}px ${FONT}`;
    context.fillStyle = isMarked ? colours.ink : colours.soft;
    context.save();
    context.translate(area.left + offset, area.top - 7);
    if (isShort) context.textAlign = "center";
    else context.rotate(-Math.PI / 3);
    context.fillText(shorten(context, hasLabels ? keyLabels[key] : String(key), (area.top - 14) / 0.87), 0, 0);
    context.restore();
  }

  context.font = `600 11px ${FONT}`;
  context.fillStyle = colours.soft;
  context.textAlign = "left";
  context.textBaseline = "top";
  context.fillText(shorten(context, `${picture.axisNames.queries} ↓`, area.left - 8), 2, area.top - 16);
  context.fillText(shorten(context, `${picture.axisNames.keys} →`, area.left - 8), 2, area.top - 31);
}

/** Return whether all tokens in view have labels, some of them, or none. */
export function nameLabelling(zoom: number): "all" | "some" | "none" {
  return zoom >= LABEL_ZOOM ? "all" : zoom >= THIN_ZOOM ? "some" : "none";
}

/** Return the positions whose labels are written: one in `step`, and the marked ones, which their neighbours make room for. */
function chooseLabelled(first: number, end: number, step: number, marked: (number | null | undefined)[], zoom: number): number[] {
  const always = marked.filter((index): index is number => index !== null && index !== undefined && index >= first && index < end);
  const chosen: number[] = [];
  for (let index = Math.ceil(first / step) * step; index < end; index += step)
    if (!always.some((other) => Math.abs(other - index) * zoom < LABEL_SPACE)) chosen.push(index);
  return [...chosen, ...always];
}

/** Return how many cells lie between two numbered positions. */
function chooseTickStep(zoom: number): number {
  for (const step of [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]) if (step * zoom >= 44) return step;
  return 20000;
}

/** Cut a text to a width in pixels. */
export function shorten(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  const letters = [...text];
  while (letters.length > 1 && context.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

/** Return the colour of a cell, for exported pictures. */
export function cellColour(weight: number, isDifference: boolean, scale: Scale, most: number, theme: Theme): string {
  return cssColour(isDifference ? differenceColour(weight, scale, most, theme) : weightColour(weight, scale, most, theme));
}
