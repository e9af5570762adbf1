/** The messages of the page, generated from src/jumok/web (messages, saved_format, asks) by `make page`.
 *
 * The page asks: one JSON object with the fields `ask`, `id` and `language`, and those of `Asks`. Whatever carries the
 * messages, an answer is a JSON head plus binary buffers, whose numbers are little-endian:
 *
 *     { "answer": id, "body": ..., "buffers": [byte lengths] }   and the buffers; or one of
 *     Failure, Progress, { "state": State }
 *
 * Over a WebSocket a message is binary: the length of the head (4 bytes, little-endian), the head, then the buffers. */

export type Pass = "clean" | "edited"; // which forward pass: without edits, or with them
export type Shown = "clean" | "edited" | "difference"; // or edited minus clean
export type Sequence = "source" | "target";
export type Language = "en" | "ko";
export type Reads = "text" | "image" | "audio" | "numbers";
export type Over = "heads" | "edges" | "cell"; // "cell": one cell of the map, in the heads that give it most weight
export type AblationMethod = "zero" | "mean" | "resample";
export type MetricName = "log-probability" | "logit-difference" | "kl" | "loss" | "class";
export type Predicts = "next token" | "masked token" | "class" | "number" | "vector";
export type StepName = "query" | "key" | "product" | "scale" | "bias" | "mask" | "softmax" | "value" | "sum";
export type StreamGap = "long input" | "maps only" | "no stream" | "no tokens" | "encoder" | "unknown norm";
export type PartName = "attention" | "cross-attention" | "mlp";
export type PatchPart = "attention" | "mlp" | "residual";
export type Reason = "busy" | "cancelled" | "outdated" | "invalid" | "internal"; // why an ask failed
export type AskId = number | string;
export type TokenName = number | string;
export type SavedMap = ExactWeights | RoundedWeights | PooledWeights | ComputedWeights;

/** An edit, as `Edit.to_json` of jumok.lens writes it; each kind has some of the fields. */
export interface Edit {
  edit: "Ablate" | "KnockOut" | "Patch" | "Scale" | "Remask";
  layer: number | string | null;
  head?: number | number[] | null;
  part?: string;
  by?: string;
  seed?: number;
  source?: string | null;
  query?: number | number[] | null;
  key?: number | number[] | null;
  batch?: number | number[] | null;
  positions?: number | number[] | null;
  source_positions?: number | number[] | null;
  temperature?: number;
  mask?: string | null;
}

/** Where the user is. Shared with `widget.selection` and with links. */
export interface Selection {
  site: number; // index into run.sites
  head: number;
  query: number | null;
  key: number | null;
}

/** A head at all positions, or an MLP or the residual stream at one position of the second input or at all. */
export interface PatchedPart {
  part: PatchPart;
  site: number;
  head: number | null;
  position: number | null;
}

/** A model that the page can choose. */
export interface ModelEntry {
  name: string; // what a `run` ask sends back; only names of this list are accepted
  title: string;
  reads: Reads;
  checkpoints: string[]; // names of a training run's checkpoints, with which the run can be compared
}

/** Where questions are answered from, and the first question. */
export interface Questions {
  folder: string;
  question: string;
  max_question: number;
}

/** What the page shows first. Sent at once, before torch is imported. */
export interface Hello {
  version: string;
  carrier: "server" | "widget" | "file" | "live"; // "live": the page computes by itself
  can: string[]; // the asks that this session can answer; a saved file cannot `run`
  models: ModelEntry[];
  model: string;
  text: string;
  edits: Edit[];
  selection: Selection | null;
  language: Language | null; // null: the browser decides
  max_text: number; // longest text in characters
  questions: Questions | null; // null: the page shows a text
}

/** A passage, and what cutting it changes. */
export interface CutPassage {
  location: string; // "file:line"
  text: string;
  bm25: number | null;
  cosine: number | null;
  change: number | null; // of the answer's log-probability when the passage is cut, in nats
  word: string; // the word of the answer that changes most
  word_change: number | null; // of the log-probability of its token
  attention: number | null; // share that it receives; null before `evidence`
  missing: string[]; // if the answer depends on the passage: words of the answer that it does not support
}

/** A passage that the model read. */
export interface Passage extends CutPassage {
  range: [number, number] | null; // its positions in the prompt
}

