/** Reads a safetensors file: the length of its header (8 bytes), the header in JSON, then the numbers. A matrix of 8-bit
 * integers has a scale for each row, which is the tensor NAME.scales (web/model_pack.py). */

import { readFloats } from "../wire/floats";
import { EngineError } from "./errors";

export interface Tensor {
  shape: number[];
  numbers: Float32Array;
}

export function readSafetensors(file: Uint8Array): Map<string, Tensor> {
  const damaged = () => new EngineError("this model's file of parameters is damaged; save the model again");
  if (file.byteLength < 8) throw damaged();
  const begin = 8 + Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  if (begin > file.byteLength) throw damaged();
  let header: Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }>;
  try {
    header = JSON.parse(new TextDecoder().decode(file.subarray(8, begin)));
  } catch {
    throw damaged();
  }
  const tensors = new Map<string, Tensor>();
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [from, to] = data_offsets.map((offset) => begin + offset);
    // a copy: the numbers may begin at any byte, but an array of floats cannot
    const numbers = convertNumbers(file.slice(from, to), dtype);
    if (numbers.length !== shape.reduce((size, axis) => size * axis, 1)) throw damaged();
    tensors.set(name, { shape, numbers });
  }
  for (const [name, { shape, numbers }] of tensors) {
    const scales = tensors.get(`${name}.scales`);
    if (!scales) continue;
    for (let index = 0; index < numbers.length; index++) numbers[index] *= scales.numbers[Math.floor(index / shape[1])];
    tensors.delete(`${name}.scales`);
  }
  return tensors;
}

function convertNumbers(bytes: Uint8Array, dtype: string): Float32Array {
  if (dtype === "F32") return readFloats(bytes, "float32");
  if (dtype === "F16") return readFloats(bytes, "float16");
  if (dtype === "I8") return Float32Array.from(new Int8Array(bytes.buffer));
  if (dtype === "BF16") {
    const bits = Uint32Array.from(new Uint16Array(bytes.buffer), (half) => half << 16);
    return new Float32Array(bits.buffer);
  }
  throw new EngineError(`this page cannot read parameters of type ${dtype}; save the model in float32, float16 or bfloat16`);
}
