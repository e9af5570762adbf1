/** Marks for stretches of keys, such as the passages of a prompt: a numbered bracket above the map, a line through it. */

import { listPassageCuts } from "../cuts";
import type { Run } from "../protocol";
import { FONT, type MapPicture } from "./painter";

export interface Band {
  first: number; // key
  end: number; // the key after the last one
  isCut: boolean;
}

/** Return the passages of a prompt, as marks of the keys. */
export function listBands(run: Run): Band[] {
  const passages = run.answered?.passages ?? [];
  const cut = listPassageCuts(passages, run.edits).map(({ passage }) => passage);
  return passages.map(({ range: [first, end] }, index) => ({ first, end, isCut: cut.includes(index) }));
}

export function paintBands(context: CanvasRenderingContext2D, { area, viewport, shape, bands }: MapPicture, colour: string, cutColour: string, paper: string): void {
  const bottom = area.top + Math.min(area.height, (shape.queries - viewport.y) * viewport.zoom);
  context.font = `700 11px ${FONT}`;
  context.textAlign = "center";
  context.textBaseline = "bottom";
  bands.forEach(({ first, end, isCut }, index) => {
    const left = Math.max(area.left, area.left + (first - viewport.x) * viewport.zoom);
    const right = Math.min(area.left + area.width, area.left + (end - viewport.x) * viewport.zoom);
    if (right <= left) return;
    context.fillStyle = context.strokeStyle = isCut ? cutColour : colour;
    context.fillRect(left + 1, area.top - 4, right - left - 2, 3);
    context.save();
    context.setLineDash([2, 4]);
    context.beginPath();
    for (const [edge, key] of [[left, first], [right, end]]) {
      if (key < viewport.x || edge !== area.left + (key - viewport.x) * viewport.zoom) continue; // outside
      context.moveTo(edge, area.top);
      context.lineTo(edge, bottom);
    }
    context.stroke();
    context.restore();
    const centre = (left + right) / 2;
    context.fillRect(centre - 8, area.top - 13, 16, 12);
    context.fillStyle = paper;
    context.fillText(String(index + 1), centre, area.top - 1);
  });
}
