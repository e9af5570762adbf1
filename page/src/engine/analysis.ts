/** What the page measures with the engine: metrics, effects, kinds of heads, steps and the logit lens. */

import type { EffectRow, HeadFacts, StepName, Steps } from "../protocol";
import { EngineError } from "./errors";
import type { EngineModel } from "./model";
import type { EnginePass } from "./types";

const missing = (): EngineError => new EngineError("this part of the engine is not written yet");

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
