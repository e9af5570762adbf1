/** The carrier of a saved file: it answers from what the file stores, and computes tiles from its maps. */

import { AskError, type Buffers, type Carrier } from "./client";
import { openMap, type StoredMap } from "./file_maps";
import type { KeyColumn, Pass, Piece, QueryRow, SavedIndex, Shown } from "../protocol";

const TILE = 256;
const MAX_COST = 1.5e9; // multiply-adds that one tile may take; beyond it only some rows of each cell are read
const PAUSE = 12; // ms of computing between two pauses, in which the page stays responsive

type Ask = Record<string, any>;
type Answer = { body: unknown; buffers?: Buffers };

export function openFile(document: Document): Carrier {
  let onMessage: (head: Record<string, any>, buffers: Buffers) => void = () => {};
  const answers = loadFile(document).then(
    (file) => new FileAnswers(file.index, file.blob),
    (error) => {
      throw new AskError(String(error), "internal");
    },
  );
  let turn: Promise<unknown> = Promise.resolve();
  return {
    send(ask) {
      // one after the other, like a session
      turn = turn.then(async () => {
        try {
          const { body, buffers = [] } = await (await answers).answer(ask);
          onMessage({ answer: ask.id, body }, buffers);
        } catch (error) {
          const { message, reason } = error instanceof AskError ? error : { message: String(error), reason: "internal" };
          onMessage({ failed: ask.id, message, reason }, []);
        }
      });
    },
    receive(listener) {
      onMessage = listener;
    },
  };
}

async function loadFile(document: Document): Promise<{ index: SavedIndex; blob: Uint8Array }> {
  const index = JSON.parse(document.getElementById("jumok-index")!.textContent!);
  const packed = decodeBase64(document.getElementById("jumok-blob")!.textContent!.trim());
  const stream = new Blob([packed.slice()]).stream().pipeThrough(new DecompressionStream("gzip"));
  return { index, blob: new Uint8Array(await new Response(stream).arrayBuffer()) };
}

function decodeBase64(text: string): Uint8Array {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let position = 0; position < letters.length; position++) bytes[position] = letters.charCodeAt(position);
  return bytes;
}

class FileAnswers {
  private maps = new Map<string, StoredMap>();

  constructor(
    private index: SavedIndex,
    private blob: Uint8Array,
  ) {}

  private cut({ at, bytes }: Piece): Uint8Array {
    return this.blob.subarray(at, at + bytes);
  }

  async answer(ask: Ask): Promise<Answer> {
    switch (ask.ask) {
      case "hello":
        return { body: this.index.hello };
      case "run":
        return { body: this.index.run, buffers: this.index.image ? [this.cut(this.index.image)] : [] };
      case "audio": {
        const { audio, run } = this.index;
        if (!audio || !run.audio) break;
        return { body: { bands: run.audio.bands, frames: run.audio.frames }, buffers: [this.cut(audio.wav), this.cut(audio.spectrogram)] };
      }
      case "listening":
        return this.answerListening(ask);
      case "kinds":
        if (this.index.kinds) return { body: this.index.kinds };
        break;
      case "effect": {
        const stored = this.index.effects.find(({ over }) => over === ask.over);
        if (stored) return { body: stored };
        break;
      }
      case "code":
        return { body: { code: this.index.code } };
      case "steps": {
        const stored = this.index.steps[ask.show as Pass]?.[ask.site];
        if (!stored) break;
        const steps = JSON.parse(new TextDecoder().decode(this.cut(stored.heads[ask.head])))[ask.query];
        return { body: { ...steps, sentences: stored.sentences[ask.language as "en" | "ko"] } };
      }
      case "thumbnails":
        return this.answerThumbnails(ask);
      case "tiles":
        return this.answerTile(ask);
      case "values":
        return this.answerValues(ask);
      case "line":
        return this.answerLine(ask);
      case "token":
        return this.answerToken(ask);
      case "select":
      case "cancel":
        return { body: {} };
    }
    throw new AskError(MISSING[ask.language === "ko" ? "ko" : "en"], "invalid");
  }

  private answerThumbnails({ show, site }: Ask): Answer {
    const { heads, rows, columns, is_preview, ...piece } = this.index.thumbnails[show as Pass]![site];
    return { body: { heads, rows, columns, is_preview }, buffers: [this.cut(piece)] };
  }

  private open(pass: Pass, site: number, head: number): StoredMap {
    const name = `${pass}/${site}/${head}`;
    let map = this.maps.get(name);
    if (!map) {
      const stored = this.index.maps[pass]?.[site]?.[head];
      if (!stored) throw new AskError(NOT_STORED, "invalid");
      const { queries, keys } = this.index.run.sites[site];
      map = openMap(stored, queries, keys, (piece) => this.cut(piece));
      this.maps.set(name, map);
    }
    return map;
  }

  /** Return a function that reads a row of a map, or of the difference of two. */
  private reader(shown: Shown, site: number, head: number): StoredMap {
    if (shown !== "difference") return this.open(shown, site, head);
    const [clean, edited] = [this.open("clean", site, head), this.open("edited", site, head)];
    const other = new Float32Array(clean.keys);
    const readRow = (query: number, row: Float32Array) => {
      edited.readRow(query, row);
      clean.readRow(query, other);
      for (let key = 0; key < row.length; key++) row[key] -= other[key];
    };
    return { ...clean, rowCost: 2 * clean.rowCost, readRow };
  }

