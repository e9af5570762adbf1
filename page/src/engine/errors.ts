/** The error of the engine: one sentence for the user, as Python's ArgumentError. */
export class EngineError extends Error {}
