/** Opens a model: its parameters, and what the page needs to know of it. */

import { EngineError } from "./errors";
import type { FeedForward, Linear, Norm } from "./layers";
import { buildAlibi, buildDistanceBuckets, buildSinusoids, Rotation, type ScoreBias } from "./positions";
import { readSafetensors, type Tensor } from "./safetensors";
import { Tokenizer } from "./tokenizer";
import type { GPTConfig, ModelConfig, ModelFacts, ModelFiles, SiteInfo, TransformerConfig } from "./types";

/** An attention of a block. */
export interface AttentionLayer {
  site: number; // index into `sites`
  norm: Norm;
  query: Linear;
  keyValue: Linear; // the keys of all groups, then their values
  queryNorm: Norm | null; // of each head's queries (Qwen3)
  keyNorm: Norm | null;
  rotation: Rotation | null;
  output: Linear;
  outputNorm: Norm | null; // of what is added to the residual stream (Gemma 3)
}

export interface Block {
  name: string;
  attentions: AttentionLayer[]; // self-attention, and in a decoder cross-attention
  feedforward: FeedForward;
  feedforwardNorm: Norm;
  feedforwardOutputNorm: Norm | null;
}

/** The blocks that read one sequence, with what is before and after them. */
export interface Stack {
  blocks: Block[];
  embedding: Float32Array; // [token, width]
  tokens: number; // in the vocabulary
  addedPositions: Float32Array | null; // [position, width]
  norm: Norm | null;
}

export interface EngineModel extends ModelFacts {
  encoder: Stack | null;
  main: Stack; // from whose last vectors the logits are computed
  output: Linear;
  embeddingScale: number;
  isPostNorm: boolean;
  bias: ScoreBias | null; // on the scores of self-attentions
}

// fields that earlier versions did not write
const SHARED_DEFAULTS = { epsilon: 1e-5, positions: "learned", activation: "gelu_tanh", tied: true };
const NO_SCALING = { rotary_scaling: "none", rotary_factor: 1, rotary_length: null, rotary_slow: 1, rotary_fast: 32, rotary_gain: 1 };
const GPT_DEFAULTS = { ...SHARED_DEFAULTS, ...NO_SCALING, groups: null, head_width: null, rotary_base: 10_000, rotary_window_base: null, buckets: 32, max_distance: 128, norm: "layer", scaled_embedding: false, feedforward: "plain", window: null, windowed: null, fixed_length: false };
const TRANSFORMER_DEFAULTS = { ...SHARED_DEFAULTS, positions: "sinusoidal", activation: "relu", target_vocabulary: null, decoder_layers: null, layout: "interleaved", order: "post", scaled_embedding: true, start: 1, end: 2 };

export function openModel({ config: fields, tokenizer: document, specials, ends, weights }: ModelFiles): EngineModel {
  const config = readConfig(fields);
  const parameters = new Parameters(readSafetensors(weights), config);
  const tokenizer = document && new Tokenizer(document, specials);
  const allEnds = new Set([...(ends ?? []), ...(tokenizer?.end == null ? [] : [tokenizer.end])]);
  const shared = { config, tokenizer, ends: allEnds, parameterCount: parameters.count, contextLength: config.length };
  return config.family === "gpt" ? { ...shared, ...buildGPT(config, parameters) } : { ...shared, ...buildTransformer(config, parameters, allEnds) };
}

function readConfig(fields: Record<string, unknown>): ModelConfig {
  const { family } = fields;
  if (family !== "gpt" && family !== "transformer")
    throw new EngineError(`this page cannot compute models of the family ${family}; open the model with jumok look`);
  const config = { ...(family === "gpt" ? GPT_DEFAULTS : TRANSFORMER_DEFAULTS), ...fields };
  return config as unknown as ModelConfig;
}

type Parts = Omit<EngineModel, "config" | "tokenizer" | "ends" | "parameterCount" | "contextLength">;

