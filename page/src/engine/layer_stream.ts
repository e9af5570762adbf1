/** The residual stream of a token in every block, and the logit lens. The same as web/answers/layer_stream.py. */

import type { Candidate, Layer, Layers, Sequence } from "../protocol";
import { addExponentials } from "./effects";
import { computeLogits } from "./forward";
import { labelTokens } from "./labels";
import { add, applyNorm, type Norm } from "./layers";
import type { Block, EngineModel } from "./model";
import type { BlockPass, EnginePass } from "./types";

const DIGITS = 7; // of the numbers in the answer
const CANDIDATES = 5;

export interface LayerPrediction {
  block: string; // after which block; "embedding" before the first
  tokens: { token: number; probability: number }[];
}

/** Return the tokens that a model would predict at a position if it ended after the embedding, or after each block
 * (nostalgebraist 2020). */
export function applyLogitLens(model: EngineModel, pass: EnginePass, position = -1, count = CANDIDATES): LayerPrediction[] {
  const blocks = listBlocks(pass, pass.input.target ? "target" : "source");
  const row = position < 0 ? blocks[0].positions + position : position;
  const streams: [string, Float32Array][] = [["embedding", readRow(blocks[0].input, blocks[0], row)]];
  for (const block of blocks) streams.push([block.name, readRow(block.output, block, row)]);
  return streams.map(([block, stream]) => {
    const logits = computeLogits(model, stream);
    const total = addExponentials(logits);
    const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]);
    return { block, tokens: order.slice(0, count).map((token) => ({ token, probability: Math.exp(logits[token] - total) })) };
  });
}

export function describeLayers(model: EngineModel, pass: EnginePass, sequence: Sequence, position: number): Layers {
  const hasLens = sequence === (model.isEncoderDecoder ? "target" : "source");
  const predictions = hasLens ? applyLogitLens(model, pass, position) : [];
  const listCandidates = (index: number): Candidate[] =>
    (predictions[index]?.tokens ?? []).map(({ token, probability }) => ({
      label: model.tokenizer ? labelTokens(model.tokenizer, [token])[0] : String(token),
      id: token,
      probability: round(probability),
    }));
  const { info } = pass.sites.find((site) => site.info.querySequence === sequence)!;
  const blocks = [...(model.encoder?.blocks ?? []), ...model.main.blocks];
  const layers = listBlocks(pass, sequence).map((block, index) =>
    describeLayer(model, pass, block, blocks.find(({ name }) => name === block.name)!, position, listCandidates(index + 1)),
  );
  return {
    width: model.config.width,
    heads: info.heads,
    groups: info.groups,
    head_width: info.headWidth,
    hidden: model.config.hidden,
    outputs: model.vocabulary,
    candidates: listCandidates(0),
    layers,
    gap: hasLens ? null : "encoder",
  };
}

function describeLayer(model: EngineModel, pass: EnginePass, block: BlockPass, { attentions, feedforwardNorm }: Block, position: number, candidates: Candidate[]): Layer {
  const before = readRow(block.input, block, position);
  let stream = before;
  const follow = (added: Float32Array, norm: Norm) => {
    stream = add(stream, added);
    if (model.isPostNorm) stream = applyNorm(norm, stream);
    return { added: measureLength(added), norm: measureLength(stream) };
  };
  const steps: Layer["steps"] = attentions.map(({ site, norm }) => {
    const { info, blockOutput } = pass.sites[site];
    const part = info.querySequence === info.keySequence ? "attention" : "cross-attention";
    return { part, site, ...follow(readRow(blockOutput, block, position), norm) };
  });
  steps.push({ part: "mlp", site: null, ...follow(readRow(block.feedforwardOutput, block, position), feedforwardNorm) });
  return { name: block.name, before: measureLength(before), steps, after: measureLength(stream), candidates };
}

/** Return the blocks that read a sequence. */
function listBlocks(pass: EnginePass, sequence: Sequence): BlockPass[] {
  const names = new Set(pass.sites.filter(({ info }) => info.querySequence === sequence).map(({ info }) => info.block));
  return pass.blocks.filter(({ name }) => names.has(name));
}

function readRow(vectors: Float32Array, { positions }: BlockPass, position: number): Float32Array {
  const width = vectors.length / positions;
  return vectors.subarray(position * width, (position + 1) * width);
}

function measureLength(vector: Float32Array): number {
  return round(Math.sqrt(vector.reduce((sum, number) => sum + number * number, 0)));
}

function round(number: number): number {
  return Number(number.toPrecision(DIGITS));
}
