/** What to look at in the example that is shown. */

import { useApp } from "../app";
import { formatPercent } from "../describe";
import type { Words } from "../words";
import type { Example } from "./examples";

export function ExampleNote() {
  const app = useApp();
  const words = app.words.value;
  const example = app.guide.example.value;
  if (!example || app.guide.step.value) return null;
  return (
    <section class="jk-guide" aria-label={words.guide.examplesTitle} data-shown-example={example.name}>
      <p aria-live="polite">
        <b>{words.examples[example.name].title}</b> · {describeExample(words, example)}
      </p>
      <button class="jk-quiet" aria-label={words.close} onClick={() => app.guide.closeExample()}>
        ✕
      </button>
    </section>
  );
}

/** Write what to look at, with the numbers of the example. */
export function describeExample(words: Words, { name, weight, other, prediction }: Example): string {
  return words.examples[name].look({
    weight: weight.toFixed(2),
    other: other ? other.weight.toFixed(2) : "",
    clean: prediction ? formatPercent(prediction.clean) : "",
    edited: prediction ? formatPercent(prediction.edited) : "",
  });
}
