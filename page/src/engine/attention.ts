/** Attention: from queries, keys and values to outputs, and the weights of a head again from its queries and keys. */

import type { StoredMap } from "../wire/file_maps";
import { causal, type Mask } from "./mask";
import type { ScoreBias } from "./positions";
import type { SiteInfo, SitePass } from "./types";

/** The keys and values of one attention: rows are appended as the text grows. */
export class KeyValueCache {
  readonly key: Float32Array; // [group, capacity, headWidth]
  readonly value: Float32Array;
  length = 0;

  constructor(
    private readonly groups: number,
    private readonly width: number,
    readonly capacity: number,
  ) {
    this.key = new Float32Array(groups * capacity * width);
    this.value = new Float32Array(groups * capacity * width);
  }

  append(key: Float32Array, value: Float32Array, rows: number): void {
    const { groups, width, capacity } = this;
    for (let group = 0; group < groups; group++) {
      const [from, to] = [group * rows * width, (group * capacity + this.length) * width];
      this.key.set(key.subarray(from, from + rows * width), to);
      this.value.set(value.subarray(from, from + rows * width), to);
    }
    this.length += rows;
  }
}

/** Return heads [head, row, width] from rows [row, head x width], of which each row begins at `offset`. */
export function splitHeads(joined: Float32Array, rows: number, heads: number, width: number, offset = 0): Float32Array {
  const split = new Float32Array(heads * rows * width);
  const stride = joined.length / rows;
  for (let head = 0; head < heads; head++)
    for (let row = 0; row < rows; row++) {
      const from = row * stride + offset + head * width;
      split.set(joined.subarray(from, from + width), (head * rows + row) * width);
    }
  return split;
}

/** Return rows [row, head x width] from heads [head, row, width]. */
export function joinHeads(split: Float32Array, rows: number, heads: number, width: number): Float32Array {
  const joined = new Float32Array(split.length);
  for (let head = 0; head < heads; head++)
    for (let row = 0; row < rows; row++) {
      const from = (head * rows + row) * width;
      joined.set(split.subarray(from, from + width), (row * heads + head) * width);
    }
  return joined;
}

/** What an edit changes before the softmax. */
export interface ScoreSettings {
  mask: Mask | null;
  temperatureEdits: number[][]; // by head
  bias: ScoreBias | null;
}

/** One call of an attention: all rows of a text, or while a text is generated the new ones. */
export class AttentionCall implements SitePass {
  readonly keys: number;
  readonly key: Float32Array;
  readonly value: Float32Array;
  readonly mask: Mask | null;
  readonly temperatureEdits: number[][];
  readonly temperatures: number[];
  readonly output: Float32Array;
  readonly logSumExp: Float32Array;
  blockOutput: Float32Array = new Float32Array(0);
  private readonly bias: ScoreBias | null;
  private readonly capacity: number;

  constructor(
    readonly info: SiteInfo,
    readonly first: number, // the position of the first query
    readonly queries: number,
    readonly query: Float32Array,
    cache: KeyValueCache,
    { mask, temperatureEdits, bias }: ScoreSettings,
  ) {
    [this.keys, this.key, this.value, this.capacity] = [cache.length, cache.key, cache.value, cache.capacity];
    [this.mask, this.temperatureEdits, this.bias] = [mask, temperatureEdits, bias];
    this.temperatures = temperatureEdits.map((factors) => factors.reduce((product, factor) => product * factor, 1));
    this.output = new Float32Array(query.length);
    this.logSumExp = new Float32Array(info.heads * queries);
    this.attend();
  }

  biasAt(head: number, query: number, key: number): number {
    return this.bias ? this.bias(head, this.first + query - key) : 0;
  }

  allows(head: number, query: number, key: number): boolean {
    return !this.mask || this.mask.allows(head, this.first + query, key);
  }

  open(head: number): StoredMap {
    const { queries, keys } = this;
    const weights = new Float64Array(keys);
    const readRow = (query: number, row: Float32Array) => {
      this.computeWeights(head, query, weights);
      row.set(weights);
    };
    return { queries, keys, isExact: true, rowCost: keys * this.info.headWidth, readRow };
  }

  private attend(): void {
    const { info, queries, value, output } = this;
    const { heads, headWidth: width } = info;
    const weights = new Float64Array(this.keys);
    const sums = new Float64Array(width);
    for (let head = 0; head < heads; head++) {
      const begin = this.findGroup(head) * this.capacity * width;
      for (let query = 0; query < queries; query++) {
        this.logSumExp[head * queries + query] = this.computeWeights(head, query, weights);
        sums.fill(0);
        for (let key = 0; key < weights.length; key++) {
          const weight = weights[key];
          if (!weight) continue;
          const at = begin + key * width;
          for (let index = 0; index < width; index++) sums[index] += weight * value[at + index];
        }
        output.set(sums, (head * queries + query) * width);
      }
    }
  }

  private findGroup(head: number): number {
    return Math.floor(head / (this.info.heads / this.info.groups));
  }

  /** Write the weights of a query into `weights`, and return the logarithm of the sum that the softmax divides by. */
  private computeWeights(head: number, query: number, weights: Float64Array): number {
    const { mask, bias, keys, first } = this;
    const { scale, headWidth: width } = this.info;
    const position = first + query;
    const end = mask ? Math.min(keys, position + mask.ahead + 1) : keys;
    const isBand = mask === null || mask === causal; // the keys before `end` are allowed
    const factor = scale / this.temperatures[head];
    const queryAt = (head * this.queries + query) * width;
    const vector = new Float64Array(this.query.subarray(queryAt, queryAt + width));
    const begin = this.findGroup(head) * this.capacity * width;
    let largest = -Infinity;
    weights.fill(0);
    for (let key = 0; key < end; key++) {
      let score = -Infinity;
      if (isBand || mask.allows(head, position, key)) {
        score = factor * multiply(vector, this.key, begin + key * width);
        if (bias) score += bias(head, position - key);
      }
      weights[key] = score;
      if (score > largest) largest = score;
    }
    if (largest === -Infinity) {
      weights.fill(0); // a query that may attend to nothing
      return largest;
    }
    let sum = 0;
    for (let key = 0; key < end; key++) {
      weights[key] = Math.exp(weights[key] - largest);
      sum += weights[key];
    }
    for (let key = 0; key < end; key++) weights[key] /= sum;
    return largest + Math.log(sum);
  }
}

/** Return a dot product; four sums at once, as one would wait for itself. */
function multiply(left: Float64Array, right: Float32Array, at: number): number {
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  let index = 0;
  for (; index + 3 < left.length; index += 4) {
    a += left[index] * right[at + index];
    b += left[index + 1] * right[at + index + 1];
    c += left[index + 2] * right[at + index + 2];
    d += left[index + 3] * right[at + index + 3];
  }
  for (; index < left.length; index++) a += left[index] * right[at + index];
  return a + b + c + d;
}
