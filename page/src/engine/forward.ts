/** The forward pass of a model, with edits: everything at once, or while a text is generated token by token. */

import { AttentionCall, joinHeads, KeyValueCache, splitHeads } from "./attention";
import { EditPlan } from "./edits";
import { EngineError } from "./errors";
import { add, applyFeedForward, applyLinear, applyNorm, type Norm } from "./layers";
import { and, causal, window, type Mask } from "./mask";
import { type AttentionLayer, type Block, type EngineModel, hasWindow, type Stack } from "./model";
import type { BlockPass, EnginePass, PassInput, PassOptions, SiteInfo } from "./types";

export function forward(model: EngineModel, input: PassInput, { edits = [], sources, logits: count, reuse }: PassOptions = {}): EnginePass {
  const plan = new EditPlan(model, edits, sources);
  const { source, target } = input;
  const main = model.isEncoderDecoder ? (target ?? []) : source;
  const reading = new Reading(model, plan, main.length, reuse && isSameInput(reuse.input, input) ? reuse : undefined);
  if (model.isEncoderDecoder) reading.readSource(source);
  const stream = reading.read(main);
  const predicted = Math.min(count ?? main.length, main.length);
  plan.checkPositions();
  const width = model.config.width;
  const logits = computeLogits(model, stream.subarray((main.length - predicted) * width));
  return { input, edits, sites: reading.sites, blocks: Array.from(reading.blocks.values()), logits, predicted };
}

/** Return the logits [row, vocabulary] of vectors of the residual stream [row, width], in the last stack. */
export function computeLogits({ main, output, config }: EngineModel, stream: Float32Array): Float32Array {
  return applyLinear(output, normalize(stream, main.norm), stream.length / config.width);
}

function isSameInput(one: PassInput, other: PassInput): boolean {
  return String(one.source) === String(other.source) && String(one.target) === String(other.target);
}

function normalize(stream: Float32Array, norm: Norm | null): Float32Array {
  return norm ? applyNorm(norm, stream) : stream;
}

/** A model that is reading a text. What it has read is in a cache, so that the text can be continued. */
export class Reading {
  /** The last call of each attention, and the vectors of the blocks in it. */
  readonly sites: AttentionCall[] = [];
  readonly blocks = new Map<string, BlockPass>();
  private readonly caches: KeyValueCache[] = [];
  private encoded: Float32Array = new Float32Array(0); // what cross-attentions read
  private length = 0; // tokens that were read

  constructor(
    private readonly model: EngineModel,
    private readonly plan: EditPlan,
    private readonly capacity: number, // the largest number of tokens that will be read
    private reuse: EnginePass | undefined,
  ) {}

  /** Run the encoder. */
  readSource(tokens: readonly number[]): void {
    const { encoder } = this.model;
    this.encoded = normalize(this.runStack(encoder!, tokens, 0, tokens.length), encoder!.norm);
  }

  /** Read the next tokens, and return the vectors that leave the last block. */
  read(tokens: readonly number[]): Float32Array {
    const stream = this.runStack(this.model.main, tokens, this.length, this.capacity);
    this.length += tokens.length;
    this.reuse = undefined;
    return stream;
  }

  private runStack(stack: Stack, tokens: readonly number[], first: number, capacity: number): Float32Array {
    const rows = tokens.length;
    let stream = embed(this.model, stack, tokens, first);
    for (const block of stack.blocks) {
      if (this.reuse && this.plan.changes(block.name)) this.reuse = undefined;
      const computed = this.reuse?.blocks.find(({ name }) => name === block.name);
      if (computed) {
        this.blocks.set(block.name, computed);
        for (const { site } of block.attentions) this.sites[site] = this.reuse!.sites[site] as AttentionCall;
        stream = computed.output;
      } else stream = this.runBlock(block, stream, rows, first, capacity);
    }
    return stream;
  }

