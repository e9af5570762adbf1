/** The teacher's view: one row of attention computed step by step, with the numbers of the model. */

import { useSignal } from "@preact/signals";
import { useApp } from "../app";
import { cssColour, differenceColour, type Theme } from "../colour";
import { ablates, describeHead, formatWeight, labelsOf } from "../describe";
import type { StepKey, StepName, Steps } from "../protocol";
import { useAnswer, useReveal } from "./hooks";

/** Numbers of a vector; null is one that is not finite. */
type Numbers = (number | null)[];

export function Computation() {
  const app = useApp();
  const words = app.words.value;
  const run = app.run.current.value;
  const site = app.selection.site.value;
  const { site: siteIndex, head, query } = app.selection.current.value;
  const pass = app.pass.value;
  const steps = useSignal<Steps | null>(null);
  const failure = useSignal<string | null>(null);
  const shown = useSignal(100); // the number of steps that are visible
  const opened = useSignal<OpenedVector | null>(null); // whose numbers are all listed

  useAnswer(
    app,
    "steps",
    run && query !== null ? { run: run.run, show: pass, site: siteIndex, head, query } : null,
    ({ body }) => {
      steps.value = body;
      failure.value = null;
    },
    ({ message }) => {
      steps.value = null;
      failure.value = message;
    },
  );

  if (!run || !site || query === null) return <p class="jk-hint">{words.pickToken}</p>;
  const label = labelsOf(run, site.query_sequence)[query];
  const names: StepName[] = ["query", "key", "product", "scale", "bias", "mask", "softmax", "value", "sum"];
  const present = names.filter((name) => name !== "bias" || steps.value?.keys.some(({ bias }) => bias !== null));
  const count = Math.min(shown.value, present.length);
  const current = present[count - 1];
  const isVisible = (name: StepName) => present.indexOf(name) >= 0 && present.indexOf(name) < count;
  return (
    <div class="jk-computation">
      <div class="jk-toolbar">
        <strong class="jk-title">{words.computationTitle(label, describeHead(app, app.selection.current.value))}</strong>
        <span class="jk-group">
          <button disabled={count <= 1} onClick={() => (shown.value = count - 1)}>
            {words.previousStep}
          </button>
          <button class="jk-main" data-action="next-step" onClick={() => (shown.value = count >= present.length ? 1 : count + 1)}>
            {count >= present.length ? words.firstStep : words.nextStep}
          </button>
          <button onClick={() => (shown.value = 100)}>{words.allSteps}</button>
        </span>
        <span>{words.step(count, present.length)}</span>
      </div>
      {failure.value && app.hello.value?.carrier === "file" && <p class="jk-hint">{words.fileHasNoSteps}</p>}
      {failure.value && app.hello.value?.carrier !== "file" && <p class="jk-error">{failure.value}</p>}
      {steps.value && (
        <>
          <p class="jk-sentence" aria-live="polite">
            <b>{words.stepNames[current]}</b> {steps.value.sentences[current]}
          </p>
          <div class="jk-scroll">
            <table class="jk-steps">
              <thead>
                <tr>
                  <th />
                  <th colSpan={10} class="jk-query-vector">
                    <span>
                      q “{label}” <Vector numbers={steps.value.query} theme={app.theme.value} onOpen={() => (opened.value = { name: "query", key: null })} />
                    </span>
                  </th>
                </tr>
                <tr>
                  <th>{words.keyColumn}</th>
                  {present
                    .filter((name) => name !== "query" && name !== "sum")
                    .map((name) => (
                      <th key={name} class={name === current ? "jk-current" : ""}>
                        {name === "scale" ? steps.value!.formula_scale : words.stepNames[name]}
                      </th>
                    ))}
                </tr>
              </thead>
              <tbody>
                {steps.value.keys.map((key) => (
                  <Row key={key.key} largest={findLargest(steps.value!)} item={key} label={labelsOf(run, site.key_sequence)[key.key]} isVisible={isVisible} onOpen={(name) => (opened.value = { name, key: key.key })} />
                ))}
              </tbody>
              <tfoot>
                <tr>
                  <th colSpan={20}>
                    {steps.value.hidden > 0 && <small>{words.hiddenKeys(steps.value.hidden, formatWeight(steps.value.hidden_weight))} </small>}
                    {isVisible("sum") && (
                      <span>
                        {words.stepNames.sum} <Vector numbers={steps.value.output} theme={app.theme.value} onOpen={() => (opened.value = { name: "sum", key: null })} />
                      </span>
                    )}
                  </th>
                </tr>
              </tfoot>
            </table>
          </div>
          {opened.value && (
            <AllNumbers
              opened={opened.value}
              steps={steps.value}
              label={opened.value.key === null ? label : labelsOf(run, site.key_sequence)[opened.value.key]}
              onClose={() => (opened.value = null)}
            />
          )}
          <p class="jk-hint">{words.vectorColours}</p>
          {isVisible("sum") && (
            <p class="jk-hint">
              {pass === "edited" && run.edits.some((edit) => ablates(edit, site, head))
                ? words.outputReplaced
                : steps.value.difference !== null && words.recordedDifference(steps.value.difference.toExponential(0))}
            </p>
          )}
        </>
      )}
    </div>
  );
}

