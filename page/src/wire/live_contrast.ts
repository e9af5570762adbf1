/** Two inputs side by side, computed by the engine: what web/answers/contrast.py answers in Python. */

import { alignTokens, type Pair, pairPositions, type Partners } from "../contrast/align";
import { addExponentials, encodeToken, type EngineModel, type EnginePass, forward, labelTokens, measureDivergence, type PassInput } from "../engine";
import type { Candidate, Contrast, ContrastMetric, Edit, Pass, Patched, PatchedPart, PatchPart, Sequence, SharedCandidate, Sweep } from "../protocol";
import { AskError } from "./client";
import { type TwoInputs, writePatches, writeSweep } from "./live_code";
import type { StoredMap } from "./file_maps";
import type { LiveModel } from "./live";
import { type LiveRun, MAX_PREDICTIONS } from "./live_run";
import { type Answer, type Ask, RunAnswers } from "./run_answers";

const CANDIDATES = 5;
const MAX_COMPARED_POSITIONS = 512; // whose maps are compared completely
const PROMPT = 1; // positions of a target before the answer
const SOURCE = "clean"; // by which patches name the pass of the first input

type Report = (done: number, total: number, stage: string) => Promise<void>;
type Tokens = { right: number; wrong: number };

export class LiveContrast {
  private readonly partners: Record<Sequence, Partners>;
  private readonly pairs: Record<Sequence, Pair[]>;
  private readonly position: number; // of both inputs where their answers part, else the last one of each
  private readonly scores: [Float32Array, Float32Array];
  private readonly aligned: AlignedRun; // of all positions
  private readonly shared: AlignedRun; // of those that both inputs have
  private readonly labels: Record<Sequence, string[]>;
  private readonly first: EnginePass;

  private readonly second: EnginePass;
  private readonly model: EngineModel; // that reads the second input

  constructor(
    readonly number: number,
    private readonly text: string | null, // null: that of the run
    private readonly run: LiveRun,
    private readonly other: LiveModel,
    input: PassInput,
  ) {
    this.first = run.parts.clean;
    this.model = other.model;
    checkShapes(run, other);
    this.second = forward(other.model, input, { logits: MAX_PREDICTIONS });
    const { source, target } = this.second.input;
    const tokenizer = this.model.tokenizer!;
    this.labels = { source: labelTokens(tokenizer, source), target: target ? [run.run.target[0], ...labelTokens(tokenizer, target.slice(1))] : [] };
    this.partners = this.isSameModel
      ? { source: alignTokens(this.first.input.source, source), target: alignTokens(this.first.input.target ?? [], target ?? []) }
      : { source: alignTokens(run.run.source, this.labels.source), target: alignTokens(run.run.target, this.labels.target) };
    this.pairs = {
      source: pairPositions(this.first.input.source.length, this.partners.source),
      target: pairPositions(this.first.input.target?.length ?? 0, this.partners.target),
    };
    const keepShared = (pairs: Pair[]) => pairs.map((pair): Pair => (pair.includes(null) ? [null, null] : pair));
    this.aligned = new AlignedRun(run, this.second, this.pairs);
    this.shared = new AlignedRun(run, this.second, { source: keepShared(this.pairs.source), target: keepShared(this.pairs.target) });
    this.position = this.choosePosition();
    this.scores = [this.first, this.second].map((pass) => readLogits(pass, this.position)) as [Float32Array, Float32Array];
  }

  /** What a contrast of a run is found by. */
  get key(): string {
    return JSON.stringify([this.other.name, this.text]);
  }

  private get isSameModel(): boolean {
    return this.model === this.run.model;
  }

  /** Answer an ask about the aligned maps. */
  answer(ask: Ask): Promise<Answer | null> | Answer | null {
    return (ask.show === "difference" ? this.shared : this.aligned).answer(ask);
  }

