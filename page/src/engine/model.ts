/** Models: parameters and what the page needs to know of them. */

import { EngineError } from "./errors";
import type { ModelFacts, ModelFiles } from "./types";

export type EngineModel = ModelFacts;

export function openModel(_files: ModelFiles): EngineModel {
  throw new EngineError("this part of the engine is not written yet");
}
