/** The run that the page shows: a model that has read an input, its thumbnails, and what was measured on it. */

import { batch, computed, signal } from "@preact/signals";
import type { App, ShownMaps } from "./app";
import type { Effects, HeadFacts, Over, Pass, Run, Selection } from "./protocol";
import { checkSelection } from "./selection";
import { AskError } from "./wire/client";

const LONG_TEXT = 2048; // tokens; the weights of longer texts are too small for the other scales
const THUMBNAIL_CELLS = 40;

export interface Thumbnail {
  bytes: Uint8Array;
  rows: number;
  columns: number;
}

/** An attention that a slow run has computed. */
export interface Preview {
  name: string;
  heads: Thumbnail[];
}

/** What a run shows first. */
interface RunOptions {
  selection?: Selection;
  shown?: ShownMaps;
  generate?: number;
}

export class RunState {
  readonly current = signal<Run | null>(null);
  /** A model that was chosen and has not run yet: it is being opened, or waits for a text. */
  readonly chosen = signal<string | null>(null);
  readonly model = computed(() => this.chosen.value ?? this.current.value?.model.name ?? this.app.hello.value?.model ?? "");
  readonly thumbnails = signal<Map<string, Thumbnail>>(new Map());
  /** The attentions that a slow run has computed; empty when it has finished. */
  readonly previews = signal<Preview[]>([]);
  readonly facts = signal<Map<string, HeadFacts>>(new Map());
  /** Why the heads have no kinds; empty if they do, or will. */
  readonly noKinds = signal("");
  /** Of a long text: how many queries of each head its kind was found by; null: all. */
  readonly sampledQueries = signal<number | null>(null);
  readonly effects = signal<Partial<Record<Over, Effects>>>({});
  /** Changes with the input: the audio of the same input is not asked for again. */
  readonly soundKey = signal(0);
  pictureBytes: Uint8Array | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly app: App) {}

  /** Run a model on a text with the current edits, and show the result; false if it failed. On a page that answers
   * questions, the text is the prompt with its answer. */
  async execute(model: string, text: string | null, options: RunOptions = {}): Promise<boolean> {
    const { app } = this;
    app.failure.value = null;
    try {
      const fields = {
        model,
        text,
        answer: app.desk.answer.value?.number,
        edits: app.edits.current.value,
        generate: options.generate ?? 0,
      };
      this.previews.value = [];
      const { body, buffers } = await app.work("run", fields, ({ name, heads, rows, columns }, bytes) => {
        const thumbnails = splitThumbnails(bytes, heads, rows, columns);
        this.previews.value = [...this.previews.value, { name, heads: thumbnails }];
      });
      this.show(body, buffers, options);
      return true;
    } catch (error) {
      if (!(error instanceof AskError && error.isSuperseded)) this.previews.value = [];
      const isCancelled = error instanceof AskError && error.reason === "cancelled";
      if (isCancelled && !this.current.value) app.failure.value = app.words.value.cancelledFirst;
      app.fail(error);
      return false;
    }
  }

  /** Open another model. One that reads text and does not get one that it can read waits for another text, and the panels are
   * empty; one that reads images or audio gets its input when the page is started, so the model before it stays. */
  async choose(model: string, text: string): Promise<void> {
    const reads = this.app.hello.value?.models.find(({ name }) => name === model)?.reads;
    const isTyped = reads === "text" || reads === "numbers";
    this.app.edits.forget();
    this.chosen.value = model;
    if (isTyped && !text.trim()) this.current.value = null;
    else if (!(await this.execute(model, isTyped ? text : null)) && this.chosen.value === model) {
      if (isTyped) this.current.value = null;
      else this.chosen.value = null;
    }
  }

  /** Run the current input again, for example with other edits. */
  repeat(delay = 0): void {
    clearTimeout(this.timer);
    if (delay) {
      this.timer = setTimeout(() => this.repeat(), delay);
      return;
    }
    const { desk, hello } = this.app;
    const run = this.current.value;
    if (desk.isActive.value) desk.update();
    else if (run) void this.execute(run.model.name, run.text);
    else if (hello.value) void this.execute(hello.value.model, hello.value.text);
  }

  dispose(): void {
    clearTimeout(this.timer);
  }

  private show(run: Run, buffers: Uint8Array[], options: RunOptions): void {
    const { app } = this;
    const before = this.current.value;
    const previews = this.previews.value;
    const isSameModel = before?.model.name === run.model.name && before.sites.length === run.sites.length;
    const isSameText = isSameModel && nameInput(before) === nameInput(run);
    batch(() => {
      if (run.image) this.pictureBytes = buffers[run.image.png].slice();
      const isFirstEdit = !before?.edited && run.edited;
      this.current.value = run;
      this.previews.value = [];
      this.chosen.value = null;
      app.edits.current.value = run.edits;
      if (options.shown && (run.edited || options.shown === "clean")) app.shown.value = options.shown;
      else if (!run.edited) app.shown.value = "clean";
      else if (isFirstEdit) app.shown.value = "edited";
      if (!isSameText) {
        this.soundKey.value++;
        this.thumbnails.value = this.readPreviews(run, previews);
        this.effects.value = {};
        app.measurement.forgetTokens();
        app.selection.forgetOthers();
        this.facts.value = new Map();
        const selection = options.selection ?? (isSameModel ? { ...app.selection.current.value, query: null, key: null } : run.first_selection);
        app.selection.current.value = checkSelection(run, selection);
        if (!options.selection && run.image && app.view.value === "map") app.view.value = "image";
        if (!run.image && app.view.value === "image") app.view.value = "map";
        if (!app.hasChosenScale) app.scale.value = run.source.length > LONG_TEXT ? "log" : "sqrt";
      }
      if (options.generate) app.view.value = "generation";
    });
    app.tiles.startRun(run.run);
    void this.loadThumbnails(run);
    // a run that was asked meanwhile stops the classification
    if ((!isSameText || this.facts.value.size === 0) && app.can("kinds")) void this.classify();
    if (app.hello.value?.carrier === "file") void this.loadStoredEffects(run);
    app.announcement.value = app.words.value.runDone(run.source.length, run.sites.length, run.edits.length);
  }

  /** The previews are shown until the thumbnails are loaded. */
  private readPreviews(run: Run, previews: Preview[]): Map<string, Thumbnail> {
    const sites = new Map(run.sites.map(({ name }, site) => [name, site]));
    return new Map(previews.flatMap(({ name, heads }) => heads.map((thumbnail, head) => [headKey(sites.get(name) ?? -1, head), thumbnail])));
  }

  /** Show the effects that were measured before the file was saved. */
  private async loadStoredEffects(run: Run): Promise<void> {
    for (const over of ["heads", "edges"] as const) {
      try {
        const { body } = await this.app.client.ask("effect", { run: run.run, over });
        this.effects.value = { ...this.effects.value, [over]: body };
      } catch (error) {
        if (!(error instanceof AskError)) throw error; // not measured
      }
    }
  }

  /** Load the thumbnails site by site, those of the selected site first. */
  private async loadThumbnails(run: Run): Promise<void> {
    const pass: Pass = run.edited ? "edited" : "clean";
    const first = this.app.selection.current.value.site;
    const order = run.sites.map((_, index) => index).sort((a, b) => Number(b === first) - Number(a === first) || a - b);
    for (const site of order) {
      if (this.current.value !== run) return;
      try {
        const { body, buffers } = await this.app.client.ask("thumbnails", { run: run.run, show: pass, site, size: THUMBNAIL_CELLS });
        if (this.current.value !== run) return;
        const loaded = new Map(this.thumbnails.value);
        splitThumbnails(buffers[0], body.heads, body.rows, body.columns).forEach((thumbnail, head) => loaded.set(headKey(site, head), thumbnail));
        this.thumbnails.value = loaded;
      } catch (error) {
        this.app.fail(error);
        return;
      }
    }
  }

  /** Find the kind of every head. */
  async classify(): Promise<void> {
    const run = this.current.value;
    if (!run) return;
    this.noKinds.value = "";
    try {
      const { body } = await this.app.client.ask("kinds", { run: run.run });
      if (this.current.value?.run !== run.run) return;
      this.facts.value = new Map(body.heads.map((facts) => [headKey(facts.site, facts.head), facts]));
      this.sampledQueries.value = body.sampled;
    } catch (error) {
      if (error instanceof AskError && error.reason === "invalid") this.noKinds.value = error.message;
      else this.app.fail(error);
    }
  }

  /** Measure the effect of cutting one cell, in the heads of the same sequences as an attention. */
  async measureCell(site: number, query: number, key: number): Promise<void> {
    await this.measure("cell", { site, query, key });
  }

  /** Measure the effect of all heads, or of the strongest edges. */
  async measure(over: Over, cell: { site?: number; query?: number; key?: number } = {}): Promise<void> {
    const run = this.current.value;
    if (!run) return;
    const { by, describe } = this.app.measurement;
    this.app.failure.value = null;
    try {
      const choice = { by: over === "heads" ? by.value : undefined, metric: describe.call(this.app.measurement, run) };
      const { body } = await this.app.work("effect", { run: run.run, over, ...cell, ...choice });
      this.effects.value = { ...this.effects.value, [over]: body };
      this.app.announcement.value = this.app.words.value.effectDone(body.rows.length);
    } catch (error) {
      this.app.fail(error);
    }
  }
}

function splitThumbnails(bytes: Uint8Array, heads: number, rows: number, columns: number): Thumbnail[] {
  const size = rows * columns;
  return Array.from({ length: heads }, (_, head) => ({ bytes: bytes.slice(head * size, (head + 1) * size), rows, columns }));
}

function nameInput({ source, target }: Run): string {
  return [...source, "", ...target].join("\u0000");
}

export function headKey(site: number, head: number): string {
  return `${site}.${head}`;
}
