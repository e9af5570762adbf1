/** A model in one gzip stream, as web/model_pack.py writes it: the length of its head (4 bytes, little-endian), the head in
 * JSON, then a safetensors file. */

import type { ModelFiles, Sentences } from "../engine";
import type { Language } from "../protocol";
import { decompress } from "./gzip";

export interface ModelPack {
  files: ModelFiles;
  sentences: Sentences; // for the kinds of heads
  texts: Record<Language, Record<string, string>>; // of the steps of the computation
  messages: Record<string, string>; // the Korean of messages by their English templates
}

export async function unpackModel(packed: Uint8Array): Promise<ModelPack> {
  const content = await decompress(packed);
  const begin = 4 + new DataView(content.buffer).getUint32(0, true);
  const { sentences, texts, messages, ...files } = JSON.parse(new TextDecoder().decode(content.subarray(4, begin)));
  return { files: { ...files, weights: content.subarray(begin) }, sentences, texts, messages };
}
