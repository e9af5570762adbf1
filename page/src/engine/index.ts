/** The engine: Jumok's small models in plain TypeScript. See types.ts for what goes in and out. */

export * from "./effects";
export { EngineError } from "./errors";
export { forward } from "./forward";
export { generate, prepareAnswer } from "./generate";
export * from "./head_kinds";
export * from "./head_steps";
export { labelTokens } from "./labels";
export * from "./layer_stream";
export { parseMask } from "./mask";
export { openModel, type EngineModel } from "./model";
export { prepareText, type PreparedText } from "./text";
export { Tokenizer } from "./tokenizer";
export type * from "./types";
