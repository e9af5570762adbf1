/** The guide of one page: the example that is shown, the tour, and whether the strip of the whole model is open. */

import { computed, signal } from "@preact/signals";
import type { App } from "../app";
import { EXAMPLES, type Example, type ExampleName, openExample } from "./examples";

const TOUR_KEY = "jumok-tour"; // in the storage of the browser's session

export const STEPS = ["predict", "look", "cell", "compute", "cut"] as const;
export type TourStep = (typeof STEPS)[number];

let summaries = 0;

export class GuideState {
  readonly isStripOpen = signal(true);
  /** The step of the tour that is shown; null: the tour is closed. It opens by its button only: a page may be one cell of a
   * notebook, or a file that someone sent, and what its reader came for must not be covered. */
  readonly step = signal<TourStep | null>(null);
  /** Where the tour was left. */
  readonly left = signal<TourStep | null>(readStep());
  /** The element that says what the selected head does. */
  readonly summaryId = `jk-summary-${++summaries}`;
  private readonly chosen = signal<ExampleName | null>(null);

  /** The example whose text is on the page. */
  readonly example = computed<Example | null>(() => {
    const run = this.app.run.current.value;
    const example = EXAMPLES.find(({ name }) => name === this.chosen.value);
    return example && run && run.model.name === example.model && run.text === example.text ? example : null;
  });

  constructor(private readonly app: App) {}

  async showExample(example: Example): Promise<void> {
    this.leaveTour();
    this.chosen.value = null;
    if (await openExample(this.app, example)) this.chosen.value = example.name;
  }

  closeExample(): void {
    this.chosen.value = null;
  }

  /** Begin the tour, or go on where it was left. */
  startTour(): void {
    this.chosen.value = null;
    this.goTo(this.left.value ?? STEPS[0]);
  }

  goTo(step: TourStep): void {
    if (step === "cell" || step === "cut") this.app.view.value = "map";
    this.step.value = step;
    this.remember(step);
  }

  leaveTour(): void {
    this.step.value = null;
  }

  /** The last step is done: the next tour begins at the first. */
  finishTour(): void {
    this.step.value = null;
    this.remember(null);
  }

  private remember(step: TourStep | null): void {
    this.left.value = step;
    try {
      if (step) sessionStorage.setItem(TOUR_KEY, step);
      else sessionStorage.removeItem(TOUR_KEY);
    } catch {
      // a notebook may forbid storage
    }
  }
}

function readStep(): TourStep | null {
  try {
    const step = sessionStorage.getItem(TOUR_KEY);
    return STEPS.find((name) => name === step) ?? null;
  } catch {
    return null;
  }
}
