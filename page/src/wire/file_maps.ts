/** The maps of a saved file: exact weights, rounded weights, or queries and keys from which the weights are computed. */

import type { Piece, SavedMap, SavedMask } from "../protocol";
import { asFloats } from "./client";

/** Weights of one map; a row is computed when it is needed. */
export interface StoredMap {
  readonly queries: number;
  readonly keys: number;
  readonly isExact: boolean;
  /** How much work a row is, in multiply-adds. */
  readonly rowCost: number;
  /** Write the weights of one query into `row`. */
  readRow(query: number, row: Float32Array): void;
}

export function openMap(map: SavedMap, queries: number, keys: number, cut: (piece: Piece) => Uint8Array): StoredMap {
  if (map.form === "float32") {
    const weights = asFloats(cut(map));
    const readRow = (query: number, row: Float32Array) => row.set(weights.subarray(query * keys, (query + 1) * keys));
    return { queries, keys, isExact: true, rowCost: keys, readRow };
  }
  if (map.form === "u8") {
    const bytes = cut(map);
    const readRow = (query: number, row: Float32Array) => {
      for (let key = 0; key < keys; key++) row[key] = (bytes[query * keys + key] / 255) ** 2;
    };
    return { queries, keys, isExact: false, rowCost: keys, readRow };
  }
  if (map.form === "u8 pooled") {
    const bytes = cut(map);
    const size = 2 ** map.level;
    const columns = Math.ceil(keys / size);
    const readRow = (query: number, row: Float32Array) => {
      const begin = Math.floor(query / size) * columns;
      for (let key = 0; key < keys; key++) row[key] = (bytes[begin + Math.floor(key / size)] / 255) ** 2;
    };
    return { queries, keys, isExact: false, rowCost: keys, readRow };
  }
  const { width, scale, mask } = map;
  const [query, key, logSumExp] = [map.query, map.key, map.lse].map((piece) => asFloats(cut(piece)));
  const forbidden = mask.forbidden.map((cells) => ({
    queries: cells.queries && new Set(cells.queries),
    keys: cells.keys,
  }));
  const readRow = (position: number, row: Float32Array) => {
    row.fill(0);
    if (logSumExp[position] === -Infinity) return;
    const first = mask.behind === null ? 0 : Math.max(0, position - mask.behind);
    const end = mask.ahead === null ? keys : Math.min(keys, position + mask.ahead + 1);
    const offset = position * width;
    for (let column = first; column < end; column++) {
      let product = 0;
      const keyOffset = column * width;
      for (let index = 0; index < width; index++) product += query[offset + index] * key[keyOffset + index];
      row[column] = Math.exp(product * scale - logSumExp[position]);
    }
    for (const cells of forbidden) {
      if (cells.queries && !cells.queries.has(position)) continue;
      if (cells.keys) for (const column of cells.keys) row[column] = 0;
      else row.fill(0);
    }
  };
  return { queries, keys, isExact: true, rowCost: keys * width, readRow };
}

/** Return whether a query may attend to a key. */
export function readMask({ behind, ahead, forbidden }: SavedMask): (query: number, key: number) => boolean {
  const covers = (positions: number[] | null, position: number) => positions === null || positions.includes(position);
  return (query, key) =>
    (behind === null || query - key <= behind) &&
    (ahead === null || key - query <= ahead) &&
    !forbidden.some(({ queries, keys }) => covers(queries, query) && covers(keys, key));
}