  async describe(ask: Ask, report: Report): Promise<Answer> {
    const begin = performance.now();
    const changes = await this.compareHeads(report);
    const body: Contrast = {
      contrast: this.number,
      model: this.other.name,
      source: this.labels.source,
      target: this.labels.target,
      pairs: this.pairs,
      position: this.position < 0 ? this.labels.source.length - 1 : this.position,
      candidates: this.listCandidates(),
      metric: this.describeMetric(this.chooseTokens(ask)),
      change: Math.max(measureDivergence(...this.scores), 0),
      can_patch: true,
      note: null,
      seconds: (performance.now() - begin) / 1000,
    };
    return { body, buffers: [new Uint8Array(changes.buffer)] };
  }

  /** Patch every part of the first input into the second one, one at a time. */
  async sweep(ask: Ask, report: Report): Promise<Answer> {
    const begin = performance.now();
    const tokens = this.chooseTokens(ask);
    const part: PatchPart = ask.part;
    const metric = this.describeMetric(tokens);
    const layers = new Map<string, number>(); // the first attention of each layer
    this.model.sites.forEach(({ name, block }, site) => {
      const layer = part === "attention" ? name : block;
      if (!layers.has(layer)) layers.set(layer, site);
    });
    const counts = Array.from(layers.values(), (site) => (part === "attention" ? this.model.sites[site].heads : this.second.sites[site].queries));
    const columns = Math.max(...counts);
    const effects = new Float32Array(layers.size * columns).fill(NaN);
    const equal = part === "attention" ? 0 : this.countEqualPositions();
    for (const [row, site] of Array.from(layers.values()).entries()) {
      for (let column = 0; column < counts[row]; column++) {
        const patch: PatchedPart = part === "attention" ? { part, site, head: column, position: null } : { part, site, head: null, position: column };
        if (column < equal) effects[row * columns + column] = 0; // both texts have the same vectors there
        else if (part === "attention" || this.partners[this.model.sites[site].querySequence][column] !== null)
          effects[row * columns + column] = difference(this.patch([this.createPatch(patch)]), tokens) - metric.corrupted;
        await report(row, layers.size, "measuring");
      }
    }
    const body: Sweep = {
      part,
      layers: Array.from(layers, ([name, site]) => ({ name, site })),
      columns,
      metric,
      seconds: (performance.now() - begin) / 1000,
      code: writeSweep(this.nameInputs(tokens), part),
    };
    return { body, buffers: [new Uint8Array(effects.buffer)] };
  }

  /** Patch several parts together. */
  measurePatches(ask: Ask): Answer {
    const tokens = this.chooseTokens(ask);
    const edits: Edit[] = ask.patches.map((patch: PatchedPart) => this.createPatch(patch));
    const scores = edits.length ? this.patch(edits) : this.scores[1];
    const total = addExponentials(scores);
    const body: Patched = {
      value: difference(scores, tokens),
      probabilities: this.listCandidates().map(({ id }) => Math.exp(scores[id] - total)),
      code: writePatches(this.nameInputs(tokens), edits),
    };
    return { body };
  }

  /** Return what a program needs to compute this again. */
  private nameInputs({ right, wrong }: Tokens): TwoInputs {
    const { model, position, partners } = this;
    const { run, parts } = this.run;
    const [first, second] = [this.first.input, this.second.input];
    // counted from the end, unless the ends differ
    const isCounted = position < 0 || (first.target ?? []).length !== (second.target ?? []).length;
    return {
      clean: { text: parts.text, input: first, model: this.run.model, name: run.model.name },
      corrupted: { text: this.text ?? parts.text, input: second, model, name: this.other.name },
      right,
      wrong,
      position: isCounted ? position : position - (second.target ?? second.source).length,
      partners,
    };
  }

  /** Return the logits of the second input with parts of the first one. */
  private patch(edits: Edit[]): Float32Array {
    const { input } = this.second;
    const length = (input.target ?? input.source).length;
    const logits = this.position < 0 ? 1 : length - this.position;
    return readLogits(forward(this.model, input, { edits, sources: { [SOURCE]: this.first }, reuse: this.second, logits }), this.position);
  }