function buildGPT(config: GPTConfig, parameters: Parameters): Parts {
  const { width, heads, positions, vocabulary, layers } = config;
  const isBiased = positions === "alibi" || positions === "t5";
  const sites = Array.from({ length: layers }, (_, layer) =>
    describeSite(config, { name: `blocks.${layer}.attention`, layer, isCausal: true, hasMask: true, hasBias: isBiased }),
  );
  const embedding = parameters.read("embedding.weight", vocabulary, width);
  let bias: ScoreBias | null = null;
  if (positions === "alibi") bias = buildAlibi(heads);
  if (positions === "t5") bias = buildDistanceBuckets(parameters.read("position_bias.weight", config.buckets, heads), heads, config.max_distance);
  return {
    sites,
    vocabulary,
    isEncoderDecoder: false,
    startToken: null,
    encoder: null,
    main: {
      blocks: Array.from({ length: layers }, (_, layer) => parameters.readBlock(`blocks.${layer}`, sites)),
      embedding,
      tokens: vocabulary,
      addedPositions: readPositions(config, parameters, "positions"),
      norm: parameters.readNorm("norm"),
    },
    output: parameters.readOutput(embedding, vocabulary),
    embeddingScale: positions === "sinusoidal" || config.scaled_embedding ? Math.sqrt(width) : 1,
    isPostNorm: false,
    bias,
  };
}

function buildTransformer(config: TransformerConfig, parameters: Parameters, ends: Set<number>): Parts {
  const { width, vocabulary, layers } = config;
  const targetVocabulary = config.target_vocabulary ?? vocabulary;
  const decoderLayers = config.decoder_layers ?? layers;
  const sites: SiteInfo[] = [];
  for (let layer = 0; layer < layers; layer++) sites.push(describeSite(config, { name: `encoder.${layer}.attention`, stackTitle: "encoder" }));
  for (let layer = 0; layer < decoderLayers; layer++) {
    const self = { name: `decoder.${layer}.attention`, stack: 1, stackTitle: "decoder", isCausal: true, hasMask: true };
    sites.push(describeSite(config, { ...self, querySequence: "target", keySequence: "target" }));
    const cross = { name: `decoder.${layer}.cross`, stack: 2, stackTitle: "decoder, cross-attention" };
    sites.push(describeSite(config, { ...cross, querySequence: "target" }));
  }
  const readStack = (name: string, count: number, embedding: Float32Array, tokens: number): Stack => ({
    blocks: Array.from({ length: count }, (_, layer) => parameters.readBlock(`${name}.${layer}`, sites)),
    embedding,
    tokens,
    addedPositions: readPositions(config, parameters, name === "encoder" ? "source_positions" : "target_positions"),
    norm: parameters.readNormIfAny(`${name}_norm`),
  });
  const embedding = parameters.read("embedding.weight", vocabulary, width);
  const targetEmbedding = parameters.has("target_embedding.weight") ? parameters.read("target_embedding.weight", targetVocabulary, width) : embedding;
  ends.add(config.end);
  return {
    sites,
    vocabulary: targetVocabulary,
    isEncoderDecoder: true,
    startToken: config.start,
    encoder: readStack("encoder", layers, embedding, vocabulary),
    main: readStack("decoder", decoderLayers, targetEmbedding, targetVocabulary),
    output: parameters.readOutput(targetEmbedding, targetVocabulary),
    embeddingScale: config.scaled_embedding ? Math.sqrt(width) : 1,
    isPostNorm: config.order === "post",
    bias: null,
  };
}

function describeSite(config: ModelConfig, facts: Partial<SiteInfo> & { name: string }): SiteInfo {
  const { heads, width } = config;
  const [groups, headWidth] = config.family === "gpt" ? [config.groups, config.head_width] : [null, null];
  return {
    layer: facts.name,
    block: facts.name.slice(0, facts.name.lastIndexOf(".")),
    stack: 0,
    stackTitle: "",
    heads,
    groups: groups ?? heads,
    headWidth: headWidth ?? width / heads,
    querySequence: "source",
    keySequence: "source",
    isCausal: false,
    hasMask: false,
    hasBias: false,
    scale: 1 / Math.sqrt(headWidth ?? width / heads),
    ...facts,
  };
}

/** Whether the attention of a layer has the window of the config. */
export function hasWindow(config: GPTConfig, layer: number): boolean {
  return config.window !== null && (config.windowed === null || config.windowed.includes(layer));
}

function createRotation(config: ModelConfig, { layer, headWidth, querySequence, keySequence }: SiteInfo): Rotation | null {
  if (config.positions !== "rotary" || querySequence !== keySequence) return null;
  if (config.family === "transformer") return new Rotation(headWidth);
  const { rotary_base, rotary_window_base, rotary_scaling, rotary_factor, rotary_length, rotary_slow, rotary_fast, rotary_gain } = config;
  if (rotary_window_base !== null && hasWindow(config, layer as number)) return new Rotation(headWidth, rotary_window_base);
  return new Rotation(headWidth, rotary_base, {
    kind: rotary_scaling,
    factor: rotary_factor,
    length: rotary_length ?? config.length,
    slow: rotary_slow,
    fast: rotary_fast,
    gain: rotary_gain,
  });
}

