/** What a user types, as the tokens that a model reads. */

import type { Language } from "../protocol";
import { EngineError } from "./errors";
import type { EngineModel } from "./model";

export interface PreparedText {
  tokens: number[];
  unknown: string[];
  note: string; // a sentence for the user about unknown words; empty if there are none
}

export function prepareText(_model: EngineModel, _text: string, _language: Language): PreparedText {
  throw new EngineError("this part of the engine is not written yet");
}
