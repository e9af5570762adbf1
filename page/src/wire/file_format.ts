/** The index of a saved file (src/jumok/web/saved_file.py writes it). Every binary piece lies in one gzip blob. */

import type { Effects, Hello, Kinds, Pass, Run, Steps } from "../protocol";

/** Where a piece lies in the decompressed blob. */
export interface Piece {
  at: number;
  bytes: number;
}

export type SavedMap =
  | (Piece & { form: "float32" }) // exact weights [query, key]
  | (Piece & { form: "u8" }) // 255 * sqrt(weight), rounded [query, key]
  | (Piece & { form: "u8 pooled"; level: number }) // cells of 2^level x 2^level weights
  | {
      form: "qk"; // the weight is exp(scale * q.k - lse) where the mask allows it
      number: "float16" | "float32";
      query: Piece; // [query, width]
      key: Piece; // [key, width]
      lse: Piece; // float32 [query]
      width: number;
      scale: number;
      mask: { kind: "none" } | { kind: "causal" } | { kind: "window"; window: number; causal: boolean };
    };

export interface SavedThumbnails extends Piece {
  heads: number;
  rows: number;
  columns: number;
}

export interface SavedIndex {
  hello: Hello;
  run: Run;
  pictures: Piece[]; // the buffers of `run`
  kinds: Kinds | null;
  effects: Effects[];
  code: string;
  thumbnails: Partial<Record<Pass, SavedThumbnails[]>>; // by site
  maps: Partial<Record<Pass, (SavedMap | null)[][]>>; // by site and head; null: not stored
  steps: Record<string, Steps>; // by "pass/site/head/query/language"
}