  private createPatch({ part, site, head, position }: PatchedPart): Edit {
    const info = this.model.sites[site];
    if (!info) throw new AskError(`site must be less than ${this.model.sites.length}, not ${site}`, "invalid");
    const partners = this.partners[info.querySequence];
    const positions = position === null ? Array.from(partners.keys()) : [position];
    const chosen = positions.filter((index) => (partners[index] ?? null) !== null);
    if (!chosen.length) throw new AskError("this token has no partner in the first text, so there is nothing to patch", "invalid");
    const patch: Edit = { edit: "Patch", layer: info.layer, head, part, source: SOURCE };
    const isOwn = chosen.every((index) => partners[index] === index);
    const isWhole = position === null && chosen.length === partners.length && this.first.sites[site].queries === partners.length;
    if (isOwn && isWhole) return patch;
    return { ...patch, positions: chosen, source_positions: isOwn ? null : chosen.map((index) => partners[index]!) };
  }

  /** Return where the predictions are compared: of two answers at the first token that differs, after decoders that read the
   * same tokens before it. */
  private choosePosition(): number {
    const [first, second] = [this.first.input.target, this.second.input.target];
    if (!first || !second) return -1;
    const shortest = Math.min(first.length, second.length);
    let common = 0;
    while (common < shortest && first[common] === second[common]) common++;
    for (let row = PROMPT - 1; row < common; row++) {
      const likeliest = [this.first, this.second].map((pass) => findLargest(readLogits(pass, row), 1)[0]);
      if (likeliest[0] !== likeliest[1]) return row;
    }
    return PROMPT - 1;
  }

  private listCandidates(): SharedCandidate[] {
    const totals = this.scores.map(addExponentials);
    const share = (side: 0 | 1, id: number) => Math.exp(this.scores[side][id] - totals[side]);
    const ids = new Set(this.scores.flatMap((scores) => findLargest(scores, CANDIDATES)));
    const candidates = Array.from(ids, (id): SharedCandidate => ({ label: this.name(id), id, clean: share(0, id), corrupted: share(1, id) }));
    return candidates.sort((a, b) => Math.max(b.clean, b.corrupted) - Math.max(a.clean, a.corrupted));
  }

  private chooseTokens(ask: Ask): Tokens {
    const candidates = this.listCandidates();
    const find = (typed: number | string | null | undefined) => {
      if (typeof typed !== "string") return typed ?? null;
      return candidates.find(({ label }) => label === typed)?.id ?? encodeToken(this.model, typed);
    };
    const right = find(ask.right) ?? findLargest(this.scores[0], 1)[0];
    const others = candidates.filter(({ id }) => id !== right);
    // the token that the second input makes most probable, against the first one
    const wrong = find(ask.wrong) ?? others.reduce((best, other) => (other.corrupted - other.clean > best.corrupted - best.clean ? other : best)).id;
    if (right === wrong) throw new AskError("the two tokens of the logit difference are the same; choose two", "invalid");
    return { right, wrong };
  }

  private describeMetric(tokens: Tokens): ContrastMetric {
    const total = addExponentials(this.scores[0]);
    const describe = (id: number): Candidate => ({ label: this.name(id), id, probability: Math.exp(this.scores[0][id] - total) });
    const [clean, corrupted] = this.scores.map((scores) => difference(scores, tokens));
    return { right: describe(tokens.right), wrong: describe(tokens.wrong), clean, corrupted };
  }

  private name(id: number): string {
    return labelTokens(this.model.tokenizer!, [id])[0];
  }

  /** Return at how many first positions both inputs have the same vectors: equal tokens of a causal model. */
  private countEqualPositions(): number {
    if (!this.isSameModel || this.second.input.target || this.model.sites.some(({ isCausal }) => !isCausal)) return 0;
    const [first, second] = [this.first.input.source, this.second.input.source];
    let equal = 0;
    while (equal < Math.min(first.length, second.length) && first[equal] === second[equal]) equal++;
    return equal;
  }

