/** Tiles of a map: loaded when they are visible, coloured once, and the 256 last used ones stay in memory. */

import { signal } from "@preact/signals";
import { buildPixels, type Scale, type Theme } from "../colour";
import type { Shown } from "../protocol";
import { asFloats, AskError, type Client } from "../wire/client";

export const TILE = 256; // cells along each side
const MAX_TILES = 256;
const MAX_LOADING = 4;
const PREVIEW_CELLS = 2 ** 24; // a tile that pools more weights is shown as a preview first

export interface MapId {
  run: number;
  shown: Shown;
  site: number;
  head: number;
  skipFirst: boolean; // without the first key, often an attention sink
  contrast?: number; // of two inputs: "clean" is the first one, "edited" the second one
}

export interface TileId {
  level: number;
  row: number;
  column: number;
}

interface LoadedTile {
  bytes: Uint8Array;
  rows: number;
  columns: number;
  isPreview: boolean; // a better one will follow
  isSampled: boolean; // only some rows of each cell were read
  bitmap: ImageBitmap | null;
  style: string; // what the bitmap was coloured with
}

export interface VisibleValues {
  map: string;
  row: number;
  column: number;
  rows: number;
  columns: number;
  weights: Float32Array;
  isExact: boolean;
}

export function nameMap({ run, shown, site, head, skipFirst, contrast }: MapId): string {
  const inputs = contrast === undefined ? "" : `contrast ${contrast}/`;
  return `${run}/${inputs}${shown}/${site}/${head}/${skipFirst ? 1 : 0}`;
}

export class TileStore {
  /** Counts up whenever something new can be drawn. */
  readonly version = signal(0);
  readonly failure = signal<string | null>(null);
  private tiles = new Map<string, LoadedTile>();
  private wanted: { name: string; map: MapId; tile: TileId; preview: boolean }[] = [];
  private loading = new Set<string>();
  private run = 0;

  constructor(private client: Client) {}

  /** Drop the requests of older runs. */
  startRun(run: number): void {
    this.run = run;
    this.wanted = [];
    this.failure.value = null;
    for (const [name, tile] of this.tiles) if (!name.startsWith(`${run}/`)) this.drop(name, tile);
    this.version.value++;
  }

  clear(): void {
    for (const [name, tile] of this.tiles) this.drop(name, tile);
    this.wanted = [];
  }

  /** The number of tiles in memory. */
  get size(): number {
    return this.tiles.size;
  }

  private drop(name: string, tile: LoadedTile): void {
    tile.bitmap?.close();
    this.tiles.delete(name);
  }

  /** Return a tile if it is in memory. */
  get(map: MapId, tile: TileId): LoadedTile | undefined {
    const name = nameTile(map, tile);
    const loaded = this.tiles.get(name);
    if (loaded) {
      this.tiles.delete(name); // the last used ones are at the end
      this.tiles.set(name, loaded);
    }
    return loaded;
  }

  /** Request the tiles that are visible now; requests for others that have not begun are dropped. */
  request(map: MapId, tiles: TileId[]): void {
    if (map.run !== this.run) return;
    const prefix = `${nameMap(map)}/`;
    this.wanted = this.wanted.filter(({ name }) => !name.startsWith(prefix));
    for (const tile of tiles) {
      const name = nameTile(map, tile);
      const loaded = this.tiles.get(name);
      const isLarge = (TILE << tile.level) ** 2 > PREVIEW_CELLS;
      if (!loaded) this.wanted.push({ name, map, tile, preview: isLarge });
      else if (loaded.isPreview) this.wanted.push({ name, map, tile, preview: false });
    }
    this.load();
  }

  private load(): void {
    while (this.loading.size < MAX_LOADING) {
      const next = this.wanted.find(({ name, preview }) => !this.loading.has(`${name}${preview}`));
      if (!next) return;
      this.wanted.splice(this.wanted.indexOf(next), 1);
      void this.fetch(next);
    }
  }

  private async fetch({ name, map, tile, preview }: (typeof this.wanted)[number]): Promise<void> {
    const task = `${name}${preview}`;
    this.loading.add(task);
    try {
      const { run, shown: show, site, head, skipFirst: skip_first, contrast } = map;
      const fields = { run, show, site, head, ...tile, preview, skip_first, contrast };
      const { body, buffers } = await this.client.ask("tiles", fields);
      if (run !== this.run) return;
      const earlier = this.tiles.get(name);
      if (earlier) this.drop(name, earlier);
      this.tiles.set(name, {
        bytes: buffers[0].slice(),
        rows: body.rows,
        columns: body.columns,
        isPreview: body.is_preview && preview, // a saved file may have nothing better than a preview
        isSampled: body.is_preview,
        bitmap: null,
        style: "",
      });
      for (const [oldest, loaded] of this.tiles) {
        if (this.tiles.size <= MAX_TILES) break;
        this.drop(oldest, loaded);
      }
      if (body.is_preview && preview) this.wanted.push({ name, map, tile, preview: false });
      this.version.value++;
    } catch (error) {
      if (error instanceof AskError && !error.isSuperseded && error.reason !== "closed") {
        this.failure.value = error.message;
      }
    } finally {
      this.loading.delete(task);
      this.load();
    }
  }

  /** Return a tile as a bitmap in the colours of a style. */
  paint(tile: LoadedTile, isDifference: boolean, scale: Scale, most: number, theme: Theme): CanvasImageSource {
    const style = `${isDifference}/${scale}/${most}/${theme}`;
    if (!tile.bitmap || tile.style !== style) {
      const pixels = buildPixels(isDifference, scale, most, theme);
      const image = new ImageData(tile.columns, tile.rows);
      const target = new Uint32Array(image.data.buffer);
      for (let index = 0; index < target.length; index++) target[index] = pixels[tile.bytes[index]];
      const canvas = new OffscreenCanvas(tile.columns, tile.rows);
      canvas.getContext("2d")!.putImageData(image, 0, 0);
      tile.bitmap?.close();
      tile.bitmap = canvas.transferToImageBitmap();
      tile.style = style;
    }
    return tile.bitmap;
  }

  /** Load the exact weights of a rectangle. */
  async loadValues(map: MapId, row: number, column: number, rows: number, columns: number): Promise<VisibleValues> {
    const { run, shown: show, site, head, contrast } = map;
    const { body, buffers } = await this.client.ask("values", {
      contrast,
      run,
      show,
      site,
      head,
      rows: [row, row + rows],
      columns: [column, column + columns],
    });
    const weights = asFloats(buffers[0]);
    return { map: nameMap(map), row, column, rows, columns, weights, isExact: body.is_exact };
  }
}

function nameTile(map: MapId, { level, row, column }: TileId): string {
  return `${nameMap(map)}/${level}/${row}/${column}`;
}
