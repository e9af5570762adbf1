/** A session that computes in the page: it answers the asks of the page like the Python session, with the engine.
 *
 * A run, kinds and effects take long. They are computed in slices, one ask after the other; between two slices the page
 * draws, progress is sent, and asks about the run that is shown are answered. */

import {
  buildProfile,
  chooseMetric,
  describeKinds,
  describeLayers,
  describeMetric,
  EngineError,
  type EngineModel,
  type EnginePass,
  forward,
  generate,
  type HeadEffect,
  measureCell,
  measureHeads,
  openModel,
  type PassInput,
  prepareAnswer,
  prepareText,
  type Profile,
  rankEffects,
} from "../engine";
import type { Asks, Edit, EffectRow, Effects, Hello, Kinds, Language } from "../protocol";
import { AskError, type Buffers } from "./client";
import { writeCode } from "./live_code";
import { LiveContrast } from "./live_contrast";
import { LiveRun, MAX_PREDICTIONS } from "./live_run";
import type { ModelPack } from "./model_pack";
import type { Answer, Ask } from "./run_answers";
import { translate } from "./translate";

/** The asks that a page with an engine answers; a page may answer `save` too. */
export const LIVE_ASKS: (keyof Asks)[] = ["hello", "select", "cancel", "run", "thumbnails", "tiles", "values", "line", "token", "cell", "steps", "layers", "code", "kinds", "effect", "contrast", "sweep", "patch"];
const ANSWER_TOKENS = 32; // of an answer, at most
const SLICE = 12; // ms of computing between two pauses
const PROGRESS = 50; // ms between two progress messages

type Send = (head: Record<string, unknown>, buffers: Buffers) => void;

/** An ask that takes long. */
class Job {
  stopReason: "" | "cancelled" | "outdated" = "";
  private pausedAt = performance.now();
  private reportedAt = 0;

  constructor(
    readonly ask: Ask,
    private readonly send: Send,
  ) {}

  /** Report progress, and pause if the last pause was long ago; throw if the ask must stop. */
  async report(done: number, total: number, stage: string): Promise<void> {
    const now = performance.now();
    if (now > this.reportedAt + PROGRESS) {
      this.reportedAt = now;
      this.send({ progress: this.ask.id, done, total, stage }, []);
    }
    if (now > this.pausedAt + SLICE) await this.pause();
    this.check();
  }

  /** Let the page draw before something that cannot be interrupted. */
  async pause(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve));
    this.pausedAt = performance.now();
    this.check();
  }

  private check(): void {
    if (this.stopReason) throw new AskError(this.stopReason, this.stopReason);
  }
}

/** A model of the page. */
export interface LiveModel {
  name: string;
  pack: ModelPack;
  model: EngineModel;
  profile: Profile | null; // of its heads on built-in texts
}

export class LiveSession {
  private readonly models: LiveModel[];
  private shown: LiveModel; // the model of the run
  private readonly jobs = new Set<Job>(); // that wait or run
  private turn: Promise<unknown> = Promise.resolve();
  private run: LiveRun | null = null;
  private contrast: LiveContrast | null = null; // of the input of the run
  private lastNumber = 0;
  private lastContrast = 0;
  private kinds: Kinds | null = null; // of the clean pass of the run

  constructor(
    packs: ModelPack[],
    private readonly hello: Hello,
    private readonly send: Send,
  ) {
    this.models = packs.map((pack, index) => ({ name: hello.models[index].name, pack, model: openModel(pack.files), profile: null }));
    this.shown = this.models[0];
  }

  handle(ask: Ask): void {
    if (["run", "kinds", "effect", "contrast", "sweep", "patch"].includes(ask.ask)) this.enqueue(ask);
    else void this.answer(ask, () => this.answerAtOnce(ask));
  }

  private enqueue(ask: Ask): void {
    const job = new Job(ask, this.send);
    if (ask.ask === "run") this.stop("outdated", () => true);
    this.jobs.add(job);
    this.turn = this.turn.then(async () => {
      await this.answer(ask, async () => {
        await job.pause();
        if (ask.ask === "run") return this.answerRun(job);
        const run = this.requireRun(ask);
        if (["contrast", "sweep", "patch"].includes(ask.ask)) return this.answerContrast(job, run);
        return { body: ask.ask === "kinds" ? await this.classify(job, run) : await this.measure(job, run) };
      });
      this.jobs.delete(job);
    });
  }

