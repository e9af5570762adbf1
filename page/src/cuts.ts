/** Edits that belong together: a passage that is cut (one edit, which knocks out its keys in all layers), and a stretch of
 * audio that is hidden (one edit for each attention that reads the audio). */

import type { Edit, Run, Site } from "./protocol";

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

/** Positions that hear something of a stretch: a position hears the audio 32.5 ms before and after its moment, through
 * the spectrogram and the convolutions, as `hide_audio` in jumok/tasks/speech/listening.py says. */
const [BEFORE, AFTER] = [1, 2];

export interface Stretch {
  first: number; // position
  end: number; // the position after the last one
  edits: number[]; // indices into the list of edits
}

function readsAudio(site: Site): boolean {
  return site.key_sequence === "source";
}

/** Return the edits that hide the positions from `first` to `end`, and the neighbours that hear them. */
export function hideStretch(run: Run, first: number, end: number): Edit[] {
  const sites = run.sites.filter(readsAudio);
  const last = Math.min(end + AFTER, Math.max(...sites.map(({ keys }) => keys)));
  const begin = Math.max(0, first - BEFORE);
  const key = Array.from({ length: last - begin }, (_, index) => begin + index);
  return sites.map(({ layer }) => ({ edit: "KnockOut", layer, head: null, query: null, key, batch: null }));
}

/** Return the stretches that a list of edits hides in all attentions that read the audio. */
export function listStretches(run: Run | null, edits: Edit[]): Stretch[] {
  if (!run?.audio) return [];
  const layers = run.sites.filter(readsAudio).map(({ layer }) => layer);
  const groups = new Map<string, number[]>();
  edits.forEach(({ edit, head, query, key }, index) => {
    if (edit !== "KnockOut" || !Array.isArray(key) || (head ?? null) !== null || (query ?? null) !== null) return;
    if (key.at(-1)! - key[0] !== key.length - 1) return;
    const name = `${key[0]}-${key.at(-1)}`;
    groups.set(name, [...(groups.get(name) ?? []), index]);
  });
  const isWhole = (indices: number[]) => layers.every((layer) => indices.some((index) => edits[index].layer === layer));
  return [...groups.values()].filter(isWhole).map((indices) => {
    const keys = edits[indices[0]].key as number[];
    return { first: keys[0], end: keys.at(-1)! + 1, edits: indices };
  });
}
