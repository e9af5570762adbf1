/** Generation: a model continues a text token by token, with edits, and reads each token once. */

import { EditPlan } from "./edits";
import { EngineError } from "./errors";
import { computeLogits, Reading } from "./forward";
import type { EngineModel } from "./model";
import { createSampler } from "./sampling";
import type { GeneratedToken, GenerationOptions, PassInput } from "./types";

export function* generate(model: EngineModel, { source, target }: PassInput, { edits = [], sources, limit, sampling }: GenerationOptions): Generator<GeneratedToken> {
  const prompt = model.isEncoderDecoder ? (target ?? [model.startToken!]) : source;
  const allowed = limitToContext(model, prompt.length, limit);
  const plan = new EditPlan(model, edits, sources);
  const reading = new Reading(model, plan, prompt.length + allowed, undefined);
  const sample = createSampler(sampling ?? {});
  if (model.isEncoderDecoder) reading.readSource(source);
  let stream = reading.read(prompt);
  for (let count = 1; count <= allowed; count++) {
    const logits = computeLogits(model, stream.subarray(-model.config.width));
    const token = sample(logits);
    const isEnd = model.ends.has(token);
    yield { token, isEnd, logits };
    if (isEnd) break;
    if (count < allowed) stream = reading.read([token]);
  }
  plan.checkPositions();
}

/** Return the number of new tokens that fit; the last one is not read. */
function limitToContext({ contextLength, config }: EngineModel, prompt: number, limit: number): number {
  if (prompt > contextLength)
    throw new EngineError(`the prompt has ${prompt} tokens, but this model reads at most ${contextLength}; shorten the prompt`);
  const isFixed = config.family === "gpt" && config.fixed_length; // a text of a fixed length is complete at the end of the context
  return Math.min(limit, isFixed ? Math.max(1, contextLength - prompt) : contextLength - prompt + 1);
}

/** An encoder-decoder's own answer, greedily, at most `limit` tokens. */
export function prepareAnswer(model: EngineModel, source: number[], limit = 32): { target: number[]; isUnfinished: boolean } {
  const target = [model.startToken!];
  let hasEnded = false;
  for (const { token, isEnd } of generate(model, { source }, { limit })) {
    hasEnded = isEnd;
    if (!isEnd) target.push(token);
  }
  return { target: target.slice(0, model.contextLength), isUnfinished: !hasEnded };
}
