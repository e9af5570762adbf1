/** Generation, token by token. */

import { EngineError } from "./errors";
import type { EngineModel } from "./model";
import type { GeneratedToken, GenerationOptions, PassInput } from "./types";

const missing = (): EngineError => new EngineError("this part of the engine is not written yet");

/** An encoder-decoder's own answer, greedily, at most `limit` tokens. */
export function prepareAnswer(_model: EngineModel, _source: number[], _limit = 32): { target: number[]; isUnfinished: boolean } {
  throw missing();
}

export function generate(_model: EngineModel, _input: PassInput, _options: GenerationOptions): Generator<GeneratedToken> {
  throw missing();
}