  private stop(reason: "cancelled" | "outdated", selects: (job: Job) => boolean): void {
    for (const job of this.jobs) if (selects(job) && !job.stopReason) job.stopReason = reason;
  }

  private async answer(ask: Ask, compute: () => Promise<Answer | null> | Answer | null): Promise<void> {
    try {
      const answer = await compute();
      if (!answer) throw new AskError(`this page cannot answer ${ask.ask}`, "invalid");
      this.send({ answer: ask.id, body: answer.body }, answer.buffers ?? []);
    } catch (error) {
      const message = this.translate(ask, error instanceof Error ? error.message : String(error));
      const reason = error instanceof AskError ? error.reason : error instanceof EngineError ? "invalid" : "internal";
      this.send({ failed: ask.id, message, reason }, []);
    }
  }

  private chooseLanguage(ask: Ask): Language {
    return ask.language ?? this.hello.language ?? "en";
  }

  private translate(ask: Ask, message: string): string {
    return this.chooseLanguage(ask) === "ko" ? translate(message, this.shown.pack.messages) : message;
  }

  private answerAtOnce(ask: Ask): Promise<Answer | null> | Answer | null {
    switch (ask.ask) {
      case "hello":
        return { body: this.hello };
      case "select":
        return { body: {} };
      case "cancel":
        this.stop("cancelled", (job) => job.ask.id === ask.cancel);
        return { body: {} };
      case "layers": {
        const run = this.requireRun(ask);
        return { body: describeLayers(run.model, run.getPass(ask.show), ask.sequence, ask.position) };
      }
    }
    const run = this.requireRun(ask);
    if (ask.ask === "code" && (ask.contrast ?? null) === null) return { body: { code: writeCode(run.run, run.parts, ask.selection ?? null) } };
    if ((ask.contrast ?? null) === null) return run.answer(ask);
    if (ask.contrast !== this.contrast?.number) throw new AskError(`contrast ${ask.contrast} is not the last one of this run; ask for it again`, "invalid");
    return this.contrast!.answer(ask);
  }

  private requireRun(ask: Ask): LiveRun {
    if (!this.run || ask.run !== this.run.run.run) throw new AskError("a newer run has replaced this one", "outdated");
    return this.run;
  }

  private async answerRun(job: Job): Promise<Answer> {
    const { ask } = job;
    const shown = this.findModel(ask.model);
    const { model } = shown;
    const begin = performance.now();
    const text: string = ask.text ?? this.hello.text;
    const { tokens, unknown, note } = prepareText(model, text, this.chooseLanguage(ask));
    const notes = note ? [note] : [];
    const edits = ask.edits ?? [];
    let input: EnginePass["input"] = { source: tokens };
    let generated = tokens.length;
    if (model.isEncoderDecoder) {
      const { target, isUnfinished } = prepareAnswer(model, tokens);
      if (isUnfinished) notes.push(`the answer is cut after ${target.length - 1} tokens`);
      input = { source: tokens, target };
      generated = 1;
    } else if (ask.generate) {
      const limit = Math.min(ask.generate, model.contextLength - tokens.length);
      if (limit < ask.generate) notes.push(`the model reads at most ${model.contextLength.toLocaleString("en")} tokens, so that ${Math.max(0, limit)} new tokens fit`);
      const written: number[] = [];
      if (limit > 0)
        for (const { token } of generate(model, input, { edits, limit })) {
          written.push(token);
          await job.report(written.length, limit, "running");
        }
      input = { source: [...tokens, ...written] };
    }

    const before = this.shown === shown ? this.run?.parts.clean : undefined;
    const isSame = before !== undefined && JSON.stringify(before.input) === JSON.stringify(input);
    if (!isSame) this.kinds = this.contrast = null;
    await job.report(0, 0, "running");
    const clean = isSame ? before : forward(model, input, { logits: MAX_PREDICTIONS });
    await job.report(0, 0, "running");
    const edited = edits.length ? forward(model, input, { edits, reuse: clean, logits: MAX_PREDICTIONS }) : null;
    const editedAnswer = edits.length && model.isEncoderDecoder ? this.answerAgain(model, tokens, edits, notes) : null;
    const seconds = (performance.now() - begin) / 1000;
    const number = ++this.lastNumber;
    this.shown = shown;
    this.run = new LiveRun(model, { number, name: shown.name, text, unknown, notes: notes.map((note) => this.translate(ask, note)), edits, generated, clean, edited, editedAnswer, seconds }, shown.pack.texts);
    return { body: this.run.run };
  }