  /** Return how far the rows of each head are apart; nothing for long inputs. */
  private async compareHeads(report: Report): Promise<Float32Array> {
    if (Math.max(this.pairs.source.length, this.pairs.target.length) > MAX_COMPARED_POSITIONS) return new Float32Array();
    const distances: number[] = [];
    for (const [site, { heads }] of this.shared.run.sites.entries())
      for (let head = 0; head < heads; head++) {
        const [first, second] = (["clean", "edited"] as const).map((pass) => this.shared.findMap(pass, site, head));
        const rows = [new Float32Array(first.keys), new Float32Array(first.keys)];
        let sum = 0;
        for (let query = 0; query < first.queries; query++) {
          first.readRow(query, rows[0]);
          second.readRow(query, rows[1]);
          sum += rows[0].reduce((total, weight, key) => total + Math.abs(weight - rows[1][key]), 0);
        }
        distances.push(sum / first.queries / 2);
        await report(0, 0, "computing");
      }
    return new Float32Array(distances);
  }
}

/** Refuse two models that have other attentions or predict other tokens. */
function checkShapes({ model, run }: LiveRun, { model: other, name }: LiveModel): void {
  const shapes = [model, other].map(({ sites }) => sites.map(({ name, heads }) => `${name} ${heads}`));
  if (String(shapes[0]) !== String(shapes[1])) {
    const [first, second] = [model, other].map(({ sites }) => [sites.length, sites.reduce((sum, { heads }) => sum + heads, 0)]);
    throw new AskError(
      `${run.model.name} has ${first[0]} attentions with ${first[1]} heads in all and ${name} ${second[0]} with ${second[1]}, or they have other names; compare two models of the same shape`,
      "invalid",
    );
  }
  if (model.vocabulary !== other.vocabulary) throw new AskError("the two models predict from different vocabularies", "invalid");
}

/** The maps of both inputs with a row and a column for each pair of positions. */
class AlignedRun extends RunAnswers {
  constructor(
    private readonly live: LiveRun,
    private readonly second: EnginePass,
    private readonly pairs: Record<Sequence, Pair[]>,
  ) {
    super({
      ...live.run,
      sites: live.run.sites.map((site) => ({ ...site, queries: pairs[site.query_sequence].length, keys: pairs[site.key_sequence].length })),
    });
  }

  override findMap(pass: Pass, site: number, head: number): StoredMap {
    const side = pass === "clean" ? 0 : 1;
    const { query_sequence, key_sequence } = this.run.sites[site];
    const map = side === 0 ? this.live.findMap("clean", site, head) : this.second.sites[site].open(head);
    const rows = this.pairs[query_sequence].map((pair) => pair[side]);
    const columns = this.pairs[key_sequence].map((pair) => pair[side]);
    const weights = new Float32Array(map.keys);
    const readRow = (row: number, target: Float32Array) => {
      target.fill(0);
      const query = rows[row];
      if (query === null) return;
      map.readRow(query, weights);
      columns.forEach((key, column) => {
        if (key !== null) target[column] = weights[key];
      });
    };
    return { queries: rows.length, keys: columns.length, isExact: map.isExact, rowCost: map.rowCost, readRow };
  }

  override findVectors(): null {
    return null;
  }

  override writeSentences(): never {
    throw new AskError("the maps of two inputs have no steps", "invalid");
  }
}

/** Return the logits of a position; a negative one counts from the end. */
function readLogits({ input, logits, predicted }: EnginePass, position: number): Float32Array {
  const { length } = input.target ?? input.source;
  const row = predicted - (position < 0 ? -position : length - position);
  const width = logits.length / predicted;
  return logits.subarray(row * width, (row + 1) * width);
}

function difference(scores: Float32Array, { right, wrong }: Tokens): number {
  return scores[right] - scores[wrong];
}

function findLargest(scores: Float32Array, count: number): number[] {
  return Array.from(scores.keys())
    .sort((a, b) => scores[b] - scores[a])
    .slice(0, count);
}
