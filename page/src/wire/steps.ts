/** The computation of one head for one query, with numbers, from its queries, keys and values. The same as
 * web/answers/head_steps.py. */

import type { SavedScore, StepKey, Steps } from "../protocol";

const MAX_KEYS = 64; // keys that are listed
const DIGITS = 7; // of the numbers in the answer

/** What one head of an attention computes with. */
export interface HeadVectors {
  keys: number;
  width: number;
  query: Float32Array; // [queries, width]
  key: Float32Array; // [keys, width]
  value: Float32Array; // [keys, value width]
  score: SavedScore;
  /** The bias of a score; null: the attention has none. */
  biasAt: ((query: number, key: number) => number) | null;
  allows(query: number, key: number): boolean;
  /** Return the largest difference of a computed output to the one that the model computed. */
  compare(query: number, output: Float64Array): number;
}

export function computeSteps(head: HeadVectors, query: number): Omit<Steps, "sentences"> {
  const { keys, width, score, value } = head;
  const valueWidth = value.length / keys;
  const at = query * width;
  const products = new Float64Array(keys);
  const scaled = new Float64Array(keys);
  const scores = new Float64Array(keys).fill(-Infinity);
  for (let key = 0; key < keys; key++) {
    for (let index = 0; index < width; index++) products[key] += head.query[at + index] * head.key[key * width + index];
    scaled[key] = products[key] * score.scale;
    if (score.softcap !== null) scaled[key] = score.softcap * Math.tanh(scaled[key] / score.softcap);
    scaled[key] *= score.factor;
    if (head.allows(query, key)) scores[key] = scaled[key] + (head.biasAt?.(query, key) ?? 0);
  }
  const logSumExp = addLogarithms(score.sink === null ? scores : [...scores, score.sink]);
  const weights = scores.map((one) => (logSumExp === -Infinity ? 0 : Math.exp(one - logSumExp)));
  const output = new Float64Array(valueWidth);
  for (let key = 0; key < keys; key++)
    for (let index = 0; index < valueWidth; index++) output[index] += weights[key] * value[key * valueWidth + index];

  const order = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a] || a - b);
  const listed = order.slice(0, MAX_KEYS).sort((a, b) => a - b);
  const describe = (key: number): StepKey => ({
    key,
    k: roundAll(head.key.subarray(key * width, (key + 1) * width)),
    product: round(products[key]),
    scaled: round(scaled[key]),
    bias: head.biasAt && round(head.biasAt(query, key)),
    is_allowed: head.allows(query, key),
    weight: weights[key],
    v: roundAll(value.subarray(key * valueWidth, (key + 1) * valueWidth)),
  });
  return {
    formula_scale: score.text,
    width,
    query: roundAll(head.query.subarray(at, at + width)),
    keys: listed.map(describe),
    hidden: keys - listed.length,
    hidden_weight: order.slice(MAX_KEYS).reduce((sum, key) => sum + weights[key], 0),
    log_sum_exp: round(logSumExp),
    output: roundAll(output),
    difference: head.compare(query, output),
  };
}

function addLogarithms(scores: ArrayLike<number>): number {
  const largest = Array.from(scores).reduce((most, score) => Math.max(most, score), -Infinity);
  if (largest === -Infinity) return largest;
  return largest + Math.log(Array.from(scores).reduce((sum, score) => sum + Math.exp(score - largest), 0));
}

function roundAll(numbers: Float32Array | Float64Array): (number | null)[] {
  return Array.from(numbers, round);
}

/** Return a number with a few digits; null for what JSON cannot express. */
function round(number: number): number | null {
  return Number.isFinite(number) ? Number(number.toPrecision(DIGITS)) : null;
}
