/** Passages that edits cut: for each passage one edit, which knocks out its keys in all layers. */

import type { Edit } from "../protocol";

/** The positions of a passage in the prompt: the first one, and the one after the last. */
export type PassageRange = [number, number];

interface Located {
  range: PassageRange | null;
}

export interface PassageCut {
  passage: number; // index
  edit: number; // index into the list of edits
}

export function cutPassage([first, end]: PassageRange): Edit {
  const key = Array.from({ length: end - first }, (_, index) => first + index);
  return { edit: "KnockOut", layer: null, head: null, query: null, key, batch: null };
}

/** Return the passages that a list of edits cuts, in the order of the passages. */
export function listPassageCuts(passages: Located[], edits: Edit[]): PassageCut[] {
  const cuts: PassageCut[] = [];
  passages.forEach(({ range }, passage) => {
    const edit = range ? edits.findIndex((candidate) => isCutOf(candidate, range)) : -1;
    if (edit >= 0) cuts.push({ passage, edit });
  });
  return cuts;
}

function isCutOf({ edit, layer, head, query, key }: Edit, [first, end]: PassageRange): boolean {
  const isEverywhere = [layer, head, query].every((field) => (field ?? null) === null);
  return edit === "KnockOut" && isEverywhere && Array.isArray(key) && key.length === end - first && key[0] === first && key.at(-1) === end - 1;
}

/** Return the number of times that something becomes less (or more) probable when its log-probability changes. */
export function toRatio(change: number): number {
  return Math.exp(Math.min(Math.abs(change), 50));
}
