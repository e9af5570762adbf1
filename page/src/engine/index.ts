/** The engine: Jumok's small models in plain TypeScript. See types.ts for what goes in and out. */

import type { EffectRow, HeadFacts, Language, StepName, Steps } from "../protocol";
import { EngineError } from "./errors";
import type { EnginePass, GeneratedToken, GenerationOptions, ModelFacts, ModelFiles, PassInput, PassOptions } from "./types";

export { EngineError } from "./errors";
export { parseMask } from "./mask";
export { Tokenizer } from "./tokenizer";
export type * from "./types";

export type EngineModel = ModelFacts;
const missing = (): EngineError => new EngineError("this part of the engine is not written yet");

export function openModel(_files: ModelFiles): EngineModel {
  throw missing();
}

export interface PreparedText {
  tokens: number[];
  unknown: string[];
  note: string; // a sentence for the user about unknown words; empty if there are none
}

export function prepareText(_model: EngineModel, _text: string, _language: Language): PreparedText {
  throw missing();
}

/** An encoder-decoder's own answer, greedily, at most `limit` tokens. */
export function prepareAnswer(_model: EngineModel, _source: number[], _limit = 32): { target: number[]; isUnfinished: boolean } {
  throw missing();
}

export function forward(_model: EngineModel, _input: PassInput, _options: PassOptions = {}): EnginePass {
  throw missing();
}

export function generate(_model: EngineModel, _input: PassInput, _options: GenerationOptions): Generator<GeneratedToken> {
  throw missing();
}

export interface Metric {
  token: number;
  position: number; // as in Python: -1 is the last
  clean: number; // its value without edits
}
export interface HeadEffect {
  site: number;
  head: number;
  effect: number;
}
export function chooseMetric(_model: EngineModel, _pass: EnginePass): Metric {
  throw missing();
}
export function describeMetric(_model: EngineModel, _metric: Metric): string {
  throw missing();
}
export function measureHeads(_model: EngineModel, _clean: EnginePass, _metric: Metric, _by: "zero" | "mean" | "resample" = "zero"): Generator<HeadEffect> {
  throw missing();
}
export function rankEffects(_rows: HeadEffect[]): EffectRow[] {
  throw missing();
}

export type Profile = object;
export interface Sentences {
  english: string[];
  korean: string[];
}
export function buildProfile(_model: EngineModel, _sentences: Sentences): Profile {
  throw missing();
}
export function describeKinds(_model: EngineModel, _clean: EnginePass, _profile: Profile | null): HeadFacts[] {
  throw missing();
}

export type StepNumbers = Omit<Steps, "sentences"> & { texts: Record<StepName, string> };
export function describeSteps(_pass: EnginePass, _site: number, _head: number, _query: number): StepNumbers {
  throw missing();
}

export interface LayerPrediction {
  block: string; // after which block; "embedding" before the first
  tokens: { token: number; probability: number }[];
}
export function applyLogitLens(_model: EngineModel, _pass: EnginePass, _position = -1, _count = 5): LayerPrediction[] {
  throw missing();
}