  private runBlock(block: Block, stream: Float32Array, rows: number, first: number, capacity: number): Float32Array {
    const { model, plan } = this;
    const input = stream.slice();
    plan.editVectors(`${block.name}.input`, input, 1, rows, null);
    stream = input;
    for (const layer of block.attentions) {
      const inputs = model.isPostNorm ? stream : applyNorm(layer.norm, stream);
      const call = this.attend(layer, inputs, rows, first, capacity);
      const self = this.sites[block.attentions[0].site];
      const { name, heads, headWidth } = call.info;
      plan.editVectors(`${name}.output`, call.output, heads, rows, self);
      call.blockOutput = normalize(applyLinear(layer.output, joinHeads(call.output, rows, heads, headWidth), rows), layer.outputNorm);
      plan.editVectors(`${name}.block_output`, call.blockOutput, 1, rows, self);
      stream = this.addResidual(stream, call.blockOutput, layer.norm);
    }
    const inputs = model.isPostNorm ? stream : applyNorm(block.feedforwardNorm, stream);
    const feedforwardOutput = normalize(applyFeedForward(block.feedforward, inputs, rows), block.feedforwardOutputNorm);
    plan.editVectors(`${block.name}.feedforward_output`, feedforwardOutput, 1, rows, this.sites[block.attentions[0].site]);
    const output = this.addResidual(stream, feedforwardOutput, block.feedforwardNorm);
    this.blocks.set(block.name, { name: block.name, positions: rows, input, feedforwardOutput, output });
    return output;
  }

  private addResidual(stream: Float32Array, added: Float32Array, norm: Norm): Float32Array {
    const sum = add(stream, added);
    return this.model.isPostNorm ? applyNorm(norm, sum) : sum;
  }

  private attend(layer: AttentionLayer, inputs: Float32Array, rows: number, first: number, capacity: number): AttentionCall {
    const { model, plan } = this;
    const info = model.sites[layer.site];
    const { heads, groups, headWidth: width } = info;
    const isSelf = info.querySequence === info.keySequence;
    const query = normalize(splitHeads(applyLinear(layer.query, inputs, rows), rows, heads, width), layer.queryNorm);
    layer.rotation?.rotate(query, rows, first);

    let cache = this.caches[layer.site];
    if (isSelf || !cache) {
      const source = isSelf ? inputs : this.encoded;
      const count = source.length / layer.keyValue.inputs;
      cache ??= new KeyValueCache(groups, width, isSelf ? capacity : count);
      const joined = applyLinear(layer.keyValue, source, count);
      const key = normalize(splitHeads(joined, count, groups, width), layer.keyNorm);
      layer.rotation?.rotate(key, count, first);
      cache.append(key, splitHeads(joined, count, groups, width, groups * width), count);
      this.caches[layer.site] = cache;
    }
    const settings = {
      mask: plan.editMask(info, buildMask(model, info)),
      temperatureEdits: plan.listTemperatures(info),
      bias: isSelf ? model.bias : null,
    };
    const call = new AttentionCall(info, first, rows, query, cache, settings);
    plan.count(call);
    this.sites[layer.site] = call;
    return call;
  }
}

function embed(model: EngineModel, stack: Stack, tokens: readonly number[], first: number): Float32Array {
  const { config, embeddingScale } = model;
  const { width } = config;
  if (!tokens.length) throw new EngineError("the text is empty: a model needs at least one token");
  if (first + tokens.length > config.length)
    throw new EngineError(`${first + tokens.length} tokens exceed the context length of ${config.length}`);
  const embedded = new Float32Array(tokens.length * width);
  tokens.forEach((token, row) => {
    if (!(token >= 0 && token < stack.tokens)) throw new EngineError(`token ${token} is out of range: this model has tokens 0 to ${stack.tokens - 1}`);
    for (let i = 0; i < width; i++) {
      const added = stack.addedPositions ? stack.addedPositions[(first + row) * width + i] : 0;
      embedded[row * width + i] = stack.embedding[token * width + i] * embeddingScale + added;
    }
  });
  return embedded;
}

function buildMask({ config }: EngineModel, { isCausal, layer }: SiteInfo): Mask | null {
  if (!isCausal) return null;
  return config.family === "gpt" && hasWindow(config, layer as number) ? and(causal, window(config.window!)) : causal;
}