  private async answerTile({ show, site, head, level, row, column, preview, skip_first }: Ask): Promise<Answer> {
    const map = this.reader(show, site, head);
    const isDifference = show === "difference";
    const size = 2 ** level;
    const count = (length: number, index: number) => Math.min(TILE, Math.ceil(length / size) - TILE * index);
    const [rows, columns] = [count(map.queries, row), count(map.keys, column)];
    const pooled = new Float32Array(rows * columns);
    const weights = new Float32Array(map.keys);
    const affordable = Math.max(1, Math.floor(MAX_COST / (map.rowCost * rows)));
    const rowsPerCell = Math.min(size, preview ? 1 : affordable);
    let pause = performance.now() + PAUSE;
    for (let cell = 0; cell < rows; cell++) {
      const first = (TILE * row + cell) * size;
      const middle = first + Math.floor((Math.min(size, map.queries - first) - rowsPerCell) / 2);
      const begin = Math.max(first, middle);
      for (let query = begin; query < Math.min(begin + rowsPerCell, map.queries); query++) {
        map.readRow(query, weights);
        if (skip_first) weights[0] = 0;
        for (let target = 0; target < columns; target++) {
          const from = (TILE * column + target) * size;
          let best = pooled[cell * columns + target];
          for (let key = from; key < Math.min(from + size, map.keys); key++)
            if (Math.abs(weights[key]) > Math.abs(best)) best = weights[key];
          pooled[cell * columns + target] = best;
        }
      }
      if (performance.now() > pause) {
        await new Promise((resolve) => setTimeout(resolve));
        pause = performance.now() + PAUSE;
      }
    }
    const bytes = Uint8Array.from(pooled, (weight) =>
      Math.round(isDifference ? 128 + 127 * Math.sign(weight) * Math.sqrt(Math.abs(weight)) : 255 * Math.sqrt(weight)),
    );
    return { body: { rows, columns, is_preview: rowsPerCell < size }, buffers: [bytes] };
  }

  private answerValues({ show, site, head, rows: [top, bottom], columns: [left, right] }: Ask): Answer {
    const map = this.reader(show, site, head);
    const weights = new Float32Array((bottom - top) * (right - left));
    const row = new Float32Array(map.keys);
    for (let query = top; query < bottom; query++) {
      map.readRow(query, row);
      weights.set(row.subarray(left, right), (query - top) * (right - left));
    }
    const body = { rows: bottom - top, columns: right - left, is_exact: map.isExact };
    return { body, buffers: [new Uint8Array(weights.buffer)] };
  }

  private answerLine({ show, site, head, query, key }: Ask): Answer {
    const map = this.reader(show, site, head);
    const row = new Float32Array(map.keys);
    let line = row;
    if (query !== undefined && query !== null) map.readRow(query, row);
    else {
      line = new Float32Array(map.queries);
      for (let position = 0; position < map.queries; position++) {
        map.readRow(position, row);
        line[position] = row[key];
      }
    }
    return { body: { length: line.length, is_exact: map.isExact }, buffers: [new Uint8Array(line.buffer)] };
  }

  private answerListening({ show, site, head }: Ask): Answer {
    const sound = this.index.run.audio!;
    const body = { words: sound.words.length, positions: sound.positions };
    if (site === undefined || site === null) return { body, buffers: [this.cut(this.index.audio!.listening[show as Pass]!).slice()] };
    const map = this.open(show, site, head);
    const row = new Float32Array(map.keys);
    const weights = new Float32Array(body.words * body.positions);
    sound.words.forEach(({ rows: [first, end] }, word) => {
      for (let query = first; query < end; query++) {
        map.readRow(query, row);
        for (let position = 0; position < body.positions; position++) weights[word * body.positions + position] += row[position] / (end - first);
      }
    });
    return { body, buffers: [new Uint8Array(weights.buffer)] };
  }

  private answerToken({ show, sequence, position }: Ask): Answer {
    const as_query: QueryRow[] = [];
    const as_key: KeyColumn[] = [];
    this.index.run.sites.forEach(({ heads, query_sequence, key_sequence, queries, keys }, site) => {
      for (let head = 0; head < heads; head++) {
        if (!this.index.maps[show as Pass]?.[site]?.[head]) continue;
        if (query_sequence === sequence && position < queries) {
          const { buffers } = this.answerLine({ show, site, head, query: position });
          const row = new Float32Array(buffers![0].buffer);
          let entropy = 0;
          for (const weight of row) if (weight > 0) entropy -= weight * Math.log(weight);
          as_query.push({ site, head, entropy, top: findLargest(row) });
        }
        if (key_sequence === sequence && position < keys && queries * keys <= 2 ** 18) {
          const { buffers } = this.answerLine({ show, site, head, key: position });
          const column = new Float32Array(buffers![0].buffer);
          as_key.push({ site, head, top: findLargest(column), received: column.reduce((sum, weight) => sum + weight, 0) });
        }
      }
    });
    return { body: { as_query, as_key } };
  }
}

function findLargest(weights: Float32Array): [number, number][] {
  return Array.from(weights, (weight, index): [number, number] => [index, weight])
    .filter(([, weight]) => weight > 0)
    .sort((a, b) => b[1] - a[1])
    .slice(0, 5);
}

const MISSING = {
  en: "This file does not contain that; open the model with: jumok look MODEL TEXT --open",
  ko: "이 파일에는 그 내용이 없습니다. 모델을 여세요: jumok look 모델 텍스트 --open",
};
const NOT_STORED = "This file does not contain the map of this head; save it with --layer and --head. (이 헤드의 맵은 파일에 없습니다)";
