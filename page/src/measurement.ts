/** What effects are measured in, and how heads are ablated for it: chosen in "Does it matter?". */

import { signal } from "@preact/signals";
import type { AblationMethod, MetricChoice, MetricName, Prediction, Run } from "./protocol";

export class MeasurementState {
  readonly by = signal<AblationMethod>("zero");
  readonly metric = signal<MetricName>("log-probability");
  /** Tokens as they are written; "" is what the model predicts. */
  readonly token = signal("");
  readonly other = signal("");
  /** Of the prediction; null: the last one, of an answer that of its first token. */
  readonly position = signal<number | null>(null);

  /** Another text has other tokens and positions. */
  forgetTokens(): void {
    this.token.value = "";
    this.other.value = "";
    this.position.value = null;
  }

  /** Return the choice for an ask; null is the usual metric. */
  describe(run: Run): MetricChoice | null {
    const { predicts } = run.model;
    if (predicts === "number" || predicts === "vector") return null;
    const candidates = this.listCandidates(run);
    const find = (text: string) => (text === "" ? null : (candidates.find(({ label }) => label === text)?.id ?? text));
    if (predicts === "class") return this.token.value ? { name: "class", token: find(this.token.value) } : null;
    const name = this.metric.value;
    const choice: MetricChoice = { name, token: find(this.token.value), other: find(this.other.value), position: this.position.value };
    return name === "log-probability" && choice.token === null && choice.position === null ? null : choice;
  }

  /** Return the tokens that the model finds most probable where the metric reads. */
  listCandidates(run: Run): Prediction["candidates"] {
    const position = this.position.value ?? (run.target.length ? run.generated - 1 : null);
    const found = position === null ? run.clean.at(-1) : run.clean.find((prediction) => prediction.position === position);
    return found?.candidates ?? [];
  }
}