function readPositions(config: ModelConfig, parameters: Parameters, name: string): Float32Array | null {
  const { positions, length, width } = config;
  if (positions === "learned") return parameters.read(`${name}.table.weight`, length, width);
  const layout = config.family === "transformer" ? config.layout : "interleaved";
  return positions === "sinusoidal" ? buildSinusoids(length, width, layout) : null;
}

/** The tensors of a model's file, by name; their shapes must be those of the config. */
class Parameters {
  readonly count: number;

  constructor(
    private readonly tensors: Map<string, Tensor>,
    private readonly config: ModelConfig,
  ) {
    this.count = Array.from(tensors.values()).reduce((sum, { numbers }) => sum + numbers.length, 0);
  }

  has(name: string): boolean {
    return this.tensors.has(name);
  }

  read(name: string, ...shape: number[]): Float32Array {
    const tensor = this.tensors.get(name);
    if (!tensor) throw new EngineError(`this model's file has no parameters ${name}; save the model again`);
    if (String(tensor.shape) !== String(shape))
      throw new EngineError(`the parameters ${name} are [${tensor.shape}], but config.json needs [${shape}]; save the model again`);
    return tensor.numbers;
  }

  readNormIfAny(name: string, width = this.config.width): Norm | null {
    return this.has(`${name}.weight`) ? this.readNorm(name, width) : null;
  }

  readNorm(name: string, width = this.config.width): Norm {
    const { epsilon } = this.config;
    const isRms = this.config.family === "gpt" && this.config.norm === "rms";
    return { weight: this.read(`${name}.weight`, width), bias: isRms ? null : this.read(`${name}.bias`, width), epsilon, isRms };
  }

  readOutput(embedding: Float32Array, outputs: number): Linear {
    const { width, tied } = this.config;
    const bias = this.has("output_bias") ? this.read("output_bias", outputs) : null;
    return { weight: tied ? embedding : this.read("output.weight", outputs, width), bias, inputs: width, outputs };
  }

  readBlock(name: string, sites: SiteInfo[]): Block {
    const { width, hidden, activation } = this.config;
    const isGated = this.config.family === "gpt" && this.config.feedforward === "gated";
    const attentions = sites.flatMap((info, site) => (info.block === name ? [this.readAttention(info, site)] : []));
    const inner = this.readLinear(`${name}.feedforward.inner`, width, isGated ? 2 * hidden : hidden);
    const outer = this.readLinear(`${name}.feedforward.outer`, hidden, width);
    return {
      name,
      attentions,
      feedforward: { inner, outer, activation, isGated },
      feedforwardNorm: this.readNorm(`${name}.feedforward_norm`),
      feedforwardOutputNorm: this.readNormIfAny(`${name}.feedforward_output_norm`),
    };
  }

  private readAttention(info: SiteInfo, site: number): AttentionLayer {
    const { width } = this.config;
    const { name, heads, groups, headWidth } = info;
    const queries = heads * headWidth;
    const joined = this.readLinear(`${name}.projection.joined`, width, queries + 2 * groups * headWidth);
    const cut = (from: number, to: number): Linear => ({
      weight: joined.weight.subarray(from * width, to * width),
      bias: joined.bias && joined.bias.subarray(from, to),
      inputs: width,
      outputs: to - from,
    });
    return {
      site,
      norm: this.readNorm(`${name}_norm`),
      query: cut(0, queries),
      keyValue: cut(queries, joined.outputs),
      queryNorm: this.readNormIfAny(`${name}.query_norm`, headWidth),
      keyNorm: this.readNormIfAny(`${name}.key_norm`, headWidth),
      rotation: createRotation(this.config, info),
      outputNorm: this.readNormIfAny(`${name}.output_norm`),
      output: this.readLinear(`${name}.output`, queries, width),
    };
  }

  private readLinear(name: string, inputs: number, outputs: number): Linear {
    const bias = this.has(`${name}.bias`) ? this.read(`${name}.bias`, outputs) : null;
    return { weight: this.read(`${name}.weight`, outputs, inputs), bias, inputs, outputs };
  }
}
