/** Undo and redo of edits. */

import { signal } from "@preact/signals";
import type { Edit } from "./protocol";

export class EditHistory {
  /** How many steps can be undone and redone. */
  readonly size = signal({ undo: 0, redo: 0 });
  /** Whether a slider is dragged: its changes are one step. */
  isDragging = false;
  private past: Edit[][] = [];
  private future: Edit[][] = [];

  /** Remember the edits before a change. */
  add(before: Edit[]): void {
    if (this.isDragging) return; // beginDrag has remembered them
    this.past.push(before);
    this.future = [];
    this.updateSize();
  }

  beginDrag(before: Edit[]): void {
    this.add(before);
    this.isDragging = true;
  }

  /** End a drag; one that changed nothing is no step. */
  endDrag(after: Edit[]): void {
    this.isDragging = false;
    if (JSON.stringify(this.past.at(-1)) === JSON.stringify(after)) this.past.pop();
    this.updateSize();
  }

  /** Return the edits before the last change; undefined if there is none. */
  undo(current: Edit[]): Edit[] | undefined {
    return this.move(this.past, this.future, current);
  }

  /** Return the edits after the change that was undone last; undefined if there is none. */
  redo(current: Edit[]): Edit[] | undefined {
    return this.move(this.future, this.past, current);
  }

  clear(): void {
    this.past = [];
    this.future = [];
    this.updateSize();
  }

  private move(from: Edit[][], to: Edit[][], current: Edit[]): Edit[] | undefined {
    const edits = from.pop();
    if (edits) to.push(current);
    this.updateSize();
    return edits;
  }

  private updateSize(): void {
    this.size.value = { undo: this.past.length, redo: this.future.length };
  }
}
