/** A second input beside that of the run: what was typed, the session's answers, and which parts are patched across. */

import { batch, effect, signal } from "@preact/signals";
import type { App } from "../app";
import type { Contrast, ContrastAsk, Patched, PatchedPart, PatchPart, Run, Sweep } from "../protocol";
import { asFloats, AskError } from "../wire/client";

/** A sweep, with metric(patched) - metric(corrupted) of each layer and head or position. */
export interface MeasuredSweep {
  sweep: Sweep;
  effects: Float32Array;
}

export class ContrastState {
  readonly text = signal("");
  /** The model that reads the second text; empty: the model of the run. */
  readonly model = signal("");
  /** The tokens of the logit difference, as their labels or texts. */
  readonly tokens = signal({ right: "", wrong: "" });
  readonly current = signal<Contrast | null>(null);
  /** By head, in the order of the run's sites: how far its rows are apart. Empty for long texts. */
  readonly changes = signal<Float32Array>(new Float32Array());
  readonly sweeps = signal<Partial<Record<PatchPart, MeasuredSweep>>>({});
  readonly patches = signal<PatchedPart[]>([]);
  readonly patched = signal<Patched | null>(null);
  readonly dispose: () => void;
  private asked: Omit<ContrastAsk, "run"> | null = null; // what `current` answers
  private input = ""; // of the run that was compared
  private patchAsk = 0;
  private shownText: string | null = null; // of the run before

  constructor(private readonly app: App) {
    this.dispose = effect(() => this.follow(app.run.current.value));
  }

  /** Compare the text or the model that was chosen with those of the run. */
  async compare(): Promise<void> {
    const { app } = this;
    const run = app.run.current.value;
    if (!run) return;
    const isSameText = run.text === null || this.text.value === run.text;
    const model = this.model.value && this.model.value !== run.model.name ? this.model.value : null;
    const most = app.hello.value?.max_text ?? Infinity;
    if (isSameText && !model) app.failure.value = app.words.value.contrast.nothing;
    else if (run.text !== null && !this.text.value.trim()) app.failure.value = app.words.value.emptyText;
    else if (this.text.value.length > most) app.failure.value = app.words.value.tooLong(most);
    else await this.ask(run, { text: isSameText ? null : this.text.value, model });
  }

  /** Measure another logit difference. */
  async chooseTokens(right: string, wrong: string): Promise<void> {
    const run = this.app.run.current.value;
    if (!run || !this.asked) return;
    await this.ask(run, { text: this.asked.text, model: this.asked.model, right: right || null, wrong: wrong || null });
  }

  /** Exchange the texts: the second one becomes that of the run. */
  async swap(): Promise<void> {
    const run = this.app.run.current.value;
    if (run?.text == null || !this.text.value.trim()) return;
    const first = run.text;
    const { right, wrong } = this.tokens.value;
    if (!(await this.app.run.execute(run.model.name, this.text.value))) return;
    const swapped = this.app.run.current.value!;
    this.text.value = first;
    await this.ask(swapped, { text: first, model: null, right: wrong || null, wrong: right || null });
  }

  private async ask(run: Run, asked: Omit<ContrastAsk, "run">): Promise<void> {
    const { app } = this;
    app.failure.value = null;
    try {
      const { body, buffers } = await app.work("contrast", { run: run.run, ...asked });
      if (app.run.current.value !== run) return;
      const { metric } = body;
      const isSame = this.current.value?.contrast === body.contrast && sameTokens(this.current.value, body);
      batch(() => {
        this.current.value = body;
        this.changes.value = asFloats(buffers[0]).slice();
        if (metric?.right && metric.wrong) this.tokens.value = { right: metric.right.label, wrong: metric.wrong.label };
        this.asked = metric?.right && metric.wrong ? { ...asked, right: metric.right.id, wrong: metric.wrong.id } : asked;
        this.input = nameInput(run);
        if (isSame) return;
        this.sweeps.value = {};
        this.patched.value = null;
        if (!body.can_patch) this.patches.value = [];
        this.patches.value = this.patches.value.filter(({ position }) => position === null || position < (body.target.length || body.source.length));
        app.announcement.value = app.words.value.contrast.compared;
      });
      if (this.patches.value.length) void this.patch();
    } catch (error) {
      app.fail(error);
    }
  }

