/** The forward pass. */

import { EngineError } from "./errors";
import type { EngineModel } from "./model";
import type { EnginePass, PassInput, PassOptions } from "./types";

export function forward(_model: EngineModel, _input: PassInput, _options: PassOptions = {}): EnginePass {
  throw new EngineError("this part of the engine is not written yet");
}
