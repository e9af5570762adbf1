/** The state of one view: signals that the views read, and the actions that change them. One page has one App; a
 * notebook has one for each widget. */

import { batch, computed, effect, signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { AnswerDesk } from "./answer/desk";
import type { Scale, Theme } from "./colour";
import { copyText, download } from "./copy";
import { EditHistory } from "./edit_history";
import { hideStretch } from "./sound/stretches";
import { type LinkState, readFragment, writeFragment } from "./link";
import type { Rectangle } from "./map/painter";
import { TileStore } from "./map/tiles";
import type {
  Code,
  Edit,
  Effects,
  HeadFacts,
  Hello,
  Kinds,
  Pass,
  Run,
  SavedFile,
  Selection,
  Shown,
  Site,
  Thumbnails,
} from "./protocol";
import { AskError, type Client, type ProgressReport } from "./wire/client";
import { chooseLanguage, type Language, WORDS } from "./words";

export type View = "map" | "lines" | "computation" | "effect" | "image" | "generation";
/** What the centre shows of the passes; "all" puts clean, edited and their difference side by side. */
export type ShownMaps = Shown | "all";
export type HeadOrder = "model" | "kind" | "entropy" | "effect" | "similar";

export interface Thumbnail {
  bytes: Uint8Array;
  rows: number;
  columns: number;
}

/** A long computation that the user waits for. */
export interface Task {
  id: number;
  name: "run" | "kinds" | "effect" | "question" | "evidence" | "cut";
  report: ProgressReport;
}

const LONG_TEXT = 2048; // tokens; the weights of longer texts are too small for the other scales
const RUN_DELAY = 120; // ms between a dragged slider's last change and the run

export class App {
  readonly language = signal<Language>("en");
  readonly words = computed(() => WORDS[this.language.value]);
  readonly theme = signal<Theme>("light");

  readonly hello = signal<Hello | null>(null);
  readonly run = signal<Run | null>(null);
  /** A model that was chosen and has not run yet: it is being opened, or waits for a text. */
  readonly chosen = signal<string | null>(null);
  readonly model = computed(() => this.chosen.value ?? this.run.value?.model.name ?? this.hello.value?.model ?? "");
  readonly failure = signal<string | null>(null);
  readonly closed = signal<string | null>(null);
  readonly task = signal<Task | null>(null);
  readonly announcement = signal("");

  readonly selection = signal<Selection>({ site: 0, head: 0, query: null, key: null });
  readonly view = signal<View>("map");
  readonly shown = signal<ShownMaps>("clean");
  readonly scale = signal<Scale>("sqrt");
  readonly skipFirst = signal(false);
  readonly order = signal<HeadOrder>("model");
  readonly largestDifference = signal(1);

  readonly thumbnails = signal<Map<string, Thumbnail>>(new Map());
  readonly facts = signal<Map<string, HeadFacts>>(new Map());
  /** Why the heads have no kinds; empty if they do, or will. */
  readonly noKinds = signal("");
  readonly headEffects = signal<Effects | null>(null);
  readonly edgeEffects = signal<Effects | null>(null);

  /** The edits on screen; the run follows. */
  readonly edits = signal<Edit[]>([]);
  readonly history = new EditHistory();
  /** Questions about a folder; it is active on pages of `jumok ask`. */
  readonly desk = new AnswerDesk(this);

  readonly site = computed<Site | null>(() => this.run.value?.sites[this.selection.value.site] ?? null);
  /** The pass that lists and lines read: with edits the edited one, unless the clean one is chosen. */
  readonly pass = computed<Pass>(() => (this.run.value?.edited && this.shown.value !== "clean" ? "edited" : "clean"));

  readonly tiles: TileStore;
  private token = "";
  private runTimer: ReturnType<typeof setTimeout> | undefined;
  private disposers: (() => void)[] = [];
  private linked: LinkState = {};

  constructor(
    readonly client: Client,
    readonly hasAddress: boolean,
  ) {
    this.tiles = new TileStore(client);
    if (hasAddress) {
      const fragment = readFragment(location.hash);
      this.token = fragment.token;
      this.linked = fragment.state;
    }
    this.theme.value = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    this.language.value = chooseLanguage(navigator.languages);
    client.onState = (state) => this.receiveState(state);
    client.onClose = (reason) => (this.closed.value = reason);
    this.disposers.push(effect(() => this.reportSelection(this.selection.value)));
    if (hasAddress) this.disposers.push(effect(() => this.writeLink()));
  }

  dispose(): void {
    for (const dispose of this.disposers) dispose();
    clearTimeout(this.runTimer);
    this.tiles.clear();
  }

  private hasChosenScale = false;

  chooseScale(scale: Scale): void {
    this.hasChosenScale = true;
    this.scale.value = scale;
  }

  can(ask: string): boolean {
    return this.hello.value?.can.includes(ask) ?? false;
  }

  /** Connect: ask who answers, then run the first input. */
  async start(): Promise<void> {
    try {
      const { body } = await this.client.ask<Hello>("hello", { language: this.language.value });
      const linked = this.linked;
      batch(() => {
        this.hello.value = body;
        if (body.language) this.language.value = body.language;
        this.edits.value = isEditList(linked.edits) ? linked.edits : body.edits;
        if (linked.view) this.view.value = linked.view as View;
        if (linked.scale) this.chooseScale(linked.scale as Scale);
        if (linked.skip_first) this.skipFirst.value = true;
      });
      if (body.questions) return await this.desk.start(linked);
      const selection = linked.selection ?? body.selection;
      await this.execute(linked.model ?? body.model, linked.text === undefined ? body.text : linked.text, {
        selection: selection ?? undefined,
        shown: linked.show as ShownMaps | undefined,
      });
    } catch (error) {
      this.fail(error);
    }
  }

  /** Run a model on a text with the current edits, and show the result; false if it failed. On a page that answers
   * questions, the text is the prompt with its answer. */
  async execute(
    model: string,
    text: string | null,
    options: { selection?: Selection; shown?: ShownMaps; generate?: number } = {},
  ): Promise<boolean> {
    this.failure.value = null;
    try {
      const { body, buffers } = await this.work<Run>("run", "run", {
        model,
        text,
        answer: this.desk.answer.value?.number,
        edits: this.edits.value,
        generate: options.generate ?? 0,
      });
      this.showRun(body, buffers, options);
      return true;
    } catch (error) {
      const isCancelled = error instanceof AskError && error.reason === "cancelled";
      if (isCancelled && !this.run.value) this.failure.value = this.words.value.cancelledFirst;
      this.fail(error);
      return false;
    }
  }

  /** Open another model. One that reads text and does not get one that it can read waits for another text, and the panels are
   * empty; one that reads images or audio gets its input when the page is started, so the model before it stays. */
  async choose(model: string, text: string): Promise<void> {
    const reads = this.hello.value?.models.find(({ name }) => name === model)?.reads;
    const isTyped = reads === "text" || reads === "numbers";
    this.forgetEdits();
    this.chosen.value = model;
    if (isTyped && !text.trim()) this.run.value = null;
    else if (!(await this.execute(model, isTyped ? text : null)) && this.chosen.value === model) {
      if (isTyped) this.run.value = null;
      else this.chosen.value = null;
    }
  }

  /** Run the current input again, for example with other edits. */
  rerun(delay = 0): void {
    clearTimeout(this.runTimer);
    if (delay) {
      this.runTimer = setTimeout(() => this.rerun(), delay);
      return;
    }
    const run = this.run.value;
    if (this.desk.isActive.value) this.desk.update();
    else if (run) void this.execute(run.model.name, run.text);
    else if (this.hello.value) void this.execute(this.hello.value.model, this.hello.value.text);
  }

  pictureBytes: Uint8Array | null = null;
  /** Changes with the input: the audio of the same input is not asked for again. */
  readonly soundKey = signal(0);

  private showRun(run: Run, buffers: Uint8Array[], options: { selection?: Selection; shown?: ShownMaps; generate?: number }): void {
    const before = this.run.value;
    const isSameModel = before?.model.name === run.model.name && before.sites.length === run.sites.length;
    const isSameText = isSameModel && before.source.join("\u0000") === run.source.join("\u0000") && before.target.join("\u0000") === run.target.join("\u0000");
    batch(() => {
      if (run.image) this.pictureBytes = buffers[run.image.png].slice();
      const isFirstEdit = !before?.edited && run.edited;
      this.run.value = run;
      this.chosen.value = null;
      this.edits.value = run.edits;
      if (options.shown && (run.edited || options.shown === "clean")) this.shown.value = options.shown;
      else if (!run.edited) this.shown.value = "clean";
      else if (isFirstEdit) this.shown.value = "edited";
      if (!isSameText) {
        this.soundKey.value++;
        this.thumbnails.value = new Map();
        this.headEffects.value = null;
        this.edgeEffects.value = null;
        this.selection.value = checkSelection(run, options.selection ?? (isSameModel ? { ...this.selection.value, query: null, key: null } : run.first_selection));
        this.facts.value = new Map();
        if (!options.selection && run.image && this.view.value === "map") this.view.value = "image";
        if (!run.image && this.view.value === "image") this.view.value = "map";
        if (!this.hasChosenScale) this.scale.value = run.source.length > LONG_TEXT ? "log" : "sqrt";
      }
      if (options.generate) this.view.value = "generation";
    });
    this.tiles.startRun(run.run);
    void this.loadThumbnails(run);
    // a run that was asked meanwhile stops the classification
    if ((!isSameText || this.facts.value.size === 0) && this.can("kinds")) void this.classify();
    if (this.hello.value?.carrier === "file") void this.loadStoredEffects(run);
    const words = this.words.value;
    this.announcement.value = words.runDone(run.source.length, run.sites.length, run.edits.length);
  }

  /** Show the effects that were measured before the file was saved. */
  private async loadStoredEffects(run: Run): Promise<void> {
    for (const over of ["heads", "edges"] as const) {
      try {
        const { body } = await this.client.ask<Effects>("effect", { run: run.run, over });
        if (over === "heads") this.headEffects.value = body;
        else this.edgeEffects.value = body;
      } catch (error) {
        if (!(error instanceof AskError)) throw error; // not measured
      }
    }
  }

  /** Load the thumbnails site by site, those of the selected site first. */
  private async loadThumbnails(run: Run): Promise<void> {
    const pass: Pass = run.edited ? "edited" : "clean";
    const first = this.selection.value.site;
    const order = run.sites.map((_, index) => index).sort((a, b) => Number(b === first) - Number(a === first) || a - b);
    for (const site of order) {
      if (this.run.value !== run) return;
      try {
        const { body, buffers } = await this.client.ask<Thumbnails>("thumbnails", { run: run.run, show: pass, site, size: 40 });
        if (this.run.value !== run) return;
        const loaded = new Map(this.thumbnails.value);
        const size = body.rows * body.columns;
        for (let head = 0; head < body.heads; head++) {
          const bytes = buffers[0].slice(head * size, (head + 1) * size);
          loaded.set(headKey(site, head), { bytes, rows: body.rows, columns: body.columns });
        }
        this.thumbnails.value = loaded;
      } catch (error) {
        if (error instanceof AskError && error.isSuperseded) return;
        this.fail(error);
        return;
      }
    }
  }

  /** Find the kind of every head. */
  async classify(): Promise<void> {
    const run = this.run.value;
    if (!run) return;
    this.noKinds.value = "";
    try {
      const { body } = await this.client.ask<Kinds>("kinds", { run: run.run });
      if (this.run.value?.run !== run.run) return;
      this.facts.value = new Map(body.heads.map((facts) => [headKey(facts.site, facts.head), facts]));
    } catch (error) {
      if (error instanceof AskError && error.reason === "invalid") this.noKinds.value = error.message;
      else this.fail(error);
    }
  }

  /** Measure the effect of all heads, or of the strongest edges. */
  async measure(over: "heads" | "edges"): Promise<void> {
    const run = this.run.value;
    if (!run) return;
    this.failure.value = null;
    try {
      const { body } = await this.work<Effects>("effect", "effect", { run: run.run, over });
      if (over === "heads") this.headEffects.value = body;
      else this.edgeEffects.value = body;
      this.announcement.value = this.words.value.effectDone(body.rows.length);
    } catch (error) {
      this.fail(error);
    }
  }

  async work<Body>(task: Task["name"], ask: string, fields: Record<string, unknown>) {
    let own = 0;
    try {
      return await this.client.ask<Body>(
        ask,
        fields,
        (report) => {
          if (this.task.value?.id === own) this.task.value = { id: own, name: task, report };
        },
        (id) => {
          own = id;
          this.task.value = { id, name: task, report: { done: 0, total: 0, stage: "" } };
        },
      );
    } finally {
      if (this.task.value?.id === own) this.task.value = null;
    }
  }

  cancelTask(): void {
    if (this.task.value) this.client.cancel(this.task.value.id);
  }

  // Edits

  /** Replace the edits; the changes of one drag are one step of undo. */
  setEdits(edits: Edit[]): void {
    this.history.add(this.edits.value);
    this.applyEdits(edits, this.history.isDragging ? RUN_DELAY : 0);
  }

  /** A slider is dragged. */
  beginDrag(): void {
    this.history.beginDrag(this.edits.value);
  }

  endDrag(): void {
    this.history.endDrag(this.edits.value);
  }

  addEdit(edit: Edit): void {
    const text = JSON.stringify(edit);
    if (this.edits.value.some((other) => JSON.stringify(other) === text)) return;
    this.setEdits([...this.edits.value, edit]);
  }

  /** Knock out cells of the selected head. */
  knockOut({ query, key, queries, keys }: Rectangle): void {
    const site = this.site.value;
    if (!site || !this.run.value?.model.is_editable || !this.can("run")) return;
    const list = (first: number, count: number) => (count === 1 ? first : Array.from({ length: count }, (_, index) => first + index));
    const head = this.selection.value.head;
    this.addEdit({ edit: "KnockOut", layer: site.layer, head, query: list(query, queries), key: list(key, keys) });
  }

  /** Hide a stretch of audio, from a position to the one before `end`, from every attention that reads the audio. */
  hideSound(first: number, end: number): void {
    const run = this.run.value;
    if (!run?.audio || !run.model.is_editable || !this.can("run")) return;
    this.setEdits([...this.edits.value, ...hideStretch(run, first, end)]);
  }

  removeEdits(indices: number[]): void {
    this.setEdits(this.edits.value.filter((_, position) => !indices.includes(position)));
  }

  /** Remove all edits without running the model; they cannot be restored. */
  forgetEdits(): void {
    this.edits.value = [];
    this.history.clear();
  }

  undo(): void {
    const edits = this.history.undo(this.edits.value);
    if (edits) this.applyEdits(edits);
  }

  redo(): void {
    const edits = this.history.redo(this.edits.value);
    if (edits) this.applyEdits(edits);
  }

  private applyEdits(edits: Edit[], delay = 0): void {
    this.edits.value = edits;
    this.rerun(delay);
  }

  // Selection

  select(change: Partial<Selection>): void {
    this.selection.value = { ...this.selection.value, ...change };
  }

  selectHead(site: number, head: number): void {
    const run = this.run.value;
    if (!run) return;
    const { query, key } = this.selection.value;
    this.selection.value = checkSelection(run, { site, head, query, key });
  }

  private reportSelection(selection: Selection): void {
    if (this.can("select") && this.run.peek()) this.client.ask("select", { selection }).catch(() => {});
  }

  private receiveState(state: Record<string, any>): void {
    if (state.selection && this.run.value) this.selection.value = checkSelection(this.run.value, state.selection);
    if (typeof state.text === "string" && this.run.value) void this.execute(this.run.value.model.name, state.text);
    else if (isEditList(state.edits)) this.setEdits(state.edits);
  }

  // Copies and files

  async copyCode(): Promise<string> {
    const run = this.run.value;
    if (!run) return "";
    const { body } = await this.client.ask<Code>("code", { run: run.run, selection: this.selection.value });
    await copyText(body.code);
    return body.code;
  }

  async copyLink(): Promise<void> {
    await copyText(location.href);
  }

  async saveFile(): Promise<void> {
    const run = this.run.value;
    if (!run) return;
    try {
      const { body, buffers } = await this.client.ask<SavedFile>("save", { run: run.run, selection: this.selection.value, language: this.language.value });
      download(new Blob([buffers[0].slice()], { type: "text/html" }), body.name);
    } catch (error) {
      this.fail(error);
    }
  }

  private writeLink(): void {
    const run = this.run.value;
    if (!run && !this.desk.answer.value) return;
    const state: LinkState = {
      ...(this.desk.isActive.value ? this.desk.describeLink() : { model: run?.model.name, text: run?.text, edits: this.edits.value }),
      selection: this.selection.value,
      view: this.view.value,
      show: this.shown.value,
      scale: this.scale.value,
      skip_first: this.skipFirst.value,
    };
    history.replaceState(null, "", writeFragment({ token: this.token, state }));
  }

  fail(error: unknown): void {
    if (error instanceof AskError) {
      if (error.isSuperseded || error.reason === "closed") return;
      this.failure.value = error.message;
      return;
    }
    this.failure.value = String(error);
    console.error(error);
  }
}

export function headKey(site: number, head: number): string {
  return `${site}.${head}`;
}

/** Return a selection that exists in a run; without one, the last head of the last site. */
export function checkSelection(run: Run, selection: Selection | null | undefined): Selection {
  const last = run.sites.length - 1;
  const chosen = selection ?? { site: last, head: 0, query: null, key: null };
  const site = Number.isInteger(chosen.site) && chosen.site >= 0 && chosen.site <= last ? chosen.site : last;
  const { heads, queries, keys } = run.sites[site];
  const within = (index: number | null, count: number) =>
    index !== null && Number.isInteger(index) && index >= 0 && index < count ? index : null;
  return {
    site,
    head: within(chosen.head, heads) ?? 0,
    query: within(chosen.query, queries) ?? (run.image && run.image.prefix > 0 && !run.target.length ? 0 : queries - 1),
    key: within(chosen.key, keys),
  };
}

function isEditList(edits: unknown): edits is Edit[] {
  return Array.isArray(edits) && edits.every((edit) => edit && typeof edit === "object");
}

const AppContext = createContext<App | null>(null);
export const AppProvider = AppContext.Provider;

export function useApp(): App {
  const app = useContext(AppContext);
  if (!app) throw new Error("a view outside of an AppProvider");
  return app;
}