  /** Patch every head, MLP or position, one at a time. */
  async measure(part: PatchPart): Promise<void> {
    const { app, asked } = this;
    const run = app.run.current.value;
    const contrast = this.current.value;
    if (!run || !asked || !contrast) return;
    app.failure.value = null;
    try {
      const { body, buffers } = await app.work("sweep", { run: run.run, ...asked, part });
      if (this.current.value !== contrast) return;
      this.sweeps.value = { ...this.sweeps.value, [part]: { sweep: body, effects: asFloats(buffers[0]).slice() } };
      app.announcement.value = app.words.value.effectDone(body.layers.length * body.columns);
    } catch (error) {
      app.fail(error);
    }
  }

  isPatched(patch: PatchedPart): boolean {
    return this.patches.value.some((other) => isSamePart(other, patch));
  }

  /** Patch a part across, or take its patch back. */
  toggle(patch: PatchedPart): void {
    const others = this.patches.value.filter((other) => !isSamePart(other, patch));
    this.patches.value = others.length < this.patches.value.length ? others : [...others, patch];
    void this.patch();
  }

  clearPatches(): void {
    this.patches.value = [];
    void this.patch();
  }

  /** Measure the second text with all chosen patches; only the newest answer counts. */
  private async patch(): Promise<void> {
    const { app, asked } = this;
    const run = app.run.current.value;
    const contrast = this.current.value;
    const number = ++this.patchAsk;
    if (!this.patches.value.length) this.patched.value = null;
    if (!run || !asked || !contrast || !this.patches.value.length) return;
    try {
      const { body } = await app.client.ask("patch", { run: run.run, ...asked, patches: this.patches.value });
      if (number !== this.patchAsk || this.current.value !== contrast) return;
      this.patched.value = body;
    } catch (error) {
      if (number !== this.patchAsk) return;
      if (error instanceof AskError && error.reason === "invalid") this.patches.value = this.patches.value.slice(0, -1);
      app.fail(error);
    }
  }

  /** Return a program that computes what is shown: a sweep, or the patches. */
  async writeCode(part: PatchPart | null): Promise<string> {
    const run = this.app.run.current.value;
    if (part !== null) return this.sweeps.value[part]?.sweep.code ?? "";
    if (!run || !this.asked) return "";
    const { body } = await this.app.client.ask("patch", { run: run.run, ...this.asked, patches: this.patches.value });
    return body.code;
  }

  /** A new run: with the same input (other edits) the contrast stays, and is asked for under the run's number. */
  private follow(run: Run | null): void {
    const input = run ? nameInput(run) : "";
    if (run?.text != null) {
      // a second text that nobody has changed follows the first one, so that a word of it can be replaced
      if (this.text.peek() === (this.shownText ?? "")) this.text.value = run.text;
      this.shownText = run.text;
    }
    if (run && input === this.input && this.asked) {
      const asked = this.asked;
      queueMicrotask(() => void this.ask(run, asked));
      return;
    }
    batch(() => {
      this.current.value = null;
      this.asked = null;
      this.input = "";
      this.sweeps.value = {};
      this.patches.value = [];
      this.patched.value = null;
    });
  }
}

function isSamePart(a: PatchedPart, b: PatchedPart): boolean {
  return a.part === b.part && a.site === b.site && a.head === b.head && a.position === b.position;
}

function sameTokens(a: Contrast, b: Contrast): boolean {
  return a.metric?.right?.id === b.metric?.right?.id && a.metric?.wrong?.id === b.metric?.wrong?.id;
}

function nameInput({ model, source, target }: Run): string {
  return [model.name, ...source, "", ...target].join("\u0000");
}

/** Return the share of the difference between the texts that an effect restores; null where there is no difference. */
export function restoredShare(effect: number, metric: { clean: number; corrupted: number }): number | null {
  const gap = metric.clean - metric.corrupted;
  return Math.abs(gap) < 1e-6 || Number.isNaN(effect) ? null : effect / gap;
}
