/** What the selected head does, in sentences for screen readers: the text alternative of the maps, and an announcement
 * after the selection has rested. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type App, useApp } from "../app";
import { ablates, describeHead, formatSigned, labelsOf } from "../describe";
import { headKey } from "../run";
import { asFloats } from "../wire/client";
import { useAnswer } from "./hooks";

const REST = 900; // ms without another selection before it is announced
const LINKS = 3;

export function HeadSummary() {
  const app = useApp();
  const run = app.run.current.value;
  const site = app.selection.site.value;
  const { query, key: _, ...head } = app.selection.current.value;
  const links = useSignal("");
  const announced = useSignal("");
  const selected = useRef<string | null>(null);
  const isKnown = run !== null && site !== null && query !== null;
  const fields = isKnown ? { run: run.run, show: app.pass.value, ...head, query } : null;
  useAnswer(app, "line", fields, ({ buffers }) => (links.value = describeLinks(app, asFloats(buffers[0]))));

  const selection = JSON.stringify([run?.model.name, run?.text, head.site, head.head, query]);
  useEffect(() => {
    if (!run) return;
    const isFirst = selected.current === null; // the page has said what it shows
    selected.current = selection;
    if (isFirst) return;
    const timer = setTimeout(() => (announced.value = describe(app, links.peek())), REST);
    return () => clearTimeout(timer);
  }, [selection, run === null]);

  return (
    <>
      <p id={app.guide.summaryId} class="jk-live" data-summary>
        {run && describe(app, links.value)}
      </p>
      <p class="jk-live" role="status" aria-live="polite" data-announced>
        {announced.value}
      </p>
    </>
  );
}

function describe(app: App, links: string): string {
  const words = app.words.value;
  const run = app.run.current.peek();
  const selection = app.selection.current.peek();
  if (!run) return "";
  const facts = app.run.facts.value.get(headKey(selection.site, selection.head));
  const effect = app.run.effects.value.heads?.rows.find((row) => row.site === selection.site && row.head === selection.head)?.effect;
  const isAblated = run.edits.some((edit) => ablates(edit, run.sites[selection.site], selection.head));
  const kind = facts?.kind ? `${words.kinds[facts.kind] ?? facts.kind}, ${words.kindHints[facts.kind] ?? ""}` : "";
  return [
    describeHead(app, selection) + (isAblated ? ` (${words.ablated})` : "") + (kind ? `: ${kind}.` : "."),
    links,
    effect === undefined ? "" : `${words.summary.effect(formatSigned(effect))}`,
  ]
    .filter(Boolean)
    .join(" ");
}

/** Name the keys with the largest weights of the selected row. */
function describeLinks(app: App, weights: Float32Array): string {
  const words = app.words.value;
  const run = app.run.current.peek();
  const site = app.selection.site.peek();
  const { query } = app.selection.current.peek();
  if (!run || !site || query === null) return "";
  const keys = labelsOf(run, site.key_sequence);
  const top = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, LINKS).filter((key) => weights[key] >= 0.01);
  const name = (labels: string[], position: number) => words.summary.token(labels[position] ?? "", position);
  const links = top.map((key) => `${name(keys, key)} ${weights[key].toFixed(2)}`);
  return words.summary.links(name(labelsOf(run, site.query_sequence), query), links.join(", "));
}
