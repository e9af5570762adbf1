/** The progress of a long computation. It replaces the buttons of the header instead of covering a part of the page, and
 * only if the computation takes noticeably long, so that a quick run moves nothing. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type App, useApp } from "../app";
import type { Asks } from "../protocol";

const DELAY = 300; // ms

/** Return whether a computation has been running for so long that its progress is shown. */
export function useSlowTask(app: App): boolean {
  const isSlow = useSignal(false);
  const isBusy = app.task.value !== null && !app.closed.value;
  useEffect(() => {
    if (!isBusy) {
      isSlow.value = false;
      return;
    }
    const timer = setTimeout(() => (isSlow.value = true), DELAY);
    return () => clearTimeout(timer);
  }, [isBusy]);
  return isSlow.value && isBusy;
}

/** The stage, how far it is, and a button that cancels. With `only`, it is the progress of one ask, which narrow pages show
 * beside its button, as their header may not be in view. */
export function TaskLine({ only }: { only?: keyof Asks }) {
  const app = useApp();
  const words = app.words.value;
  const task = app.task.value;
  if (!task || (only && task.name !== only)) return null;
  const stages: Record<string, string> = {
    importing: words.importing,
    loading: words.loading,
    reading: words.reading,
    running: words.running,
    classifying: words.classifying,
    measuring: words.measuring,
    computing: words.computing,
    searching: words.searching,
    answering: words.answering,
    cutting: words.cutting,
    attending: words.attending,
    controls: words.controls,
  };
  const { done, total, stage } = task.report;
  return (
    <span class={`jk-task-line${only ? " jk-inline" : ""}`}>
      <span class="jk-task-text">
        <span>{stages[stage] ?? (app.run.current.value ? words.waiting : words.connecting)}</span>{" "}
        <span class="jk-number">{total > 0 && words.layersDone(done, total)}</span>
        <progress max={total || 1} value={total ? done : undefined} />
      </span>
      <button onClick={() => app.cancelTask()}>{words.cancel}</button>
    </span>
  );
}
