/** Numbers of a saved file. */

import { asFloats } from "./client";

/** View bytes as float32, or convert float16. */
export function readFloats(bytes: Uint8Array, form: "float32" | "float16"): Float32Array {
  if (form === "float32") return asFloats(bytes);
  const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
  const floats = new Float32Array(halves.length);
  for (let index = 0; index < halves.length; index++) floats[index] = readHalf(halves[index]); // from() is 50 times slower
  return floats;
}

// by exponent, what the last bit of the fraction stands for
const UNITS = Float64Array.from({ length: 31 }, (_, exponent) => 2 ** (Math.max(1, exponent) - 25));

function readHalf(bits: number): number {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  let size = (exponent ? 1024 + fraction : fraction) * UNITS[exponent];
  if (exponent === 31) size = fraction ? NaN : Infinity;
  return bits & 0x8000 ? -size : size;
}
