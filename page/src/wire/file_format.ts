/**
 * The data in a saved HTML file; src/jumok/web/saved_file.py writes it.
 *
 *     <div id="jumok" data-carrier="file"></div>
 *     <script type="application/json" id="jumok-index">...</script>           a SavedIndex
 *     <script type="application/octet-stream" id="jumok-blob">...</script>    base64 of one gzip stream
 *
 * All binary data is in the decompressed blob. Every piece begins at a multiple of 4 bytes, so that a typed array can view
 * it without a copy. Equal pieces are stored once: an edited map that equals the clean one is the same piece.
 */

import type { Code, Effects, Hello, Kinds, Pass, Run, Steps } from "../protocol";

/** A part of the decompressed blob. */
export interface Piece {
  at: number; // the first byte
  bytes: number;
}

export interface SavedIndex {
  format: 1;
  /** `can` lists what the file can answer, computed from maps or stored: "token" only if all maps are complete. */
  hello: Hello;
  run: Run;
  /** The PNG of `run.image`; null without one. */
  image: Piece | null;
  /** The WAV file and the spectrogram of `run.audio`, and where its words are heard by the heads that follow it in time,
   * float32 [words, positions]; null without audio. */
  audio: { wav: Piece; spectrogram: Piece; listening: Record<Pass, Piece | null> } | null;
  kinds: Kinds | null;
  /** At most one for heads and one for edges. */
  effects: Effects[];
  /** For `hello.selection`. */
  code: Code["code"];
  thumbnails: Record<Pass, SavedThumbnails[] | null>; // by site; null: the run has no edits
  maps: Record<Pass, (SavedMap | null)[][] | null>; // by site and head; a map that is not stored is null
  steps: Record<Pass, SavedSteps[] | null>; // by site; null: not stored
}

/** u8 [heads, rows, columns], 255 * sqrt(weight). */
export interface SavedThumbnails extends Piece {
  heads: number;
  rows: number;
  columns: number;
  is_preview: boolean;
}

export type SavedMap = ExactMap | RoundedMap | ComputedMap | PooledMap;

/** float32 [queries, keys], exact. */
export interface ExactMap extends Piece {
  form: "float32";
}

/** u8 [queries, keys], 255 * sqrt(weight), rounded. */
export interface RoundedMap extends Piece {
  form: "u8";
}

/**
 * weight(i, j) = exp(scale * dot(query[i], key[j]) - lse[i]) where the mask allows j, else 0; a row whose lse is -Infinity
 * may attend to nothing, and its weights are 0.
 */
export interface ComputedMap {
  form: "qk";
  query: Piece; // float32 [queries, width]
  key: Piece; // float32 [keys, width]
  lse: Piece; // float32 [queries]
  width: number;
  scale: number;
  mask: SavedMask;
}

/** Key j is allowed for query i if i - j <= behind, j - i <= ahead, and no forbidden rectangle contains (i, j). */
export interface SavedMask {
  behind: number | null; // null: no limit
  ahead: number | null; // 0: causal
  forbidden: { queries: number[] | null; keys: number[] | null }[]; // null: all; cells that an edit removed
}

/** u8 [ceil(queries / 2^level), ceil(keys / 2^level)]: the largest weight of each cell, 255 * sqrt(weight). */
export interface PooledMap extends Piece {
  form: "u8 pooled";
  level: number;
}

/** The computations of all queries of one attention. */
export interface SavedSteps {
  sentences: Record<"en" | "ko", Steps["sentences"]>;
  /** By head: UTF-8 JSON, an array of `Omit<Steps, "sentences">` by query. */
  heads: Piece[];
}
