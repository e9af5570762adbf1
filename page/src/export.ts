/** Export the map that is shown: the canvas as PNG, or its cells and labels as SVG. */

import type { App } from "./app";
import { download } from "./copy";
import { describeHead, formatWeight, labelsOf } from "./describe";
import { cellColour, FONT, readColours } from "./map/painter";
import type { MapId } from "./map/tiles";
import type { Shown } from "./protocol";

const MAX_SVG_SIDE = 128; // cells; larger maps are exported around the selected query
const CELL = 22;

export function exportPng(app: App, canvas: HTMLCanvasElement | null): void {
  if (!canvas) return;
  const copy = document.createElement("canvas");
  copy.width = canvas.width;
  copy.height = canvas.height;
  const context = copy.getContext("2d")!;
  context.fillStyle = app.theme.value === "light" ? "#ffffff" : "#10141c";
  context.fillRect(0, 0, copy.width, copy.height);
  context.drawImage(canvas, 0, 0);
  copy.toBlob((blob) => blob && download(blob, `${nameFile(app)}.png`));
}

function nameFile(app: App): string {
  const { site, head } = app.selection.current.value;
  const model = app.run.current.value?.model.name.split(/[\\/]/).pop() ?? "jumok";
  return `${model}-${site}-${head}`;
}

export async function exportSvg(app: App): Promise<void> {
  const svg = await buildSvg(app);
  if (svg) download(new Blob([svg], { type: "image/svg+xml" }), `${nameFile(app)}.svg`);
}

/** Build the SVG of the selected head; text stays text. */
export async function buildSvg(app: App): Promise<string | null> {
  const run = app.run.current.value;
  const site = app.selection.site.value;
  if (!run || !site) return null;
  const { site: index, head, query } = app.selection.current.value;
  const shown: Shown = app.shown.value === "all" ? "edited" : run.edited ? app.shown.value : "clean";
  const map: MapId = { run: run.run, shown, site: index, head, skipFirst: app.skipFirst.value };
  const cutRange = (count: number, centre: number): [number, number] => {
    const first = Math.max(0, Math.min(centre - MAX_SVG_SIDE / 2, count - MAX_SVG_SIDE));
    return [Math.floor(first), Math.min(count, Math.floor(first) + MAX_SVG_SIDE)];
  };
  const [firstQuery, endQuery] = cutRange(site.queries, query ?? 0);
  const [firstKey, endKey] = cutRange(site.keys, app.selection.current.value.key ?? query ?? 0);
  const [rows, columns] = [endQuery - firstQuery, endKey - firstKey];
  const weights = new Float32Array(rows * columns);
  const step = Math.max(1, Math.floor(4096 / columns));
  for (let row = 0; row < rows; row += step) {
    const part = await app.tiles.loadValues(map, firstQuery + row, firstKey, Math.min(step, rows - row), columns);
    weights.set(part.weights, row * columns);
  }
  const isDifference = shown === "difference";
  const isSkipped = (column: number) => map.skipFirst && firstKey + column === 0;
  let most = 0;
  weights.forEach((weight, cell) => {
    if (!isSkipped(cell % columns)) most = Math.max(most, Math.abs(weight));
  });
  const theme = app.theme.value;
  const colours = readColours(theme);
  const [left, top] = [110, 110];
  const [width, height] = [left + columns * CELL + 12, top + rows * CELL + 30];
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family='${FONT}' font-size="12" fill="${colours.ink}">`,
    `<rect width="100%" height="100%" fill="${theme === "light" ? "#ffffff" : "#10141c"}"/>`,
    `<text x="8" y="18" font-weight="600">${escapeXml(`${run.model.name}: ${describeHead(app, app.selection.current.value)}`)}</text>`,
  ];
  for (let row = 0; row < rows; row++) {
    const label = escapeXml(labelsOf(run, site.query_sequence)[firstQuery + row]);
    parts.push(`<text x="${left - 6}" y="${top + (row + 0.68) * CELL}" text-anchor="end">${label}</text>`);
    for (let column = 0; column < columns; column++) {
      const weight = isSkipped(column) ? 0 : weights[row * columns + column];
      if (weight === 0) continue;
      const fill = cellColour(weight, isDifference, app.scale.value, most, theme);
      parts.push(
        `<rect x="${left + column * CELL}" y="${top + row * CELL}" width="${CELL}" height="${CELL}" fill="${fill}"><title>${formatWeight(weight, isDifference)}</title></rect>`,
      );
    }
  }
  for (let column = 0; column < columns; column++) {
    const label = escapeXml(labelsOf(run, site.key_sequence)[firstKey + column]);
    parts.push(`<text transform="translate(${left + (column + 0.6) * CELL} ${top - 7}) rotate(-60)">${label}</text>`);
  }
  parts.push(
    `<rect x="${left}" y="${top}" width="${columns * CELL}" height="${rows * CELL}" fill="none" stroke="${colours.line}"/>`,
    `<text x="${left}" y="${height - 10}" fill="${colours.soft}">${escapeXml(isDifference ? app.words.value.differenceScale : app.words.value.weightScale)} (0 – ${most.toPrecision(2)})</text>`,
    "</svg>",
  );
  return parts.join("\n");
}

function escapeXml(text: string): string {
  return text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
