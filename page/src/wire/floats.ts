/** Numbers of a saved file. */

import { asFloats } from "./client";

/** View bytes as float32, or convert float16. */
export function readFloats(bytes: Uint8Array, form: "float32" | "float16"): Float32Array {
  if (form === "float32") return asFloats(bytes);
  const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
  return Float32Array.from(halves, readHalf);
}

function readHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
