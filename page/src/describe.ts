/** Describe heads, weights and edits in words and numbers. */

import type { App } from "./app";
import { listPassageCuts, listStretches } from "./cuts";
import type { Rectangle } from "./map/painter";
import type { Edit, Run, Selection, Sequence, Site } from "./protocol";

/** Return the labels of a sequence; a space is shown as an open box, so that tokens can be told apart. */
export function labelsOf(run: Run, sequence: Sequence): string[] {
  return sequence === "target" ? run.target : run.source;
}

export function describeHead(app: App, { site, head }: Pick<Selection, "site" | "head">): string {
  const layer = app.run.current.value?.sites[site]?.layer ?? 0;
  return app.words.value.headName(typeof layer === "string" ? shortenSite(layer) : layer, head);
}

/** Shorten a site name: "decoder.blocks.0.cross" becomes "decoder.0.cross". */
export function shortenSite(name: string): string {
  return name.replace(/\b(blocks|layers|layer|block|model|h)\./g, "");
}

/** Write an exact weight with at least three significant digits. */
export function formatWeight(weight: number, isDifference = false): string {
  const size = Math.abs(weight);
  const sign = weight < 0 ? "−" : isDifference && weight > 0 ? "+" : "";
  if (size === 0) return "0";
  if (size < 0.001) return sign + size.toExponential(2).replace("-", "−");
  return sign + size.toFixed(4);
}

export function formatPercent(probability: number): string {
  const percent = probability * 100;
  if (percent >= 99.95 && percent < 100) return ">99.9%";
  if (percent > 0 && percent < 0.1) return "<0.1%";
  return `${percent.toFixed(percent < 10 || (percent > 99 && percent < 100) ? 1 : 0)}%`;
}

export function formatSigned(number: number): string {
  const size = Math.abs(number);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.095 ? 2 : 3;
  const text = size.toFixed(digits);
  if (Number(text) === 0) return size === 0 ? "0" : `${number < 0 ? "−" : "+"}${size.toExponential(0).replace("-", "−")}`;
  return (number < 0 ? "−" : "+") + text;
}

function toList(indices: number | number[] | null | undefined, count: number): number[] {
  if (indices === null || indices === undefined) return Array.from({ length: count }, (_, index) => index);
  return typeof indices === "number" ? [indices < 0 ? indices + count : indices] : indices.map((index) => (index < 0 ? index + count : index));
}

/** Return whether an edit changes a site. */
export function appliesTo(edit: Edit, site: Site): boolean {
  return edit.layer === null || edit.layer === undefined || edit.layer === site.layer || edit.layer === site.name;
}

/** Return whether an edit ablates a head. */
export function ablates(edit: Edit, site: Site, head: number): boolean {
  const isAttention = edit.edit === "Ablate" && (edit.part ?? "attention") === "attention";
  return isAttention && appliesTo(edit, site) && toList(edit.head, site.heads).includes(head);
}

/** Return the rectangles that the knock-outs of a head remove. */
export function listCuts(edits: Edit[], site: Site, head: number): Rectangle[] {
  const cuts: Rectangle[] = [];
  for (const edit of edits) {
    if (edit.edit !== "KnockOut" || !appliesTo(edit, site)) continue;
    if (!toList(edit.head, site.heads).includes(head)) continue;
    for (const [query, queries] of joinRanges(edit.query, site.queries))
      for (const [key, keys] of joinRanges(edit.key, site.keys)) cuts.push({ query, key, queries, keys });
  }
  return cuts;
}

/** Join adjacent indices: [first, count] for each range. */
function joinRanges(indices: number | number[] | null | undefined, count: number): [number, number][] {
  if (indices === null || indices === undefined) return [[0, count]];
  const ranges: [number, number][] = [];
  for (const index of toList(indices, count)) {
    const last = ranges.at(-1);
    if (last && last[0] + last[1] === index) last[1]++;
    else ranges.push([index, 1]);
  }
  return ranges;
}

/** Return positions as they are named in the list of edits: "sat [4]", "2–5", "all". */
export function describePositions(indices: number | number[] | null | undefined, labels: string[], all: string): string {
  if (indices === null || indices === undefined) return all;
  const list = typeof indices === "number" ? [indices] : indices;
  if (list.length === 1) return `${labels[list[0]] ?? ""} [${list[0]}]`;
  return joinRanges(list, labels.length)
    .map(([first, count]) => (count === 1 ? `${first}` : `${first}–${first + count - 1}`))
    .join(", ");
}

/** Return the changes of the list: one for each edit, and one for each stretch of audio that several edits hide. */
export function listChanges(app: App): { text: string; edits: number[] }[] {
  const run = app.run.current.value;
  const edits = app.edits.current.value;
  const changes = edits.map((edit, index) => ({ text: "", edit, edits: [index] }));
  for (const { first, end, edits: indices } of listStretches(run, edits)) {
    const { begin, positions_per_second: rate } = run!.audio!;
    const time = (position: number) => (begin + position / rate).toFixed(2);
    for (const index of indices) changes[index].edits = [];
    changes[indices[0]] = { ...changes[indices[0]], text: app.words.value.hiddenStretch(time(first), time(end), indices.length), edits: indices };
  }
  const passages = run?.answered?.passages ?? [];
  for (const { passage, edit } of listPassageCuts(passages, edits)) changes[edit].text = app.words.value.passageCut(passages[passage].location);
  return changes.filter((change) => change.edits.length).map(({ text, edit, edits: indices }) => ({ text: text || describeEdit(app, edit), edits: indices }));
}

/** Describe an edit in one line. */
export function describeEdit(app: App, edit: Edit): string {
  const words = app.words.value;
  const run = app.run.current.value;
  const site = run?.sites.find((candidate) => edit.layer !== null && appliesTo(edit, candidate)) ?? null;
  const layer =
    edit.layer === null || edit.layer === undefined
      ? words.everyLayer
      : typeof edit.layer === "number"
        ? `${words.layer} ${edit.layer}`
        : shortenSite(edit.layer);
  const heads =
    edit.head === null || edit.head === undefined ? words.everyHeadShort : `H${Array.isArray(edit.head) ? edit.head.join(", ") : edit.head}`;
  const hasOneHead = typeof edit.head === "number" && edit.layer !== null && edit.layer !== undefined;
  const parts = [words.editNames[edit.edit] ?? edit.edit];
  if (hasOneHead) parts.push(words.headName(typeof edit.layer === "string" ? shortenSite(edit.layer) : edit.layer!, edit.head as number));
  else parts.push(layer, ...(edit.part === "mlp" ? [] : [heads]));
  if (edit.part && edit.part !== "attention") parts.push(edit.part);
  if (edit.edit === "Scale") parts.push(String(Number(Number(edit.temperature).toPrecision(3))));
  if (edit.edit === "Remask") parts.push(edit.mask ?? words.noMask);
  if (edit.edit === "KnockOut" && run) {
    const queryLabels = labelsOf(run, site?.query_sequence ?? "source");
    const keyLabels = labelsOf(run, site?.key_sequence ?? "source");
    const queries = describePositions(edit.query, queryLabels, words.anyPosition);
    parts.push(words.cells(queries, describePositions(edit.key, keyLabels, words.anyPosition)));
  }
  return parts.join(" · ");
}