/** The sentence of the files that answers a question best. */
export interface Quotation {
  text: string;
  location: string; // "file:line"
  verdict: "supported" | "partly supported";
  missing: string[]; // words of the question that are not in it
}

/** An answer from the files of a folder. */
export interface Answer {
  number: number; // later asks name it as `answer`
  question: string;
  quotation: Quotation | null; // null: no sentence of the files is about the question
  verdict: "supported" | "partly supported" | "not supported" | "nothing fits" | null;
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

/** What takes longer than the answer. */
export interface Evidence {
  number: number;
  attention: number[]; // on each passage
  controls: CutPassage[]; // random passages, cut in the same way
}

/** The answer without some passages. */
export interface CutAnswer {
  number: number;
  cut: number[];
  change: number | null; // of the first answer's log-probability, in nats
  text: string | null; // what the model writes now
  reached_limit: boolean;
  note: string | null; // why there is no text
}

/** The model of a run. */
export interface ShownModel {
  name: string;
  family: string;
  parameters: number;
  layers: number;
  heads: number; // in all sites together
  is_editable: boolean;
  reason: string; // why it is not editable
  predicts: Predicts;
  has_tokenizer: boolean; // whether another text can be typed
  can_live: boolean; // whether a page can compute it by itself
}

/** Positions that are patches of an image. */
export interface Grid {
  rows: number;
  columns: number;
  prefix: number; // positions before the first patch, such as the class token
}

/** The image that the model read. */
export interface Picture extends Grid {
  width: number;
  height: number;
  png: number; // index of the buffer with the PNG bytes
}

/** A word of a transcript. Times are seconds from the start of the audio. */
export interface SpokenWord {
  text: string;
  start: number;
  end: number;
  rows: [number, number]; // the decoder's rows that write its tokens: first, and the one after the last
}

/** The audio that the model read, at most one window. */
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

/** An attention of the model. */
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
  grid: Grid | null; // of its keys, if they are patches of the image
}

/** A token or class with its probability. */
export interface Candidate {
  label: string;
  id: number;
  probability: number;
}

/** What the model predicts at one position (one entry for a classifier). */
export interface Prediction {
  position: number; // -1 for a whole input
  candidates: Candidate[]; // at most 5; the last prediction of a run with edits lists those of both passes
  actual: Candidate | null; // the token that really follows (or stands there, for a masked model)
}

/** A passage in a prompt. */
export interface PromptPassage {
  location: string;
  range: [number, number];
}

/** Of the prompt of an answer: the positions of its passages. */
export interface Answered {
  number: number;
  passages: PromptPassage[];
}

