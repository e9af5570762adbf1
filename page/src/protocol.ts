/**
 * The messages between the page and a session (src/jumok/web/session.py).
 *
 * The page asks; the session answers. An ask is one JSON object with an `id`. Whatever the carrier (WebSocket, notebook
 * widget, saved file), an answer is a JSON head plus binary buffers:
 *
 *     { "answer": id, "body": ..., "buffers": [byte lengths] }   + the buffers
 *     { "progress": id, "done": 3, "total": 12, "stage": "layers" }
 *     { "failed": id, "message": "a sentence", "reason": "busy" | "cancelled" | "outdated" | "invalid" | "internal" }
 *     { "state": { ... } }                                        pushed without an ask
 *
 * Over a WebSocket a message is binary: a 4-byte little-endian length, the head in UTF-8, then the buffers one after the
 * other. All integers in buffers are little-endian.
 */

/** Which forward pass: without edits, with the edits, or edited minus clean. */
export type Pass = "clean" | "edited";
export type Shown = Pass | "difference";
export type Sequence = "source" | "target";

/** An edit, as `Edit.to_json` writes it. */
export interface Edit {
  edit: "Ablate" | "KnockOut" | "Scale" | "Remask" | "Patch";
  layer: number | string | null;
  head?: number | number[] | null;
  query?: number | number[] | null;
  key?: number | number[] | null;
  temperature?: number;
  mask?: string | null;
  part?: string;
  by?: string;
  [field: string]: unknown;
}

/** Where the user is. Shared with `widget.selection` and with links. */
export interface Selection {
  site: number; // index into run.sites
  head: number;
  query: number | null;
  key: number | null;
}

export interface ModelEntry {
  name: string; // what a `run` ask sends back; only names of this list are accepted
  title: string;
  reads: "text" | "image" | "audio" | "numbers";
}

/** Answer to {ask: "hello", language}. Sent at once, before torch is imported. */
export interface Hello {
  version: string;
  carrier: "server" | "widget" | "file";
  /** The asks that this session can answer. A saved file cannot `run`, `effect` or `generate`. */
  can: string[];
  models: ModelEntry[];
  /** What to show first: given on the command line, or set by `jumok.show`. */
  model: string;
  text: string;
  edits: Edit[];
  selection: Selection | null;
  language: "en" | "ko" | null; // null: the browser decides
  max_text: number; // longest text in characters
  /** Where questions are answered from, and the first question; null or missing: the page shows a text. */
  questions?: { folder: string; question: string; max_question: number } | null;
}

/** Ask {ask: "question", question} -> with progress. The index and the reader are those of the command. */
export interface Answer {
  number: number; // later asks name it as `answer`
  question: string;
  verdict: "supported" | "not supported" | "nothing fits" | null; // null: the model cannot read the question
  text: string | null; // null: nothing was read
  reached_limit: boolean; // the text was cut off
  log_probability: number | null;
  citation: number | null; // index of the passage that supports the text
  threshold: number; // a word_change of at most this, in nats, supports the text
  note: string | null; // a sentence that the user must read
  passages: Passage[];
  is_cuttable: boolean; // whether there is a text to measure
  has_attention: boolean; // whether {ask: "run", answer} can show the prompt and the answer
}
export interface Passage {
  location: string; // "file:line"
  text: string;
  bm25: number | null;
  cosine: number | null;
  change: number | null; // of the answer's log-probability when the passage is cut, in nats
  word: string; // the word of the answer that changes most
  word_change: number | null; // of the log-probability of its token
  attention: number | null; // share that it receives; null before `evidence`
  missing: string[]; // if the answer depends on the passage: numbers and names of the answer that are not in it
  range: [number, number] | null; // its positions in the prompt
}

/** {ask: "evidence", answer} -> with progress: what takes longer than the answer. */
export interface Evidence {
  attention: number[]; // on each passage
  controls: Omit<Passage, "range">[]; // random passages, cut in the same way
}

/** {ask: "cut", answer, cut: [indices]} -> with progress: the answer without some passages. A newer one stops it. */
export interface CutAnswer {
  cut: number[];
  change: number; // of the first answer's log-probability, in nats
  text: string | null; // what the model writes now
  reached_limit: boolean;
  note: string | null; // why there is no text
}

