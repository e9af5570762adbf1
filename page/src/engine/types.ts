/** What goes into the engine and what comes out: models, inputs, passes and generated tokens.
 *
 * The engine computes the forward pass of Jumok's small models in plain TypeScript. It reads the files that `jumok.save`
 * writes, applies the edits of jumok.lens, and keeps what the page shows. It knows nothing of the page, the network or
 * the DOM, so that it runs in a page, in a worker or in a test. Arrays of several axes are flat and row-major. */

import type { Edit, Sequence } from "../protocol";
import type { StoredMap } from "../wire/file_maps";
import type { Mask } from "./mask";
import type { Tokenizer } from "./tokenizer";

/** config.json of the families that the engine computes; the fields are those of GPTConfig and TransformerConfig. */
export type ModelConfig = GPTConfig | TransformerConfig;

interface SharedConfig {
  vocabulary: number;
  length: number; // the longest text, in tokens
  width: number;
  layers: number;
  heads: number;
  hidden: number; // inner width of the feed-forward network
  positions: "none" | "sinusoidal" | "learned" | "rotary" | "alibi" | "t5";
  epsilon: number;
  activation: "relu" | "gelu" | "gelu_tanh" | "silu";
  tied: boolean; // the embedding is also the output layer
}

export interface GPTConfig extends SharedConfig {
  family: "gpt";
  groups: number | null;
  head_width: number | null;
  rotary_base: number;
  rotary_window_base: number | null; // in the layers with the window; null: the same
  rotary_scaling: "none" | "linear" | "llama3" | "yarn" | "dynamic";
  rotary_factor: number;
  rotary_length: number | null;
  rotary_slow: number;
  rotary_fast: number;
  rotary_gain: number;
  buckets: number;
  max_distance: number;
  norm: "layer" | "rms";
  scaled_embedding: boolean; // multiplied by sqrt(width)
  feedforward: "plain" | "gated";
  window: number | null;
  windowed: number[] | null; // the layers with the window; null: all
  fixed_length: boolean; // every text has exactly `length` tokens
}

export interface TransformerConfig extends SharedConfig {
  family: "transformer";
  target_vocabulary: number | null;
  decoder_layers: number | null;
  layout: "interleaved" | "halves"; // of the sinusoids
  order: "post" | "pre";
  scaled_embedding: boolean;
  start: number; // the token that a target begins with
  end: number;
}

/** The files of a model's folder. */
export interface ModelFiles {
  config: Record<string, unknown>; // config.json
  tokenizer: Record<string, any> | null; // tokenizer.json
  specials?: Record<string, unknown>; // tokenizer_config.json or special_tokens_map.json
  ends?: number[]; // further tokens that end a text: eos_token_id of generation_config.json
  weights: Uint8Array; // model.safetensors: float16, bfloat16 or float32
}

/** An attention of a model. */
export interface SiteInfo {
  name: string; // as the lens of Python names it: "blocks.0.attention", "decoder.1.cross"
  layer: number | string; // as an edit names it: a number in a single stack, else the name
  block: string; // "blocks.0", "decoder.1"
  stack: number; // sites with equal numbers form one grid
  stackTitle: string; // "encoder", "decoder", "decoder, cross-attention"; empty if there is only one stack
  heads: number;
  groups: number; // key/value heads
  headWidth: number;
  querySequence: Sequence;
  keySequence: Sequence;
  isCausal: boolean;
  hasMask: boolean;
  hasBias: boolean; // a bias on the scores (alibi, t5)
  scale: number; // factor of the dot products
}

/** A model that `openModel` has read; the parameters are in model.ts. */
export interface ModelFacts {
  config: ModelConfig;
  tokenizer: Tokenizer | null;
  sites: SiteInfo[]; // in execution order
  parameterCount: number;
  vocabulary: number; // of the logits
  isEncoderDecoder: boolean;
  contextLength: number; // longest source, and longest target
  startToken: number | null; // that a decoder's input begins with
  ends: Set<number>; // tokens that end a text
}

/** Token ids. An encoder-decoder reads a source and a target, which begins with `startToken`. */
export interface PassInput {
  source: number[];
  target?: number[];
}

export interface PassOptions {
  edits?: readonly Edit[];
  /** Passes that `Patch` and `Ablate` name as their source. */
  sources?: Readonly<Record<string, EnginePass>>;
  /** Compute logits for only this many last positions; default: all. */
  logits?: number;
  /** The pass without edits of the same input: what comes before the first edited block is not computed again. */
  reuse?: EnginePass;
}

/** What one attention computed; queries and keys are counted from 0. */
export interface SitePass {
  info: SiteInfo;
  queries: number;
  keys: number;
  query: Float32Array; // [head, query, headWidth], rotated
  key: Float32Array; // [group, key, headWidth], rotated
  value: Float32Array; // [group, key, headWidth]
  output: Float32Array; // [head, query, headWidth], before the output projection
  logSumExp: Float32Array; // [head, query]; -Infinity for a row that may attend to nothing
  blockOutput: Float32Array; // [query, width], after the output projection
  mask: Mask | null; // null allows everything
  temperatures: number[]; // by head; 1 without an edit
  temperatureEdits: number[][]; // by head: the temperatures of the edits that divide its scores
  /** The bias of a score; 0 without one. */
  biasAt(head: number, query: number, key: number): number;
  /** Whether a query may attend to a key. */
  allows(head: number, query: number, key: number): boolean;
  /** The weights of a head, exactly (float64 from the queries and keys). */
  open(head: number): StoredMap;
}

/** The vectors of one block; `target` vectors in a decoder. */
export interface BlockPass {
  name: string; // "blocks.0", "encoder.1"
  positions: number;
  input: Float32Array; // [position, width]: the residual stream that enters
  feedforwardOutput: Float32Array; // [position, width]: what the MLP adds
  output: Float32Array; // [position, width]: the residual stream that leaves
}

/** One forward pass. */
export interface EnginePass {
  input: PassInput;
  edits: readonly Edit[];
  sites: SitePass[]; // in the order of `model.sites`
  blocks: BlockPass[]; // in execution order; encoder blocks first
  logits: Float32Array; // [predicted position, vocabulary]
  predicted: number; // of how many last positions there are logits
}

/** How the next token is chosen, as Python's Sampling; without settings the most probable one. */
export interface Sampling {
  temperature?: number; // 0: the most probable token
  topK?: number | null;
  topP?: number | null;
  seed?: number; // the same seed gives the same text again, but not the text that Python draws
}

export interface GenerationOptions {
  edits?: readonly Edit[];
  sources?: Readonly<Record<string, EnginePass>>;
  limit: number; // largest number of new tokens
  sampling?: Sampling;
}

/** A token that the model wrote. */
export interface GeneratedToken {
  token: number;
  isEnd: boolean; // it ends the text
  logits: Float32Array; // from which it was chosen; valid until the next step
}