  /** Compare the input of a run with a second text, or patch parts of one into the other. */
  private async answerContrast(job: Job, run: LiveRun): Promise<Answer> {
    const { ask, report } = { ask: job.ask, report: job.report.bind(job) };
    const other = this.findModel(ask.model ?? this.shown.name);
    const text: string | null = ask.text ?? null;
    if (text === null && other === this.shown) throw new AskError("there is nothing to compare; give a second text or a second model", "invalid");
    if (this.contrast?.key !== JSON.stringify([other.name, text])) {
      const input = this.prepareSecond(run, other.model, text, ask);
      this.contrast = new LiveContrast(++this.lastContrast, text, run, other, input);
    }
    if (ask.ask === "sweep") return this.contrast!.sweep(ask, report);
    return ask.ask === "patch" ? this.contrast!.measurePatches(ask) : this.contrast!.describe(ask, report);
  }

  /** Return the second input; the same text is read with the answer of the first model, where both have the same tokens. */
  private prepareSecond(run: LiveRun, model: EngineModel, text: string | null, ask: Ask): PassInput {
    const { tokens: source } = prepareText(model, text ?? run.parts.text, this.chooseLanguage(ask));
    const first = run.parts.clean.input;
    if (text === null && String(first.source.slice(0, source.length)) === String(source)) return first;
    return model.isEncoderDecoder ? { source, target: prepareAnswer(model, source).target } : { source };
  }

  private findModel(name: string | null | undefined): LiveModel {
    const found = this.models.find((model) => model.name === (name ?? this.hello.model));
    if (!found) throw new AskError(`there is no model '${name}' in the list of models`, "invalid");
    return found;
  }

  /** Return the translation that the model writes under the edits; null if they name positions that it does not reach. */
  private answerAgain(model: EngineModel, source: number[], edits: Edit[], notes: string[]): string | null {
    try {
      const tokens = [...generate(model, { source }, { edits, limit: ANSWER_TOKENS })];
      const text = tokens.filter(({ isEnd }) => !isEnd).map(({ token }) => token);
      return model.tokenizer!.decode(text);
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      notes.push(`the model cannot write an answer under these edits: ${error.message}`);
      return null;
    }
  }

  /** Classify every head of the clean pass; the profile of the model on built-in texts is computed once. */
  private async classify(job: Job, run: LiveRun): Promise<Kinds> {
    if (this.kinds) return this.kinds;
    const { shown } = this;
    const { model, pack } = shown;
    if (!model.isEncoderDecoder && !shown.profile) {
      const total = pack.sentences.english.length + pack.sentences.korean.length + 1;
      const work = buildProfile(model, pack.sentences);
      for (let [step, done] = [work.next(), 1]; ; step = work.next(), done++) {
        if (step.done) shown.profile = step.value;
        if (step.done) break;
        await job.report(done, total, "classifying");
      }
    }
    const heads: Kinds["heads"] = [];
    for (const facts of describeKinds(model, run.parts.clean, shown.profile)) {
      heads.push(facts);
      await job.report(heads.length, run.run.model.heads, "classifying");
    }
    return (this.kinds = { heads, sampled: null });
  }

  /** Measure the effect of every head, or of a cell, on the clean prediction. */
  private async measure(job: Job, run: LiveRun): Promise<Effects> {
    const { over, by = "zero", site, query, key } = job.ask;
    if (over === "edges") throw new AskError("a page that computes by itself measures no edges", "invalid");
    const begin = performance.now();
    const { model, parts: { clean } } = run;
    const metric = chooseMetric(model, clean, job.ask.metric);
    const work = over === "cell" ? measureCell(model, clean, metric, site, query, key) : measureHeads(model, clean, metric, by);
    const rows: (HeadEffect | EffectRow)[] = [];
    for (const row of work) {
      rows.push(row);
      await job.report(rows.length, over === "cell" ? 0 : run.run.model.heads, "measuring");
    }
    return {
      over,
      by,
      metric: describeMetric(model, metric, (clean.input.target ?? clean.input.source).length),
      clean: metric.clean,
      seconds: (performance.now() - begin) / 1000,
      rows: over === "cell" ? (rows as EffectRow[]) : rankEffects(rows),
    };
  }
}
