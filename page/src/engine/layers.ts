/** What is applied to each position by itself: linear maps, norms, activations.
 *
 * Numbers are stored as float32, and sums are computed in float64, which JavaScript does at no extra cost. */

import type { ModelConfig } from "./types";

export interface Linear {
  weight: Float32Array; // [outputs, inputs]
  bias: Float32Array | null;
  inputs: number;
  outputs: number;
}

export interface Norm {
  weight: Float32Array;
  bias: Float32Array | null;
  epsilon: number;
  isRms: boolean;
}

/** Return the products [row, outputs] of the rows of `inputs` [row, inputs]. Four outputs are computed at once: their
 * sums do not wait for each other, which is five times as fast as one after the other. */
export function applyLinear({ weight, bias, inputs: width, outputs }: Linear, inputs: Float32Array, rows: number): Float32Array {
  const products = new Float32Array(rows * outputs);
  const row = new Float64Array(width); // converted once, not once for each output
  const last = outputs - (outputs % 4);
  for (let index = 0; index < rows; index++) {
    for (let i = 0; i < width; i++) row[i] = inputs[index * width + i];
    const at = index * outputs;
    for (let output = 0; output < last; output += 4) {
      const a = output * width;
      const b = a + width;
      const c = b + width;
      const d = c + width;
      let sumA = 0;
      let sumB = 0;
      let sumC = 0;
      let sumD = 0;
      for (let i = 0; i < width; i++) {
        const x = row[i];
        sumA += weight[a + i] * x;
        sumB += weight[b + i] * x;
        sumC += weight[c + i] * x;
        sumD += weight[d + i] * x;
      }
      products[at + output] = sumA;
      products[at + output + 1] = sumB;
      products[at + output + 2] = sumC;
      products[at + output + 3] = sumD;
    }
    for (let output = last; output < outputs; output++) {
      let sum = 0;
      for (let i = 0; i < width; i++) sum += weight[output * width + i] * row[i];
      products[at + output] = sum;
    }
    if (bias) for (let output = 0; output < outputs; output++) products[at + output] += bias[output];
  }
  return products;
}

/** LayerNorm, or RMSNorm, which does not subtract the mean. */
export function applyNorm({ weight, bias, epsilon, isRms }: Norm, inputs: Float32Array): Float32Array {
  const width = weight.length;
  const normalized = new Float32Array(inputs.length);
  for (let at = 0; at < inputs.length; at += width) {
    let mean = 0;
    let square = 0;
    if (!isRms) {
      for (let i = 0; i < width; i++) mean += inputs[at + i];
      mean /= width;
    }
    for (let i = 0; i < width; i++) square += (inputs[at + i] - mean) ** 2;
    const factor = 1 / Math.sqrt(square / width + epsilon);
    for (let i = 0; i < width; i++) normalized[at + i] = (inputs[at + i] - mean) * factor * weight[i] + (bias ? bias[i] : 0);
  }
  return normalized;
}

/** Return a sum of vectors; the terms are not changed. */
export function add(left: Float32Array, right: Float32Array): Float32Array {
  return left.map((number, index) => number + right[index]);
}

const ACTIVATIONS: Record<ModelConfig["activation"], (x: number) => number> = {
  relu: (x) => Math.max(0, x),
  silu: (x) => x / (1 + Math.exp(-x)),
  gelu: (x) => (x / 2) * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
};

/** The error function to 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26). */
function erf(x: number): number {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const polynomial = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - polynomial * Math.exp(-x * x));
}

export interface FeedForward {
  inner: Linear;
  outer: Linear;
  activation: ModelConfig["activation"];
  isGated: boolean; // the first half of the inner numbers is the gate of the second half
}

export function applyFeedForward({ inner, outer, activation, isGated }: FeedForward, inputs: Float32Array, rows: number): Float32Array {
  const activate = ACTIVATIONS[activation];
  const numbers = applyLinear(inner, inputs, rows);
  if (!isGated) return applyLinear(outer, numbers.map(activate), rows);
  const { inputs: width } = outer;
  const gated = new Float32Array(rows * width);
  for (let row = 0; row < rows; row++)
    for (let i = 0; i < width; i++) gated[row * width + i] = activate(numbers[2 * row * width + i]) * numbers[(2 * row + 1) * width + i];
  return applyLinear(outer, gated, rows);
}