/** Ask {ask: "run", model, text, edits, generate, answer?}. `answer`: the prompt of that answer is read. `text` null: the input given at the start (an image, audio, a file). */
export interface Run {
  run: number; // later asks name it; an ask for an older run fails with reason "outdated"
  model: ShownModel;
  text: string | null; // of a prompt, its question; null: the input is not text
  source: string[]; // labels of the positions
  target: string[]; // labels of the decoder's positions; empty without decoder
  image: Picture | null;
  audio: Sound | null;
  answer: string | null; // of a model that answers: translation, caption, transcript, class, numbers
  edited_answer: string | null; // the transcript of audio that the model writes under the edits; null without edits
  /** Of the prompt of an answer: the positions of its passages. */
  answered?: { number: number; passages: { location: string; range: [number, number] }[] } | null;
  generated: number; // the first generated position (of the target, if there is one); equal to the length if none
  unknown: string[]; // words outside the vocabulary
  notes: string[]; // sentences that the user must read (cut, warnings)
  sites: Site[];
  edits: Edit[];
  clean: Prediction[];
  edited: Prediction[] | null; // null without edits
  first_selection: Selection | null; // a head with a pattern, to show first; null: no suggestion
  change: number | null; // Kullback-Leibler divergence of the last prediction in nats, clean || edited
  seconds: number;
}

export interface ShownModel {
  name: string;
  family: string;
  parameters: number;
  layers: number;
  heads: number; // in all sites together
  is_editable: boolean;
  reason: string; // why it is not editable
  predicts: "next token" | "masked token" | "class" | "number" | "vector";
  has_tokenizer: boolean; // whether another text can be typed
}

export interface Site {
  name: string; // "decoder.blocks.0.cross"
  layer: number | string; // as an edit names it
  stack: number; // sites with equal numbers form one grid
  stack_title: string; // "encoder", "decoder", "decoder, cross-attention"; empty if there is only one stack
  heads: number;
  queries: number;
  keys: number;
  query_sequence: Sequence;
  key_sequence: Sequence;
  is_causal: boolean;
  has_mask: boolean;
  scale: number | null; // factor of the dot products, 1/sqrt(head width); null for other scores
  grid?: { rows: number; columns: number; prefix: number }; // of its keys, if they are patches of the image
}

/** What the model predicts at one position (one entry for a classifier). At most 5 candidates; the last prediction of a
 * run with edits lists those of both passes. */
export interface Prediction {
  position: number; // -1 for a whole input
  candidates: { label: string; id: number; probability: number }[];
  /** The token that really follows (or stands there, for a masked model), and its probability. */
  actual: { label: string; id: number; probability: number } | null;
}

export interface Picture {
  width: number;
  height: number;
  png: number; // index of the buffer with the PNG bytes
  rows: number; // patches
  columns: number;
  prefix: number; // positions before the first patch, such as the class token
}

/** The audio that the model read, at most one window. Times are seconds from its start. */
export interface Sound {
  seconds: number;
  begin: number; // where it begins in the recording
  positions: number; // of the source that it fills; silence follows up to the end of the window
  positions_per_second: number;
  bands: number; // of the spectrogram
  frames: number;
  words: SpokenWord[];
  heads: [number, number][]; // site and head of the cross-attention heads that follow the audio in time
}
export interface SpokenWord {
  text: string;
  start: number;
  end: number;
  rows: [number, number]; // the decoder's rows that write its tokens: first, and the one after the last
}

/** {ask: "audio", run} -> buffer 0: a WAV file (16 bits, 16 kHz); buffer 1: u8 [bands, frames], the lowest band first. */
export interface Audio {
  bands: number;
  frames: number;
}

/** {ask: "listening", run, show: Pass, site?, head?}: where each word is heard: the mean weights of the rows that write
 * it, in a head of a cross-attention, or (without site) in the heads that follow the audio in time.
 * Buffer 0: float32 [words, positions]. */
export interface Listening {
  words: number;
  positions: number;
}

/**
 * {ask: "thumbnails", run, show: Pass, site, size} -> one site's heads, each map pooled (largest weight of a cell).
 * Buffer 0: u8 [heads, rows, columns], 255 * sqrt(weight).
 */
export interface Thumbnails {
  heads: number;
  rows: number;
  columns: number;
  is_preview: boolean; // only some rows of each cell were read
}

