/** How the next token is chosen from logits: the most probable one, or a random one. */

import { EngineError } from "./errors";
import { Random } from "./random";
import type { Sampling } from "./types";

const LEAST_TEMPERATURE = 1e-30; // below, the most probable token has all of the probability

/** Return a function that chooses the next token. */
export function createSampler({ temperature, topK = null, topP = null, seed }: Sampling): (logits: Float32Array) => number {
  const isRandom = [temperature, topK, topP, seed].some((setting) => setting !== undefined && setting !== null);
  const divisor = temperature ?? (isRandom ? 1 : 0);
  const random = new Random(seed ?? 0);
  if (!(divisor >= 0 && divisor < Infinity)) throw new EngineError(`temperature must be a finite number of at least 0, not ${divisor}`);
  if (topK !== null && !(topK >= 1)) throw new EngineError(`top_k must be at least 1, not ${topK}`);
  if (topP !== null && !(topP > 0 && topP <= 1)) throw new EngineError(`top_p must be above 0 and at most 1, not ${topP}`);
  return (logits) => {
    const best = findLargest(logits);
    if (divisor < LEAST_TEMPERATURE) return best;
    const shares = Float64Array.from(logits, (logit) => Math.exp((logit - logits[best]) / divisor));
    if (topK !== null || (topP !== null && topP < 1)) exclude(shares, topK ?? Infinity, topP ?? 1);
    return draw(shares, random);
  };
}

function findLargest(logits: Float32Array): number {
  let best = 0;
  for (let token = 1; token < logits.length; token++) if (logits[token] > logits[best]) best = token;
  if (!Number.isFinite(logits[best]) || logits.some(Number.isNaN))
    throw new EngineError("no token can be chosen, because the model's logits contain NaN or infinity; its parameters are damaged");
  return best;
}

/** Set the shares of all but the `topK` most probable tokens to 0, then those of all but the fewest of these that
 * together have the probability `topP` (Holtzman et al. 2020). */
function exclude(shares: Float64Array, topK: number, topP: number): void {
  const order = Array.from(shares.keys()).sort((a, b) => shares[b] - shares[a] || a - b);
  const smallest = shares[order[Math.min(topK, order.length) - 1]];
  const total = order.reduce((sum, token) => sum + (shares[token] >= smallest ? shares[token] : 0), 0);
  let before = 0; // of the more probable tokens
  for (const token of order) {
    const share = shares[token];
    if (share < smallest || before >= topP * total) shares[token] = 0;
    before += share;
  }
}

function draw(shares: Float64Array, random: Random): number {
  let rest = random.draw() * shares.reduce((sum, share) => sum + share, 0);
  let last = 0;
  for (let token = 0; token < shares.length; token++) {
    if (!shares[token]) continue;
    last = token;
    rest -= shares[token];
    if (rest < 0) break;
  }
  return last;
}
