/** A tour in five steps over the model on the page: predict, look, click a cell, compute it, cut it. The controls of a step
 * are outlined (`data-tour` of the root element, see style.css), and the step answers to what the user does with them. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type App, useApp } from "../app";
import { describeHead, formatPercent, labelsOf } from "../describe";
import { headKey } from "../run";
import { useAnswer } from "../views/hooks";
import { asFloats } from "../wire/client";
import { STEPS, type TourStep } from "./guide";

/** What a step outlines; on a narrow page it is scrolled into view. */
const TARGETS: Record<TourStep, string> = {
  predict: ".jk-strip",
  look: ".jk-heads",
  cell: ".jk-centre",
  compute: ".jk-tabs",
  cut: ".jk-edits",
};

export function Tour() {
  const app = useApp();
  const step = app.guide.step.value;
  return step && app.run.current.value && !app.desk.isShown.value ? <Card key={step} app={app} step={step} /> : null;
}

function Card({ app, step }: { app: App; step: TourStep }) {
  const words = app.words.value;
  const number = STEPS.indexOf(step);
  const isLast = number === STEPS.length - 1;
  const result = useResult(app, step);
  const root = useRef<HTMLElement>(null);
  const next = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const page = root.current!.closest(".jumok")!;
    // a wide page shows everything at once
    if (page.scrollHeight > innerHeight + 1) page.querySelector(TARGETS[step])?.scrollIntoView({ block: "nearest" });
    next.current!.focus({ preventScroll: true });
  }, []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") app.guide.leaveTour();
  };
  return (
    <section ref={root} class="jk-guide jk-tour" role="region" aria-label={words.guide.tourTitle} data-step={step} data-done={result !== null} onKeyDown={onKeyDown}>
      <ol aria-label={words.step(number + 1, STEPS.length)}>
        {STEPS.map((name) => (
          <li key={name} aria-current={name === step ? "step" : undefined}>
            <button class="jk-quiet" onClick={() => app.guide.goTo(name)}>
              {words.tour[name].title}
            </button>
          </li>
        ))}
      </ol>
      <p aria-live="polite">{result ?? describeTask(app, step)}</p>
      <span class="jk-group">
        <button ref={next} class={result === null ? "" : "jk-main"} data-action="tour-next" onClick={() => (isLast ? app.guide.finishTour() : app.guide.goTo(STEPS[number + 1]))}>
          {isLast ? words.guide.finish : words.guide.next}
        </button>
        <button class="jk-quiet" data-action="tour-leave" aria-label={words.guide.leave} title={words.guide.leave} onClick={() => app.guide.leaveTour()}>
          ✕
        </button>
      </span>
    </section>
  );
}

/** What to do in a step. */
function describeTask(app: App, step: TourStep): string {
  const { tour } = app.words.value;
  const run = app.run.current.value!;
  if (step === "cut" && !app.canEdit.value) return app.hello.value?.carrier === "file" ? tour.cut.inFile : tour.cut.lookOnly;
  if (step === "predict") {
    const [best] = run.clean.at(-1)?.candidates ?? [];
    const isToken = run.model.predicts === "next token" && best;
    return isToken ? tour.predict.task(best.label, formatPercent(best.probability)) : tour.predict.otherTask;
  }
  return step === "look" ? tour.look.task(run.sites.reduce((count, { heads }) => count + heads, 0)) : tour[step].task;
}

/** Answer to what the user has done since the step began; null: nothing yet. */
function useResult(app: App, step: TourStep): string | null {
  const words = app.words.value;
  const run = app.run.current.value!;
  const site = app.selection.site.value!;
  const selection = app.selection.current.value;
  const before = useRef({ selection, run, edits: app.edits.current.value }).current;
  const weight = useSignal<number | null>(null);
  const { query, key } = selection;
  const hasCell = query !== null && key !== null;
  const fields = step === "cell" && hasCell ? { run: run.run, show: app.pass.value, site: selection.site, head: selection.head, query } : null;
  useAnswer(app, "line", fields, ({ buffers }) => (weight.value = asFloats(buffers[0])[key!] ?? null));

  if (step === "predict") {
    const predicted = run.target.length ? "target" : "source";
    const prediction = site.query_sequence === predicted ? run.clean.find(({ position }) => position === query) : undefined;
    const [best] = prediction?.candidates ?? [];
    const hasMoved = query !== before.selection.query || run.source.join() !== before.run.source.join();
    if (!hasMoved) return null;
    return best && run.model.predicts === "next token"
      ? words.tour.predict.done(labelsOf(run, predicted)[query!], best.label, formatPercent(best.probability))
      : words.tour.predict.otherDone;
  }
  if (step === "look") {
    if (selection.site === before.selection.site && selection.head === before.selection.head) return null;
    const kind = app.run.facts.value.get(headKey(selection.site, selection.head))?.kind;
    const name = describeHead(app, selection);
    return kind ? words.tour.look.done(name, words.kinds[kind] ?? kind, words.kindHints[kind] ?? "") : words.tour.look.doneWithoutKind(name);
  }
  if (step === "cell") {
    const hasMoved = query !== before.selection.query || key !== before.selection.key || selection.head !== before.selection.head || selection.site !== before.selection.site;
    if (!hasMoved || !hasCell || weight.value === null) return null;
    const [from, to] = [labelsOf(run, site.query_sequence)[query], labelsOf(run, site.key_sequence)[key]];
    return words.tour.cell.done(from, to, weight.value.toFixed(2));
  }
  if (step === "compute") return app.view.value === "computation" ? words.tour.compute.done : null;
  if (JSON.stringify(app.edits.current.value) === JSON.stringify(before.edits) || !run.edited || app.task.value) return null;
  return describeCut(app);
}

/** How the most probable prediction changed. */
function describeCut(app: App): string {
  const { tour } = app.words.value;
  const run = app.run.current.value!;
  const [clean, edited] = [run.clean.at(-1), run.edited?.at(-1)];
  const best = clean?.candidates[0];
  const after = edited?.candidates.find(({ id }) => id === best?.id)?.probability;
  if (!best || after === undefined || run.model.predicts === "number" || run.model.predicts === "vector") return tour.cut.done;
  const hasChanged = Math.abs(Math.log(Math.max(after, 1e-9) / best.probability)) > 0.05;
  const write = hasChanged ? tour.cut.changed : tour.cut.same;
  return write(best.label, formatPercent(best.probability), formatPercent(after));
}
