/** The edits on screen, with undo and redo. The run follows them. */

import { signal } from "@preact/signals";
import type { App } from "./app";
import { hideStretch } from "./cuts";
import type { Rectangle } from "./map/painter";
import type { Edit } from "./protocol";

const DRAG_DELAY = 120; // ms between a dragged slider's last change and the run

export class EditList {
  readonly current = signal<Edit[]>([]);
  /** How many steps can be undone and redone. */
  readonly steps = signal({ undo: 0, redo: 0 });
  private isDragging = false;
  private past: Edit[][] = [];
  private future: Edit[][] = [];

  constructor(private readonly app: App) {}

  /** Replace the edits; the changes of one drag are one step of undo. */
  replace(edits: Edit[]): void {
    if (!this.isDragging) this.remember();
    this.current.value = edits;
    this.app.run.repeat(this.isDragging ? DRAG_DELAY : 0);
  }

  add(edit: Edit): void {
    const text = JSON.stringify(edit);
    if (this.current.value.some((other) => JSON.stringify(other) === text)) return;
    this.replace([...this.current.value, edit]);
  }

  remove(indices: number[]): void {
    this.replace(this.current.value.filter((_, position) => !indices.includes(position)));
  }

  /** Knock out cells of the selected head. */
  knockOut({ query, key, queries, keys }: Rectangle): void {
    const { selection, canEdit } = this.app;
    const site = selection.site.value;
    if (!site || !canEdit.value) return;
    const list = (first: number, count: number) => (count === 1 ? first : Array.from({ length: count }, (_, index) => first + index));
    this.add({ edit: "KnockOut", layer: site.layer, head: selection.current.value.head, query: list(query, queries), key: list(key, keys) });
  }

  /** Hide a stretch of audio, from a position to the one before `end`, from every attention that reads the audio. */
  hideSound(first: number, end: number): void {
    const run = this.app.run.current.value;
    if (run?.audio && this.app.canEdit.value) this.replace([...this.current.value, ...hideStretch(run, first, end)]);
  }

  /** Remove all edits without running the model; they cannot be restored. */
  forget(): void {
    this.current.value = [];
    this.past = [];
    this.future = [];
    this.countSteps();
  }

  /** A slider is dragged. */
  beginDrag(): void {
    this.remember();
    this.isDragging = true;
  }

  /** End a drag; one that changed nothing is no step. */
  endDrag(): void {
    this.isDragging = false;
    if (JSON.stringify(this.past.at(-1)) === JSON.stringify(this.current.value)) this.past.pop();
    this.countSteps();
  }

  undo(): void {
    this.move(this.past, this.future);
  }

  redo(): void {
    this.move(this.future, this.past);
  }

  private remember(): void {
    this.past.push(this.current.value);
    this.future = [];
    this.countSteps();
  }

  private move(from: Edit[][], to: Edit[][]): void {
    const edits = from.pop();
    if (!edits) return;
    to.push(this.current.value);
    this.countSteps();
    this.current.value = edits;
    this.app.run.repeat();
  }

  private countSteps(): void {
    this.steps.value = { undo: this.past.length, redo: this.future.length };
  }
}