/** A model that has read an input, without and with edits. Buffer 0: the PNG of an image. */
export interface Run {
  run: number; // later asks name it; an ask for an older run fails with reason "outdated"
  model: ShownModel;
  text: string | null; // of a prompt, its question; null: the input is not text
  source: string[]; // labels of the positions
  target: string[]; // labels of the decoder's positions; empty without decoder
  image: Picture | null;
  audio: Sound | null;
  answer: string | null; // of a model that answers: translation, caption, transcript, class, numbers
  edited_answer: string | null; // the transcript or translation that the model writes under the edits
  answered: Answered | null;
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

/** Buffer 0: a WAV file (16 bits, 16 kHz); buffer 1: u8 [bands, frames], the lowest band first. */
export interface Audio {
  bands: number;
  frames: number;
}

/** Where each word is heard: the mean weights of the rows that write it. Buffer 0: float32 [words, positions]. */
export interface Listening {
  words: number;
  positions: number;
}

/** The maps of one site's heads, pooled (largest weight of a cell). Buffer 0: u8 [heads, rows, columns],
 * 255 * sqrt(weight). */
export interface Thumbnails {
  heads: number;
  rows: number;
  columns: number;
  is_preview: boolean; // only some rows of each cell were read
}

/** At most 256 x 256 cells of a map. Buffer 0: u8 [rows, columns]: 255 * sqrt(weight); of a difference
 * 128 + 127 * sign(d) * sqrt(|d|). */
export interface Tile {
  rows: number;
  columns: number;
  is_preview: boolean;
}

/** Weights of at most 4,096 cells. Buffer 0: float32 [rows, columns]. */
export interface Values {
  rows: number;
  columns: number;
  is_exact: boolean; // false in a saved file that stores rounded weights
}

/** A complete row or column of a map. Buffer 0: float32 [keys] or [queries]. */
export interface Line {
  length: number;
  is_exact: boolean;
}

/** The keys of a token in one head. */
export interface QueryRow {
  site: number;
  head: number;
  entropy: number;
  top: [number, number][]; // key and weight, 5 at most
}

/** The queries that attend to a token in one head. */
export interface KeyColumn {
  site: number;
  head: number;
  top: [number, number][]; // query and weight
  received: number; // sum over rows
}

/** A token in every head, as a query and as a key. */
export interface Token {
  as_query: QueryRow[];
  as_key: KeyColumn[];
}

/** A key in the computation for one query. */
export interface StepKey {
  key: number;
  k: (number | null)[];
  product: number | null;
  scaled: number | null;
  bias: number | null; // null: the attention has no bias
  is_allowed: boolean;
  weight: number;
  v: (number | null)[];
}

/** The computation for one query, with numbers. */
export interface Steps {
  formula_scale: string; // "/ sqrt(64)", "x 1", ...
  width: number;
  query: (number | null)[];
  keys: StepKey[]; // the keys with the largest weights, at most 64, in the order of their positions
  hidden: number; // keys that are not listed
  hidden_weight: number; // their weight in all
  log_sum_exp: number | null;
  output: (number | null)[]; // sum of weight x value over all keys
  difference: number | null; // largest |difference| to the head output that the model computed; null: not kept
  sentences: Record<StepName, string>;
}

/** A part of a block, and the residual stream of a token behind it. Lengths are Euclidean norms. */
export interface StreamStep {
  part: PartName;
  site: number | null; // of an attention
  added: number; // length of the vector that the part adds
  norm: number | null; // length of the residual stream behind the part; null: not known between the parts of a block
}

/** A block: the residual stream of a token through it, and the logit lens. */
export interface Layer {
  name: string;
  before: number; // length of the vector that enters the block
  steps: StreamStep[]; // in execution order
  after: number | null;
  candidates: Candidate[]; // the tokens that the model would predict if it ended here; empty without logit lens
}

/** A token from the embedding to the logits, and the sizes of the parts of the model; null: not known. */
export interface Layers {
  width: number | null; // of the residual stream
  heads: number; // of the first attention
  groups: number | null; // its key/value heads
  head_width: number | null;
  hidden: number | null; // inner width of the MLP
  outputs: number | null; // tokens of the vocabulary, or classes
  candidates: Candidate[]; // the logit lens of the embedding: what enters the first block
  layers: Layer[]; // empty: only the sizes are known
  gap: StreamGap | null; // why there is no residual stream, or no logit lens
}

/** The logit of one token (or class) minus that of another; or, without tokens, a number that the model predicts. */
export interface ContrastMetric {
  right: Candidate | null; // with their probabilities for the first input
  wrong: Candidate | null;
  clean: number; // of the first input
  corrupted: number; // of the second input
}

/** A token or class with its probability for both inputs. */
export interface SharedCandidate {
  label: string;
  id: number;
  clean: number;
  corrupted: number;
}

/** A second input beside that of a run, without edits. Buffer 0: float32, one number for each head in the order of
 * `run.sites`: how far its rows are from those of the second input, from 0 (equal) to 1 (the mean of half the sum of
 * absolute differences); empty for long inputs. */
export interface Contrast {
  contrast: number; // `tiles`, `values` and `line` name it; their clean pass is the first input, the edited the second
  model: string; // that reads the second input
  source: string[]; // labels of the second input
  target: string[];
  pairs: Record<Sequence, ([number | null, number | null])[]>; // aligned positions: rows and columns of the maps
  position: number | null; // of the second input, where its prediction is measured; null: of the whole input
  candidates: SharedCandidate[]; // the most probable ones of each input
  metric: ContrastMetric | null; // null: `note` says why
  change: number | null; // Kullback-Leibler divergence of these predictions in nats, first || second
  can_patch: boolean;
  note: string | null; // a sentence that the user must read
  seconds: number;
}

/** A layer whose parts were patched. */
export interface SweepLayer {
  name: string;
  site: number; // an attention of it
}

/** What patches of the first input, one at a time, change in the second one. Buffer 0: float32 [layers, columns],
 * the metric with a patch minus that without it, for each head or position of the second input; NaN: none. */
export interface Sweep {
  part: PatchPart;
  layers: SweepLayer[];
  columns: number;
  metric: ContrastMetric;
  seconds: number;
  code: string; // Python that measures it
}

/** The second input with parts of the first one. */
export interface Patched {
  value: number; // of the metric
  probabilities: number[]; // of the candidates of the contrast
  code: string;
}

/** What a head does. */
export interface HeadFacts {
  site: number;
  head: number;
  kind: string; // "previous", "first", "induction", ... see words
  kind_without_first: string;
  kind_on_repeats: string; // "" if not measured
  entropy: number; // nats, mean over rows
  distance: number | null; // tokens, mean
}

/** The kinds of all heads, of the clean pass. */
export interface Kinds {
  heads: HeadFacts[];
  sampled: number | null; // how many queries of each head were read; null: all
}

/** The effect of a head or an edge. */
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

/** What effects are measured in. A token is an id or a text; null is what the model predicts there. */
export interface MetricChoice {
  name: MetricName;
  token?: TokenName | null; // or the class
  other?: TokenName | null; // of a logit difference
  position?: number | null; // of the prediction; null: the last one, of an answer the one of its first token
}

/** The weight of a cell in one head. */
export interface CellWeight {
  site: number;
  head: number;
  weight: number;
}

/** The weight of a cell in every head that reads the same sequences, the largest first. */
export interface Cell {
  heads: CellWeight[];
}

/** How much heads or edges matter, of the clean pass. */
export interface Effects {
  over: Over;
  by: AblationMethod; // how heads were ablated
  metric: string; // a sentence: "log-probability of ' sat'"
  clean: number;
  seconds: number;
  rows: EffectRow[];
}

/** Python that reproduces what is shown. */
export interface Code {
  code: string;
}

/** Buffer 0: the HTML file, with the kinds and effects that were asked for. */
export interface SavedFile {
  name: string;
}

/** The answer to an ask that only tells the session something. */
export interface Nothing {
}

/** The head of the message that an ask failed. */
export interface Failure {
  failed: AskId | null; // null: the ask had no valid id
  message: string; // a sentence for the user
  reason: Reason;
}

/** An attention that a slow run has computed. Buffer: as that of `thumbnails`, from a part of the rows. */
export interface LayerPreview {
  name: string;
  heads: number;
  rows: number;
  columns: number;
}

/** The head of the message how far an ask is. */
export interface Progress {
  progress: AskId;
  done: number;
  total: number; // 0: not known
  stage: string; // such as "loading" or "running"; the page translates it
  layer?: LayerPreview | null;
}

/** Pushed by the session, for example when `widget.edits` is set in Python. */
export interface State {
  edits?: Edit[] | null;
  text?: string | null;
  selection?: Selection | null;
}

/** A part of the blob of a saved file. It begins at a multiple of 4 bytes, so that the page need not copy it. */
export interface Piece {
  at: number; // the first byte
  bytes: number;
}

/** Thumbnails: u8 [heads, rows, columns], 255 * sqrt(weight). */
export interface SavedThumbnails extends Piece {
  heads: number;
  rows: number;
  columns: number;
  is_preview: boolean;
}

/** Weights: float32 [queries, keys], exact. */
export interface ExactWeights extends Piece {
  form: "float32";
}

/** Rounded weights: u8 [queries, keys], 255 * sqrt(weight). */
export interface RoundedWeights extends Piece {
  form: "u8";
}

/** The largest weight of each cell: u8 [ceil(queries / 2^level), ceil(keys / 2^level)], 255 * sqrt(weight). */
export interface PooledWeights extends Piece {
  form: "u8 pooled";
  level: number;
}

/** Cells that an edit removed. */
export interface ForbiddenCells {
  queries: number[] | null; // null: all
  keys: number[] | null;
}

/** Key j is allowed for query i if i - j <= behind, j - i <= ahead, and no forbidden rectangle contains (i, j). */
export interface SavedMask {
  behind: number | null; // null: no limit
  ahead: number | null; // 0: causal
  forbidden: ForbiddenCells[];
}

/** weight(i, j) = exp(scale * dot(query[i], key[j]) - lse[i]) where the mask allows j, else 0; a row whose lse is
 * -Infinity may attend to nothing, and its weights are 0. */
export interface ComputedWeights {
  form: "qk";
  query: Piece; // float32 [queries, width]
  key: Piece; // float32 [keys, width]
  lse: Piece; // float32 [queries]
  width: number;
  scale: number;
  mask: SavedMask;
}

/** How a product of query and key becomes a score: it is multiplied by `scale`, bounded by softcap * tanh(score /
 * softcap), and multiplied by `factor`. */
export interface SavedScore {
  text: string; // "/ sqrt(64)"
  scale: number;
  softcap: number | null;
  factor: number; // 1 / temperature
  sink: number | null; // takes part in the softmax without a value
}

/** What the computation of one head reads. Its numbers have the form of `SavedAttention`. */
export interface SavedVectors {
  width: number;
  query: Piece; // [queries, width]
  key: Piece; // [keys, width]
  value: Piece; // [keys, value width]
  bias: Piece | null; // [queries, keys]
  mask: SavedMask | null; // null: `allowed` has the cells
  allowed: Piece | null; // u8 [queries, keys], 1 = the query may attend to the key
  score: SavedScore;
  difference: Piece; // float32 [queries]: largest |difference| to the head output that the model computed
}

/** The vectors of one attention, from which the page computes each step for any query. */
export interface SavedAttention {
  form: "float32" | "float16";
  sentences: Record<Language, Record<StepName, string>>;
  heads: SavedVectors[];
}

/** The audio of a saved file, and where its words are heard by the heads that follow it in time. */
export interface SavedAudio {
  wav: Piece;
  spectrogram: Piece;
  listening: Record<Pass, Piece | null>; // float32 [words, positions]
}

/** The JSON of a saved file, whose blob is the base64 of one gzip stream. Equal pieces are stored once: an edited
 * map that equals the clean one is the same piece. */
export interface SavedIndex {
  hello: Hello; // `can` lists what the file can answer, stored or computed from maps
  run: Run;
  image: Piece | null; // the PNG of `run.image`
  audio: SavedAudio | null;
  kinds: Kinds | null;
  effects: Effects[]; // at most one for heads and one for edges
  code: string; // for `hello.selection`
  thumbnails: Record<Pass, SavedThumbnails[] | null>; // by site; null: the run has no edits
  maps: Record<Pass, (SavedMap | null)[][] | null>; // by site and head; a map that is not stored is null
  vectors: Record<Pass, (SavedAttention | null)[] | null>; // by site; null: not stored
  layers: Record<Pass, Record<Sequence, Piece> | null>; // JSON: `Layers` of each position; a long sequence is left out
  format: number;
}

/** The first ask. */
export interface HelloAsk {
}

/** Tell the session where the user is. */
export interface SelectAsk {
  selection: Selection;
}

/** Cancel an ask, which fails with reason "cancelled". */
export interface CancelAsk {
  cancel: AskId;
}

/** Run a model on a text with edits, and generate tokens behind it. */
export interface RunAsk {
  model: string;
  text?: string | null; // null: the input given at the start
  edits?: Edit[] | null;
  generate?: number;
  answer?: number | null; // the prompt of that answer is read
}

/** Answer a question from the files of the folder. */
export interface QuestionAsk {
  question: string;
}

/** Measure the attention on each passage of an answer, and control passages. */
export interface EvidenceAsk {
  answer: number;
}

/** Answer again without some passages. A newer ask stops it. */
export interface CutAsk {
  answer: number;
  cut: number[];
}

/** An ask about a run. */
export interface RunPartAsk {
  run: number;
}

/** The pooled maps of one site's heads. */
export interface ThumbnailsAsk extends RunPartAsk {
  show: Pass;
  site: number;
  size: number;
}

/** An ask about one head. */
export interface HeadAsk extends RunPartAsk {
  show: Shown;
  site: number;
  head: number;
  contrast?: number | null; // of that contrast: "clean" is the first input, "edited" the second one
}

/** One tile, which begins at cell (256 * row, 256 * column). A cell of level L pools 2^L x 2^L weights (the largest;
 * for a difference the one with the largest absolute value). */
export interface TilesAsk extends HeadAsk {
  level: number;
  row: number;
  column: number;
  preview?: boolean; // read only some rows of each cell
  skip_first?: boolean; // the weights of the first key count as 0
}

/** Exact weights of a rectangle. */
export interface ValuesAsk extends HeadAsk {
  rows: [number, number]; // begin and end
  columns: [number, number];
}

/** The row of a query, or the column of a key. */
export interface LineAsk extends HeadAsk {
  query?: number | null;
  key?: number | null;
}

/** A token in every head. */
export interface TokenAsk extends RunPartAsk {
  show: Pass;
  sequence: Sequence;
  position: number;
}

/** The computation for one query. */
export interface StepsAsk extends RunPartAsk {
  show: Pass;
  site: number;
  head: number;
  query: number;
}

/** The residual stream of a token through all blocks, with the logit lens. */
export interface LayersAsk extends RunPartAsk {
  show: Pass;
  sequence: Sequence;
  position: number;
}

/** The audio that the model read. */
export interface AudioAsk extends RunPartAsk {
}

/** Where each word is heard in a head, or (without a site) in the heads that follow the audio in time. */
export interface ListeningAsk extends RunPartAsk {
  show: Pass;
  site?: number | null;
  head?: number | null;
}

/** Python code. */
export interface CodeAsk extends RunPartAsk {
  selection?: Selection | null;
}

/** Classify all heads. */
export interface KindsAsk extends RunPartAsk {
}

/** The weight of one cell in all heads that read the same sequences as this attention. */
export interface CellAsk extends RunPartAsk {
  show: Pass;
  site: number;
  query: number;
  key: number;
}

/** Measure the effect of all heads, of the strongest edges, or of one cell. */
export interface EffectAsk extends RunPartAsk {
  over: Over;
  by?: AblationMethod; // how heads are ablated
  metric?: MetricChoice | null; // null: the log-probability of the model's own answer
  site?: number | null; // of a cell, with its query and its key
  query?: number | null;
  key?: number | null;
}

/** An ask about the input of a run and a second one, or about two models. */
export interface TwoInputsAsk extends RunPartAsk {
  text?: string | null; // null: the same input
  model?: string | null; // null: the same model
  right?: number | string | null; // token of the metric; null: chosen
  wrong?: number | string | null;
}

/** Compare the input of a run with a second one, or its model with a second one. */
export interface ContrastAsk extends TwoInputsAsk {
}

/** Patch every part of the first input into the second one, one at a time. */
export interface SweepAsk extends TwoInputsAsk {
  part: PatchPart;
}

/** Patch several parts of the first input into the second one together. */
export interface PatchAsk extends TwoInputsAsk {
  patches: PatchedPart[];
}

/** Write what is shown as one HTML file. */
export interface SaveAsk extends RunPartAsk {
  selection?: Selection | null;
  live?: boolean; // with the model, so that the file computes by itself
}

/** The fields of each ask besides `ask`, `id` and `language`, and the body of its answer. */
export interface Asks {
  hello: { fields: HelloAsk; body: Hello };
  select: { fields: SelectAsk; body: Nothing };
  cancel: { fields: CancelAsk; body: Nothing };
  run: { fields: RunAsk; body: Run };
  question: { fields: QuestionAsk; body: Answer };
  evidence: { fields: EvidenceAsk; body: Evidence };
  cut: { fields: CutAsk; body: CutAnswer };
  thumbnails: { fields: ThumbnailsAsk; body: Thumbnails };
  tiles: { fields: TilesAsk; body: Tile };
  values: { fields: ValuesAsk; body: Values };
  line: { fields: LineAsk; body: Line };
  token: { fields: TokenAsk; body: Token };
  steps: { fields: StepsAsk; body: Steps };
  layers: { fields: LayersAsk; body: Layers };
  audio: { fields: AudioAsk; body: Audio };
  listening: { fields: ListeningAsk; body: Listening };
  code: { fields: CodeAsk; body: Code };
  kinds: { fields: KindsAsk; body: Kinds };
  cell: { fields: CellAsk; body: Cell };
  effect: { fields: EffectAsk; body: Effects };
  contrast: { fields: ContrastAsk; body: Contrast };
  sweep: { fields: SweepAsk; body: Sweep };
  patch: { fields: PatchAsk; body: Patched };
  save: { fields: SaveAsk; body: SavedFile };
}
