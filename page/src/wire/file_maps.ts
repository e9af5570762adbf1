/** The maps of a saved file: exact weights, rounded weights, or queries and keys from which the weights are computed. */

import type { Piece, SavedMap } from "./file_format";

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
    const weights = toFloats(cut(map));
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
  const read = map.number === "float16" ? halvesToFloats : toFloats;
  const query = read(cut(map.query));
  const key = read(cut(map.key));
  const logSumExp = toFloats(cut(map.lse));
  const readRow = (position: number, row: Float32Array) => {
    row.fill(0);
    const last = mask.kind === "none" ? keys : Math.min(keys, position + (mask.kind === "window" && !mask.causal ? mask.window : 1));
    const first = mask.kind === "window" ? Math.max(0, position - mask.window + 1) : 0;
    const offset = position * width;
    for (let column = first; column < last; column++) {
      let product = 0;
      const keyOffset = column * width;
      for (let index = 0; index < width; index++) product += query[offset + index] * key[keyOffset + index];
      row[column] = Math.exp(product * scale - logSumExp[position]);
    }
  };
  return { queries, keys, isExact: map.number !== "float16", rowCost: keys * width, readRow };
}

function toFloats(bytes: Uint8Array): Float32Array {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  return new Float32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 4);
}

/** Convert 16-bit floats; browsers have no array of them yet. */
export function halvesToFloats(bytes: Uint8Array): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const numbers = new Float32Array(bytes.byteLength / 2);
  for (let index = 0; index < numbers.length; index++) {
    const bits = view.getUint16(2 * index, true);
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    const size =
      exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15);
    numbers[index] = bits & 0x8000 ? -size : size;
  }
  return numbers;
}
