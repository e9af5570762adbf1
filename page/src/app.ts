/** One view of a session: its connection, its settings, and its state in three parts: run, selection and edits. One page
 * has one App; a notebook has one for each widget. */

import { batch, computed, effect, signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { AnswerDesk } from "./answer/desk";
import type { Scale, Theme } from "./colour";
import { ContrastState } from "./contrast/state";
import { copyText, download } from "./copy";
import { EditList } from "./edits";
import { GuideState } from "./guide/guide";
import { MeasurementState } from "./measurement";
import { type LinkState, readFragment, writeFragment } from "./link";
import { TileStore } from "./map/tiles";
import type { Asks, Edit, Hello, Language, LayerPreview, Pass, Progress, Shown, State } from "./protocol";
import { RunState } from "./run";
import { checkSelection, SelectionState } from "./selection";
import { AskError, type Client, type Reply } from "./wire/client";
import { chooseLanguage, type Words, WORDS } from "./words";

export type View = keyof Words["views"];
/** What the centre shows of the passes; "all" puts clean, edited and their difference side by side. */
export type ShownMaps = Shown | "all";
export type HeadOrder = "model" | "kind" | "entropy" | "effect" | "similar";

/** A long computation that the user waits for. */
export interface Task {
  id: number;
  name: keyof Asks;
  report: Pick<Progress, "done" | "total" | "stage">;
}

export class App {
  readonly hello = signal<Hello | null>(null);
  readonly task = signal<Task | null>(null);
  readonly failure = signal<string | null>(null);
  readonly closed = signal<string | null>(null);
  readonly announcement = signal("");

  readonly language = signal<Language>("en");
  readonly words = computed(() => WORDS[this.language.value]);
  readonly theme = signal<Theme>("light");
  readonly view = signal<View>("map");
  readonly shown = signal<ShownMaps>("clean");
  readonly scale = signal<Scale>("sqrt");
  readonly skipFirst = signal(false);
  readonly order = signal<HeadOrder>("model");
  /** What the panel of the selected token shows: its weights in this head, in every head, or the chosen cell in every head. */
  readonly tokenTab = signal<"head" | "heads" | "cell">("head");
  readonly largestDifference = signal(1);
  hasChosenScale = false;

  readonly tiles: TileStore;
  readonly run = new RunState(this);
  readonly selection: SelectionState;
  readonly edits = new EditList(this);
  readonly measurement = new MeasurementState();
  /** A second text or model beside that of the run. */
  readonly contrast = new ContrastState(this);
  /** Questions about a folder; it is active on pages of `jumok ask`. */
  readonly desk = new AnswerDesk(this);
  /** Help, examples and the tour. */
  readonly guide = new GuideState(this);

  /** The pass that lists and lines read: with edits the edited one, unless the clean one is chosen. */
  readonly pass = computed<Pass>(() => (this.run.current.value?.edited && this.shown.value !== "clean" ? "edited" : "clean"));
  readonly canEdit = computed(() => this.can("run") && (this.run.current.value?.model.is_editable ?? false));

  private readonly linked: LinkState = {};
  private readonly token: string = "";
  private readonly stopLink: () => void = () => {};
  private readonly stopLanguage: () => void;

  constructor(
    readonly client: Client,
    readonly hasAddress: boolean,
  ) {
    this.tiles = new TileStore(client);
    this.selection = new SelectionState(this);
    this.theme.value = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    this.language.value = chooseLanguage(navigator.languages);
    this.stopLanguage = effect(() => void (client.language = this.language.value));
    client.onState = (state) => this.receiveState(state);
    client.onClose = (reason) => (this.closed.value = reason);
    if (hasAddress) {
      ({ token: this.token, state: this.linked } = readFragment(location.hash));
      if (this.linked.language) this.language.value = chooseLanguage([String(this.linked.language)]);
      this.stopLink = effect(() => this.writeLink());
    }
  }

  dispose(): void {
    this.stopLink();
    this.stopLanguage();
    this.selection.dispose();
    this.contrast.dispose();
    this.run.dispose();
    this.tiles.clear();
  }

  chooseScale(scale: Scale): void {
    this.hasChosenScale = true;
    this.scale.value = scale;
  }

  can(ask: keyof Asks): boolean {
    return this.hello.value?.can.includes(ask) ?? false;
  }

  /** Connect: ask who answers, then run the first input. */
  async start(): Promise<void> {
    try {
      const { body } = await this.client.ask("hello", {});
      const { linked } = this;
      batch(() => {
        this.hello.value = body;
        if (body.language && !linked.language) this.language.value = body.language;
        this.edits.current.value = isEditList(linked.edits) ? linked.edits : body.edits;
        if (linked.view) this.view.value = linked.view as View;
        if (linked.scale) this.chooseScale(linked.scale as Scale);
        if (linked.skip_first) this.skipFirst.value = true;
      });
      if (body.questions) return await this.desk.start(linked);
      const selection = linked.selection ?? body.selection;
      await this.run.execute(linked.model ?? body.model, linked.text === undefined ? body.text : linked.text, {
        selection: selection ?? undefined,
        shown: linked.show as ShownMaps | undefined,
      });
    } catch (error) {
      this.fail(error);
    }
  }

  /** Ask for something that takes long, and show its progress. `onLayer` receives what a slow run has computed. */
  async work<Name extends keyof Asks>(
    name: Name,
    fields: Asks[Name]["fields"],
    onLayer?: (layer: LayerPreview, thumbnails: Uint8Array) => void,
  ): Promise<Reply<Name>> {
    let own = 0;
    try {
      return await this.client.ask(
        name,
        fields,
        (report, buffers) => {
          if (this.task.value?.id !== own) return;
          if (report.layer) onLayer?.(report.layer, buffers[0]);
          else this.task.value = { id: own, name, report };
        },
        (id) => {
          own = id;
          this.task.value = { id, name, report: { done: 0, total: 0, stage: "" } };
        },
      );
    } finally {
      if (this.task.value?.id === own) this.task.value = null;
    }
  }

  cancelTask(): void {
    if (this.task.value) this.client.cancel(this.task.value.id);
  }

  fail(error: unknown): void {
    if (error instanceof AskError) {
      if (!error.isSuperseded && error.reason !== "closed") this.failure.value = error.message;
      return;
    }
    this.failure.value = String(error);
    console.error(error);
  }

  private receiveState(state: State): void {
    const run = this.run.current.value;
    if (state.selection && run) this.selection.current.value = checkSelection(run, state.selection);
    if (typeof state.text === "string" && run) void this.run.execute(run.model.name, state.text);
    else if (isEditList(state.edits)) this.edits.replace(state.edits);
  }

  // Copies, files and links

  async copyCode(): Promise<void> {
    const run = this.run.current.value;
    if (!run) return;
    const { body } = await this.client.ask("code", { run: run.run, selection: this.selection.current.value });
    await copyText(body.code);
  }

  /** Save what is shown as one HTML file; a live one contains the model. */
  async saveFile(live = false): Promise<void> {
    const run = this.run.current.value;
    if (!run) return;
    try {
      const fields = { run: run.run, selection: this.selection.current.value, live };
      const { body, buffers } = await this.client.ask("save", fields);
      download(new Blob([buffers[0].slice()], { type: "text/html" }), body.name);
    } catch (error) {
      this.fail(error);
    }
  }

  private writeLink(): void {
    const run = this.run.current.value;
    if (!run && !this.desk.answer.value) return;
    const state: LinkState = {
      ...(this.desk.isActive.value ? this.desk.describeLink() : { model: run?.model.name, text: run?.text, edits: this.edits.current.value }),
      selection: this.selection.current.value,
      view: this.view.value,
      show: this.shown.value,
      scale: this.scale.value,
      skip_first: this.skipFirst.value,
    };
    history.replaceState(null, "", writeFragment({ token: this.token, state }));
  }
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
