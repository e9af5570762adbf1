/** How much heads matter: a metric with an edit minus the metric without. The same as lens/effects. */

import type { AblationMethod, Edit, EffectRow, MetricChoice, MetricName } from "../protocol";
import { EngineError } from "./errors";
import { forward } from "./forward";
import { labelTokens } from "./labels";
import type { EngineModel } from "./model";
import type { EnginePass } from "./types";

const CUT_HEADS = 24; // heads in which one cell is cut

/** What effects are measured in, as the metrics of lens/effects/metrics.py. */
export interface Metric {
  name: Exclude<MetricName, "class">;
  token: number; // of a log-probability, or the expected one of a logit difference
  other: number;
  position: number; // as in Python: -1 is the last
  clean: number; // its value without edits
}

export interface HeadEffect {
  site: number;
  head: number;
  effect: number;
}

/** Return the metric that was chosen, or else the log-probability of the first token of an answer, or of the most probable
 * token. */
export function chooseMetric(model: EngineModel, pass: EnginePass, choice: MetricChoice | null = null): Metric {
  const answer = model.isEncoderDecoder ? pass.input.target?.[1] : undefined;
  const position = choice?.position ?? (answer === undefined ? -1 : 0);
  const name = choice?.name ?? "log-probability";
  const { length } = readSequence(pass);
  if (name === "class") throw new EngineError("this model has no classes; use a metric of tokens");
  if (name === "loss" && length < 2) throw new EngineError("a loss needs a text of at least two tokens");
  if (position >= length) throw new EngineError(`position must be less than ${length.toLocaleString("en")}, not ${position}`);
  const metric: Metric = { name, token: 0, other: 0, position, clean: 0 };
  const clean = requireLogits(model, pass, metric);
  const logits = selectLogits(clean, position);
  const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]);
  const find = (token: number | string | null | undefined, rank: number) => (typeof token === "string" ? encodeToken(model, token) : (token ?? order[rank]));
  metric.token = choice ? find(choice.token, 0) : (answer ?? order[0]);
  metric.other = find(choice?.other, 1);
  return { ...metric, clean: evaluate(metric, clean, clean) };
}

export function describeMetric(model: EngineModel, { name, token, other, position }: Metric, length: number): string {
  const quoteToken = (id: number) => (model.tokenizer ? quotePython(labelTokens(model.tokenizer, [id])[0]) : String(id));
  switch (name) {
    case "log-probability":
      return `log-probability of token ${quoteToken(token)} at position ${position}`;
    case "logit-difference":
      return `logit of token ${quoteToken(token)} minus that of token ${quoteToken(other)} at position ${position}`;
    case "kl":
      return `KL(clean || edited) at position ${position}`;
    case "loss":
      return `loss over ${length} tokens`;
  }
}

/** Write a text as Python's repr does. */
export function quotePython(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  return mark + text.replace(/\\|(?! )[\p{C}\p{Z}]/gu, escapePython).replaceAll(mark, `\\${mark}`) + mark;
}

const ESCAPES: Record<string, string> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escapePython(letter: string): string {
  const code = letter.codePointAt(0)!;
  const [mark, length] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return ESCAPES[letter] ?? `\\${mark}${code.toString(16).padStart(length, "0")}`;
}

/** Return the id of a text that is exactly one token; spaces may be written as the page shows them. */
export function encodeToken(model: EngineModel, text: string): number {
  const ids = model.tokenizer?.encode(text.replaceAll("␣", " "), false) ?? [];
  if (ids.length !== 1) {
    const labels = model.tokenizer ? labelTokens(model.tokenizer, ids).join(" ") : "";
    throw new EngineError(`${quotePython(text)} is ${ids.length} tokens (${labels}); a metric needs a single token, with its space`);
  }
  if (ids[0] === model.tokenizer?.unknown) throw new EngineError(`${quotePython(text)} is unknown to this model's tokenizer; choose another token`);
  return ids[0];
}

/** Ablate every head, one after the other. */
export function* measureHeads(model: EngineModel, pass: EnginePass, metric: Metric, by: AblationMethod = "zero"): Generator<HeadEffect> {
  const clean = requireLogits(model, pass, metric);
  for (const [site, { info }] of clean.sites.entries())
    for (let head = 0; head < info.heads; head++) yield { site, head, effect: measureEdit(model, clean, metric, { edit: "Ablate", layer: info.layer, head, by, seed: 0 }) };
}

