/** Questions about a folder: the answer, its passages, and the answer without the passages that are cut.
 *
 * A cut passage is an edit of the app, so that undo, links and the maps of the prompt agree with the list of passages. */

import { batch, computed, signal } from "@preact/signals";
import type { App } from "../app";
import type { LinkState } from "../link";
import type { Answer, CutAnswer, Edit, Evidence } from "../protocol";
import { cutPassage, listPassageCuts } from "../cuts";

export class AnswerDesk {
  readonly answer = signal<Answer | null>(null);
  readonly evidence = signal<Evidence | null>(null);
  /** Whether the answer is shown; otherwise the attention of its prompt. */
  readonly isShown = signal(false);
  /** Whether this page answers questions. */
  readonly isActive = computed(() => Boolean(this.app.hello.value?.questions));
  /** The cuts on screen; the answer without these passages follows. */
  readonly cuts = computed(() => listPassageCuts(this.answer.value?.passages ?? [], this.app.edits.current.value));
  readonly cut = computed(() => this.cuts.value.map(({ passage }) => passage));
  /** What the model writes without the passages that are cut; null while it is computed, or without cuts. */
  readonly cutAnswer = computed(() => this.results.value.get(this.cut.value.join()) ?? null);

  private readonly results = signal<Map<string, CutAnswer>>(new Map());
  private shownRun = ""; // the answer and the edits of the last run
  private isMeasuring = false;

  constructor(private readonly app: App) {}

  /** Ask the first question: that of the link, or that of the command. */
  async start(linked: LinkState): Promise<void> {
    this.isShown.value = true;
    const question = typeof linked.question === "string" ? linked.question : this.app.hello.value?.questions?.question;
    if (!question) return;
    await this.ask(question);
    const answer = this.answer.value;
    if (!answer || linked.question === undefined) return;
    const linkedCuts = Array.isArray(linked.cut) ? linked.cut : [];
    const ranges = linkedCuts.map((index) => answer.passages[index]?.range ?? null);
    this.app.edits.current.value = [...ranges.filter((range) => range !== null).map(cutPassage), ...this.app.edits.current.value];
    if (linked.attention) await this.showAttention();
    else this.update();
  }

  /** What a link restores; the positions of the passages are found again. */
  describeLink(): LinkState {
    const indices = this.cuts.value.map(({ edit }) => edit);
    const edits = this.app.edits.current.value.filter((_, index) => !indices.includes(index));
    return { question: this.answer.value?.question, cut: this.cut.value, edits, attention: !this.isShown.value };
  }

  async ask(question: string): Promise<void> {
    const app = this.app;
    app.failure.value = null;
    try {
      const { body } = await app.work("question", { question });
      batch(() => {
        // positions of another prompt have no meaning in this one
        if (this.answer.value) app.edits.forget();
        this.answer.value = body;
        this.evidence.value = null;
        this.results.value = new Map();
        this.isShown.value = true;
        app.announcement.value = body.verdict ? app.words.value.verdicts[body.verdict] : (body.note ?? "");
      });
      void this.measure();
    } catch (error) {
      app.fail(error);
    }
  }

  /** Cut a passage, or put it back. */
  toggle(index: number): void {
    const { app, answer } = this;
    const range = answer.value?.passages[index]?.range;
    const cut = this.cuts.value.find(({ passage }) => passage === index);
    if (cut) app.edits.remove([cut.edit]);
    else if (range) app.edits.replace([...app.edits.current.value, cutPassage(range)]);
  }

  putBack(): void {
    this.app.edits.remove(this.cuts.value.map(({ edit }) => edit));
  }

  /** Compute what belongs to the edits: the answer without the passages that are cut, or the maps of the prompt. */
  update(): void {
    if (this.isShown.value) void this.writeAgain();
    else void this.run();
  }

  async showAttention(): Promise<void> {
    this.isShown.value = false;
    await this.run();
  }

  showAnswer(): void {
    this.isShown.value = true;
    this.update();
  }

  private async writeAgain(): Promise<void> {
    const { app } = this;
    const answer = this.answer.value;
    const cut = this.cut.value;
    if (!answer) return;
    if (!cut.length || this.results.value.has(cut.join())) {
      if (app.task.value?.name === "cut") app.cancelTask(); // an older one
      void this.measure();
      return;
    }
    app.failure.value = null;
    try {
      const { body } = await app.work("cut", { answer: answer.number, cut });
      if (this.answer.value !== answer) return;
      this.results.value = new Map(this.results.value).set(body.cut.join(), body);
      app.announcement.value = app.words.value.answeredAgain(body.cut.length, body.text ?? "");
      void this.measure();
    } catch (error) {
      app.fail(error);
    }
  }

  /** Measure the attention on each passage and the effect of the controls; a cut that the user clicks goes first. */
  private async measure(): Promise<void> {
    const { app } = this;
    const answer = this.answer.value;
    if (!answer?.is_cuttable || this.evidence.value || this.isMeasuring) return;
    this.isMeasuring = true;
    try {
      const { body } = await app.work("evidence", { answer: answer.number });
      if (this.answer.value === answer) this.evidence.value = body;
    } catch (error) {
      app.fail(error);
    } finally {
      this.isMeasuring = false;
    }
  }

  /** Run the model on the prompt and its answer with the edits, unless the maps of just this run are there. */
  private async run(): Promise<void> {
    const { app } = this;
    const answer = this.answer.value;
    if (!answer) return;
    const wanted = nameRun(answer.number, app.edits.current.value);
    if (wanted === this.shownRun && app.run.current.value) {
      if (!app.run.facts.value.size) void app.run.classify();
      return;
    }
    const hasRun = await app.run.execute(app.hello.value!.model, null);
    this.shownRun = hasRun ? nameRun(answer.number, app.edits.current.value) : "";
  }
}

function nameRun(answer: number, edits: Edit[]): string {
  return `${answer} ${JSON.stringify(edits)}`;
}