/** {ask: "kinds", run} -> with progress */
export interface HeadFacts {
  site: number;
  head: number;
  kind: string; // "previous", "first", "induction", ... see words
  kind_without_first: string;
  kind_on_repeats: string; // "" if not measured
  entropy: number; // nats, mean over rows
  distance: number | null; // tokens, mean
}
export interface Kinds {
  heads: HeadFacts[];
}

/**
 * {ask: "tiles", run, show, site, head, level, row, column, preview, skip_first} -> one tile of at most 256 x 256
 * cells, which begins at cell (256 * row, 256 * column). A cell of level L pools 2^L x 2^L weights (the largest; for a difference the one
 * with the largest absolute value). Buffer 0: u8 [rows, columns]: 255 * sqrt(weight); of a difference
 * 128 + 127 * sign(d) * sqrt(|d|). `preview`: read only some rows of each cell.
 * `skip_first`: the weights of the first key count as 0.
 */
export interface Tile {
  rows: number;
  columns: number;
  is_preview: boolean;
}

/** {ask: "values", run, show, site, head, rows: [begin, end], columns: [begin, end]} (at most 4,096 cells).
 * Buffer 0: float32 [rows, columns], exact. */
export interface Values {
  rows: number;
  columns: number;
  is_exact: boolean; // false in a saved file that stores rounded weights
}

/** {ask: "line", run, show, site, head, query} or {..., key}: a complete row (or column) of a map.
 * Buffer 0: float32 [keys] (or [queries]). */
export interface Line {
  length: number;
  is_exact: boolean;
}

/** {ask: "token", run, show: Pass, sequence, position}: the token in every head, as a query and as a key. */
export interface Token {
  as_query: { site: number; head: number; entropy: number; top: [number, number][] }[]; // [key, weight], 5 at most
  as_key: { site: number; head: number; top: [number, number][]; received: number }[]; // [query, weight]; sum over rows
}

/** {ask: "steps", run, show: Pass, site, head, query, language}: the computation for one query, with numbers. */
export interface Steps {
  formula_scale: string; // "/ sqrt(64)", "x 1", ...
  width: number;
  query: number[]; // q
  keys: StepKey[]; // the keys with the largest weights, at most 64, in the order of their positions
  hidden: number; // keys that are not listed
  hidden_weight: number; // their weight in all
  log_sum_exp: number;
  output: number[]; // sum of weight x value over all keys
  difference: number; // largest |difference| to the head output that the model computed
  sentences: Record<"query" | "key" | "product" | "scale" | "bias" | "mask" | "softmax" | "value" | "sum", string>;
}
export interface StepKey {
  key: number;
  k: number[];
  product: number;
  scaled: number;
  bias: number | null; // null: the attention has no bias
  is_allowed: boolean;
  weight: number;
  v: number[];
}

/** {ask: "effect", run, over: "heads" | "edges"} -> with progress; of the clean pass. */
export interface Effects {
  over: "heads" | "edges";
  metric: string; // a sentence: "log-probability of ' sat'"
  clean: number;
  seconds: number;
  rows: EffectRow[];
}
export interface EffectRow {
  site: number;
  head: number;
  query: number | null; // of an edge
  key: number | null;
  weight: number | null; // of an edge
  effect: number;
  control_mean: number | null; // effects of random edges of similar weight
  control_low: number | null;
  control_high: number | null;
  rank: number | null;
  of: number | null;
}

/** {ask: "code", run, selection}: Python that reproduces what is shown. */
export interface Code {
  code: string;
}

/** {ask: "save", run, selection?, language?} -> buffer 0: the HTML file, with the kinds and effects that were asked for. */
export interface SavedFile {
  name: string;
}

/** {ask: "select", selection}: tell the session where the user is (widget.selection). Answer: {}. */
/** {ask: "cancel", cancel: id}. Answer: {}. The cancelled ask fails with reason "cancelled". */

export interface Progress {
  done: number;
  total: number; // 0: not known
  stage: string; // "importing", "loading", "reading", "running", "classifying", "measuring", "computing",
  // "searching", "answering", "cutting", "attending", "controls"
}

/** Pushed by the session, for example when `widget.edits` is set in Python. */
export interface State {
  edits?: Edit[];
  text?: string;
  selection?: Selection;
}
