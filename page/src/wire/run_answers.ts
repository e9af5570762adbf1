/** Answers about a run that any carrier without Python computes from the maps and vectors of its heads. */

import { AskError, type Buffers } from "./client";
import type { StoredMap } from "./file_maps";
import { computeSteps, type HeadVectors } from "./steps";
import type { CellWeight, KeyColumn, Language, Pass, QueryRow, Run, Shown, Steps } from "../protocol";

const TILE = 256;
const MAX_COST = 1.5e9; // multiply-adds that one tile may take; beyond it only some rows of each cell are read
const PAUSE = 12; // ms of computing between two pauses, in which the page stays responsive

export type Ask = Record<string, any>;
export type Answer = { body: unknown; buffers?: Buffers };

/** A run whose maps can be read. */
export abstract class RunAnswers {
  constructor(readonly run: Run) {}

  /** Return a map; null if it is not there. */
  abstract findMap(pass: Pass, site: number, head: number): StoredMap | null;
  /** Return the vectors of a head; null if they are not there. */
  abstract findVectors(pass: Pass, site: number, head: number): HeadVectors | null;
  /** Return a sentence for each step of the computation. */
  abstract writeSentences(pass: Pass, site: number, language: Language): Steps["sentences"];

  /** Return an answer; null if this run has none. */
  answer(ask: Ask): Promise<Answer | null> | Answer | null {
    switch (ask.ask) {
      case "tiles":
        return this.answerTile(ask);
      case "values":
        return this.answerValues(ask);
      case "line":
        return this.answerLine(ask);
      case "token":
        return this.answerToken(ask);
      case "cell":
        return this.answerCell(ask);
      case "steps":
        return this.answerSteps(ask);
    }
    return null;
  }

  protected open(pass: Pass, site: number, head: number): StoredMap {
    const map = this.findMap(pass, site, head);
    if (!map) throw new AskError(NOT_STORED, "invalid");
    return map;
  }

  private answerSteps({ show, site, head, query, language }: Ask): Answer | null {
    const vectors = this.findVectors(show, site, head);
    return vectors && { body: { ...computeSteps(vectors, query), sentences: this.writeSentences(show, site, language ?? "en") } };
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

  private answerCell({ show, site, query, key }: Ask): Answer {
    const asked = this.run.sites[site];
    const fields = ["query_sequence", "key_sequence", "queries", "keys"] as const;
    const heads: CellWeight[] = [];
    this.run.sites.forEach((other, index) => {
      if (fields.some((field) => other[field] !== asked[field])) return;
      const row = new Float32Array(other.keys);
      for (let head = 0; head < other.heads; head++) {
        const map = this.findMap(show, index, head);
        if (!map) continue;
        map.readRow(query, row);
        heads.push({ site: index, head, weight: row[key] });
      }
    });
    return { body: { heads: heads.sort((a, b) => b.weight - a.weight) } };
  }

  private answerToken({ show, sequence, position }: Ask): Answer {
    const as_query: QueryRow[] = [];
    const as_key: KeyColumn[] = [];
    this.run.sites.forEach(({ heads, query_sequence, key_sequence, queries, keys }, site) => {
      for (let head = 0; head < heads; head++) {
        if (!this.findMap(show, site, head)) continue;
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

const NOT_STORED = "This file does not contain the map of this head; save it with --layer and --head. (이 헤드의 맵은 파일에 없습니다)";