/** Cut a cell in each of the heads that give it most weight, and read the same sequences as an attention. */
export function* measureCell(model: EngineModel, pass: EnginePass, metric: Metric, site: number, query: number, key: number): Generator<EffectRow> {
  const clean = requireLogits(model, pass, metric);
  const { info: asked, queries, keys } = clean.sites[site];
  const heads: { site: number; head: number; weight: number }[] = [];
  clean.sites.forEach((other, index) => {
    const hasSequences = other.info.querySequence === asked.querySequence && other.info.keySequence === asked.keySequence;
    if (!hasSequences || other.queries !== queries || other.keys !== keys) return;
    const row = new Float32Array(keys);
    for (let head = 0; head < other.info.heads; head++) {
      other.open(head).readRow(query, row);
      if (row[key] > 0) heads.push({ site: index, head, weight: row[key] });
    }
  });
  for (const row of heads.sort((a, b) => b.weight - a.weight).slice(0, CUT_HEADS)) {
    const edit: Edit = { edit: "KnockOut", layer: clean.sites[row.site].info.layer, head: row.head, query, key };
    yield { ...NOT_COMPARED, ...row, query, key, effect: measureEdit(model, clean, metric, edit) };
  }
}

const NOT_COMPARED = { query: null, key: null, weight: null, control_mean: null, control_low: null, control_high: null, rank: null, of: null };

/** Sort effects by size, and set the rank of each among all of them. */
export function rankEffects(rows: HeadEffect[]): EffectRow[] {
  const sizes = rows.map(({ effect }) => Math.abs(effect));
  return [...rows]
    .sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect))
    .map((row) => ({ ...NOT_COMPARED, ...row, rank: sizes.filter((size) => size >= Math.abs(row.effect)).length, of: rows.length }));
}

function measureEdit(model: EngineModel, clean: EnginePass, metric: Metric, edit: Edit): number {
  const edited = forward(model, clean.input, { edits: [edit], reuse: clean, logits: countLogits(clean, metric) });
  return evaluate(metric, edited, clean) - metric.clean;
}

/** Return the sequence whose next tokens are predicted. */
function readSequence({ input }: EnginePass): number[] {
  return input.target ?? input.source;
}

/** Return of how many last positions a metric reads the logits. */
function countLogits(pass: EnginePass, { name, position }: Metric): number {
  const { length } = readSequence(pass);
  if (name === "loss") return length;
  return position < 0 ? -position : length - position;
}

/** Return a pass with the logits that a metric reads. */
function requireLogits(model: EngineModel, pass: EnginePass, metric: Metric): EnginePass {
  const logits = countLogits(pass, metric);
  return pass.predicted >= logits ? pass : forward(model, pass.input, { reuse: pass, logits });
}

function evaluate({ name, token, other, position }: Metric, edited: EnginePass, clean: EnginePass): number {
  if (name === "loss") {
    const tokens = readSequence(edited);
    let sum = 0;
    for (let row = 0; row + 1 < tokens.length; row++) {
      const logits = selectLogits(edited, row);
      sum += addExponentials(logits) - logits[tokens[row + 1]];
    }
    return sum / (tokens.length - 1);
  }
  const logits = selectLogits(edited, position);
  if (name === "logit-difference") return logits[token] - logits[other];
  return name === "kl" ? measureDivergence(selectLogits(clean, position), logits) : logits[token] - addExponentials(logits);
}

/** Return the logits of a position, which counts as in Python. */
function selectLogits(pass: EnginePass, position: number): Float32Array {
  const { logits, predicted } = pass;
  const row = predicted - (position < 0 ? -position : readSequence(pass).length - position);
  const width = logits.length / predicted;
  return logits.subarray(row * width, (row + 1) * width);
}

/** Return the logarithm of a sum of exponentials. */
export function addExponentials(scores: Float32Array): number {
  const largest = scores.reduce((most, score) => Math.max(most, score), -Infinity);
  return largest + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - largest), 0));
}

/** Return the Kullback-Leibler divergence of two distributions in nats, clean || edited. */
export function measureDivergence(clean: Float32Array, edited: Float32Array): number {
  const [total, editedTotal] = [addExponentials(clean), addExponentials(edited)];
  return clean.reduce((sum, logit, token) => {
    const share = Math.exp(logit - total);
    return share > 0 ? sum + share * (logit - total - (edited[token] - editedTotal)) : sum;
  }, 0);
}
