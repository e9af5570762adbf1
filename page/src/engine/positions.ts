/** Position encodings: vectors that are added, rotations of queries and keys, and biases on the scores. */

/** The bias of a score, by how far the key is behind the query. */
export type ScoreBias = (head: number, distance: number) => number;

const BASE = 10_000;

/** Return sines and cosines [position, width] (Vaswani et al. 2017). */
export function buildSinusoids(length: number, width: number, layout: "interleaved" | "halves"): Float32Array {
  const table = new Float32Array(length * width);
  const waves = Math.ceil(width / 2);
  for (let position = 0; position < length; position++) {
    for (let wave = 0; wave < waves; wave++) {
      const angle = position * BASE ** ((-2 * wave) / width);
      const [sine, cosine] = layout === "halves" ? [wave, waves + wave] : [2 * wave, 2 * wave + 1];
      table[position * width + sine] = Math.sin(angle);
      if (cosine < width) table[position * width + cosine] = Math.cos(angle); // an odd width has one cosine less
    }
  }
  return table;
}

/** How rotations are slowed down for texts longer than those in training, as in layers/position_encoding.py. */
export interface RotaryScaling {
  kind: "none" | "linear" | "llama3" | "yarn" | "dynamic";
  factor: number;
  length: number; // of the texts in training
  slow: number; // turns in such a text: pairs with fewer get the full factor
  fast: number; // pairs with more are not slowed down
  gain: number; // of rotated queries and keys (yarn)
}

/** Rotates pairs of numbers by angles proportional to the position (Su et al. 2021). */
export class Rotation {
  private readonly frequencies: Float32Array;
  private readonly gain: number;

  constructor(
    private readonly width: number,
    base = BASE,
    scaling: RotaryScaling | null = null,
  ) {
    // float32 at every step, as the model was trained: at far positions a rounded frequency is another angle
    const unscaled = Float32Array.from({ length: width / 2 }, (_, pair) => 1 / Math.fround(base ** Math.fround((2 * pair) / width)));
    this.frequencies = scaling ? unscaled.map((frequency, pair) => scaleFrequency(frequency, pair, width, base, scaling)) : unscaled;
    this.gain = scaling?.kind === "yarn" ? scaling.gain : 1;
  }

  /** Rotate vectors [head, row, width] in place; the first row is at position `first`. */
  rotate(vectors: Float32Array, rows: number, first: number): void {
    const { width, frequencies, gain } = this;
    const half = width / 2;
    for (let row = 0; row < rows; row++) {
      for (let pair = 0; pair < half; pair++) {
        const angle = Math.fround((first + row) * frequencies[pair]);
        const cosine = Math.cos(angle) * gain;
        const sine = Math.sin(angle) * gain;
        for (let at = row * width + pair; at < vectors.length; at += rows * width) {
          const left = vectors[at];
          const right = vectors[at + half];
          vectors[at] = left * cosine - right * sine;
          vectors[at + half] = right * cosine + left * sine;
        }
      }
    }
  }
}

function scaleFrequency(frequency: number, pair: number, width: number, base: number, { kind, factor, length, slow, fast }: RotaryScaling): number {
  if (kind === "none" || kind === "dynamic") return frequency; // "dynamic" changes nothing up to the model's length
  if (kind === "linear") return frequency / factor;
  const clamp = (share: number) => Math.min(1, Math.max(0, share));
  let unscaled = clamp(((length * frequency) / (2 * Math.PI) - slow) / (fast - slow));
  if (kind === "yarn") {
    // interpolated over the index of the pair, with the bounds rounded outwards as in published models
    const findPair = (turns: number) => ((width / 2) * Math.log(length / (2 * Math.PI * turns))) / Math.log(base);
    const first = Math.max(Math.floor(findPair(fast)), 0);
    const last = Math.min(Math.ceil(findPair(slow)), width - 1);
    unscaled = 1 - clamp((pair - first) / (last - first || 0.001));
  }
  return frequency * unscaled + (frequency / factor) * (1 - unscaled);
}

/** Return -slope * distance, with one slope for each head (Press, Smith and Lewis 2022). */
export function buildAlibi(heads: number): ScoreBias {
  const listSlopes = (count: number) => Array.from({ length: count }, (_, step) => 2 ** ((-8 * (step + 1)) / count));
  const power = 2 ** Math.floor(Math.log2(heads));
  const between = listSlopes(2 * power).filter((_, index) => index % 2 === 0);
  const slopes = [...listSlopes(power), ...between.slice(0, heads - power)];
  return (head, distance) => -slopes[head] * Math.abs(distance);
}

/** Return one learned number for each head and bucket of distances (Raffel et al. 2020); `table` is [bucket, head]. */
export function buildDistanceBuckets(table: Float32Array, heads: number, maxDistance: number): ScoreBias {
  const buckets = table.length / heads;
  const exact = Math.floor(buckets / 2); // near distances have one bucket each
  const findBucket = (distance: number) => {
    if (distance < exact) return distance;
    // float32 as in Python, as the last bit decides about the bucket
    const steps = Math.fround(Math.fround(Math.log(Math.fround(distance / exact))) / Math.fround(Math.log(maxDistance / exact)));
    return Math.min(buckets - 1, exact + Math.trunc(Math.fround(steps * (buckets - exact))));
  };
  return (head, distance) => table[findBucket(Math.max(0, distance)) * heads + head];
}