/** The largest numbers of the columns with vectors; a column has one colour scale, so that its rows can be compared. */
interface LargestNumbers {
  key: number;
  value: number;
}

function findLargest({ keys }: Steps): LargestNumbers {
  const largest = (vectors: Numbers[]) => vectors.reduce((most, vector) => Math.max(most, measureVector(vector)), 0);
  return {
    key: largest(keys.map(({ k }) => k)),
    value: largest(keys.map(({ v, weight }) => scaleVector(v, weight))),
  };
}

function measureVector(numbers: Numbers): number {
  return numbers.reduce<number>((most, entry) => Math.max(most, Math.abs(entry ?? 0)), 1e-9);
}

function scaleVector(numbers: Numbers, factor: number): Numbers {
  return numbers.map((entry) => (entry === null ? null : entry * factor));
}

/** A vector of the table: of the query, of the output, or of one key. */
interface OpenedVector {
  name: "query" | "key" | "value" | "sum";
  key: number | null;
}

/** Return the numbers of a vector of the table; null if its key is not listed. */
function findVector({ query, output, keys }: Steps, { name, key }: OpenedVector): Numbers | null {
  if (name === "query") return query;
  if (name === "sum") return output;
  const item = keys.find((candidate) => candidate.key === key);
  return item ? (name === "key" ? item.k : scaleVector(item.v, item.weight)) : null;
}

interface AllNumbersProps {
  opened: OpenedVector;
  steps: Steps;
  label: string;
  onClose(): void;
}

/** All numbers of a vector, to read and to copy. */
function AllNumbers({ opened, steps, label, onClose }: AllNumbersProps) {
  const words = useApp().words.value;
  const numbers = findVector(steps, opened);
  if (!numbers) return null;
  return (
    <section class="jk-all-numbers">
      <div class="jk-panel-title">
        <h3>{words.vectorTitle(words.vectorOf(words.stepNames[opened.name], label), numbers.length)}</h3>
        <button class="jk-quiet" onClick={onClose}>
          {words.close}
        </button>
      </div>
      <ol>
        {numbers.map((entry, index) => (
          <li key={index} class="jk-number">
            <small>{index}</small> {entry?.toPrecision(4).replace("-", "−") ?? "–"}
          </li>
        ))}
      </ol>
    </section>
  );
}

interface RowProps {
  item: StepKey;
  largest: LargestNumbers;
  label: string;
  isVisible(name: StepName): boolean;
  onOpen(name: "key" | "value"): void;
}

const COVERED = 60; // pixels of the rows with the names and the sum, which stay in place

function Row({ item, largest, label, isVisible, onOpen }: RowProps) {
  const app = useApp();
  const isSelected = app.selection.current.value.key === item.key;
  const ref = useReveal<HTMLTableRowElement>(isSelected, null, COVERED);
  const words = app.words.value;
  const theme = app.theme.value;
  const show = (name: StepName, content: preact.ComponentChildren) => <td>{isVisible(name) ? content : ""}</td>;
  const number = (amount: number | null) => <span class="jk-number">{amount === null ? "–" : amount.toFixed(2).replace("-", "−")}</span>;
  return (
    <tr
      ref={ref}
      class={`${item.is_allowed ? "" : "jk-forbidden"}${isSelected ? " jk-selected-key" : ""}`}
      aria-current={isSelected ? "true" : undefined}
      onClick={() => app.selection.change({ key: item.key })}
    >
      <th scope="row">
        {label} <small>{item.key}</small>
      </th>
      {show("key", <Vector numbers={item.k} most={largest.key} theme={theme} onOpen={() => onOpen("key")} />)}
      {show("product", number(item.product))}
      {show("scale", number(item.scaled))}
      {item.bias !== null && show("bias", number(item.scaled === null ? null : item.scaled + item.bias))}
      {show("mask", item.is_allowed ? words.allowed : words.forbidden)}
      {show(
        "softmax",
        <span class="jk-weight-cell">
          <span class="jk-bar" style={{ width: `${item.weight * 100}%` }} />
          <span class="jk-number">{item.weight.toFixed(3)}</span>
        </span>,
      )}
      {show("value", <Vector numbers={scaleVector(item.v, item.weight)} most={largest.value} theme={theme} onOpen={() => onOpen("value")} />)}
    </tr>
  );
}

const MAX_ENTRIES = 16; // numbers of a vector that are drawn

/** A vector as a row of coloured cells; a click lists all of its numbers. */
function Vector({ numbers, most = measureVector(numbers), theme, onOpen }: { numbers: Numbers; most?: number; theme: Theme; onOpen(): void }) {
  const words = useApp().words.value;
  return (
    <button class="jk-vector" title={words.vectorHint(numbers.length)} aria-label={`${words.vectorHint(numbers.length)}: ${numbers.slice(0, 8).map((entry) => entry?.toFixed(2) ?? "–").join(", ")}`} onClick={onOpen}>
      {numbers.slice(0, MAX_ENTRIES).map((entry, index) => (
        <i key={index} title={`[${index}] ${entry?.toPrecision(4) ?? "–"}`} style={{ background: cssColour(differenceColour(entry ?? 0, "linear", most, theme)) }} />
      ))}
      {numbers.length > MAX_ENTRIES && <small>…{numbers.length}</small>}
    </button>
  );
}
