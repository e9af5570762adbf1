/** Where the user is: an attention, a head, a query and a key; and further heads and tokens whose weights are added. */

import { computed, effect, signal } from "@preact/signals";
import type { App } from "./app";
import type { Run, Selection, Site } from "./protocol";

export interface HeadId {
  site: number;
  head: number;
}

const MAX_SUMMED = 64; // rows of weights that are added

export class SelectionState {
  /** Whether a click adds a head or a token to those that are selected; a click with Ctrl or Shift always does. */
  readonly isAdding = signal(false);
  readonly otherHeads = signal<HeadId[]>([]);
  readonly otherTokens = signal<number[]>([]);
  readonly current = signal<Selection>({ site: 0, head: 0, query: null, key: null });
  readonly site = computed<Site | null>(() => this.app.run.current.value?.sites[this.current.value.site] ?? null);
  /** Stops telling the session about changes. */
  readonly dispose: () => void;

  constructor(private readonly app: App) {
    this.dispose = effect(() => {
      const selection = this.current.value;
      if (app.can("select") && app.run.current.peek()) app.client.ask("select", { selection }).catch(() => {});
    });
  }

  change(change: Partial<Selection>): void {
    if (change.query !== undefined && change.query !== this.current.value.query) this.otherTokens.value = [];
    this.current.value = { ...this.current.value, ...change };
  }

  chooseHead(site: number, head: number): void {
    const run = this.app.run.current.value;
    if (!run) return;
    this.otherHeads.value = [];
    if (run.sites[site]?.query_sequence !== this.site.value?.query_sequence) this.otherTokens.value = [];
    this.current.value = checkSelection(run, { ...this.current.value, site, head });
  }

  chooseToken(query: number): void {
    this.otherTokens.value = [];
    this.change({ query, key: null });
  }

  /** Whether a click adds to the selection. */
  adds(event: MouseEvent): boolean {
    return this.isAdding.value || event.ctrlKey || event.metaKey || event.shiftKey;
  }

  /** Add a head to those whose weights are added, or take it away; its attention must read the same sequences. */
  toggleHead(site: number, head: number): void {
    const { current, otherHeads, app } = this;
    const isSame = (other: HeadId) => other.site === site && other.head === head;
    if (isSame(current.value)) {
      const [next, ...others] = otherHeads.value;
      if (next) this.current.value = { ...current.value, ...next };
      otherHeads.value = others;
    } else if (otherHeads.value.some(isSame)) otherHeads.value = otherHeads.value.filter((other) => !isSame(other));
    else if (!this.canSum(site)) app.failure.value = app.words.value.otherSequences;
    else if (this.countRows(1, 0) <= MAX_SUMMED) otherHeads.value = [...otherHeads.value, { site, head }];
  }

  /** Add a token to those whose weights are added, or take it away. */
  toggleToken(query: number): void {
    const { current, otherTokens } = this;
    if (current.value.query === null) this.chooseToken(query);
    else if (current.value.query === query) {
      const [next, ...others] = otherTokens.value;
      if (next !== undefined) this.change({ query: next, key: null });
      otherTokens.value = others;
    } else if (otherTokens.value.includes(query)) otherTokens.value = otherTokens.value.filter((other) => other !== query);
    else if (this.countRows(0, 1) <= MAX_SUMMED) otherTokens.value = [...otherTokens.value, query];
  }

  forgetOthers(): void {
    this.otherHeads.value = [];
    this.otherTokens.value = [];
  }

  /** Return the heads whose weights are added, the selected one first. */
  listHeads(): HeadId[] {
    const { site, head } = this.current.value;
    return [{ site, head }, ...this.otherHeads.value.filter((other) => this.canSum(other.site))];
  }

  /** Return the tokens whose weights are added, the selected one first. */
  listTokens(): number[] {
    const { query } = this.current.value;
    const count = this.site.value?.queries ?? 0;
    return query === null ? [] : [query, ...this.otherTokens.value.filter((other) => other < count && other !== query)];
  }

  private canSum(site: number): boolean {
    const [first, second] = [this.site.value, this.app.run.current.value?.sites[site]];
    const fields = ["query_sequence", "key_sequence", "queries", "keys"] as const;
    return !!first && !!second && fields.every((field) => first[field] === second[field]);
  }

  private countRows(heads: number, tokens: number): number {
    return (1 + this.otherHeads.value.length + heads) * (1 + this.otherTokens.value.length + tokens);
  }
}

/** Return a selection that exists in a run; without one, the first head of the last site. */
export function checkSelection(run: Run, selection: Selection | null | undefined): Selection {
  const last = run.sites.length - 1;
  const chosen = selection ?? { site: last, head: 0, query: null, key: null };
  const site = Number.isInteger(chosen.site) && chosen.site >= 0 && chosen.site <= last ? chosen.site : last;
  const { heads, queries, keys } = run.sites[site];
  const within = (index: number | null, count: number) =>
    index !== null && Number.isInteger(index) && index >= 0 && index < count ? index : null;
  return {
    site,
    head: within(chosen.head, heads) ?? 0,
    query: within(chosen.query, queries) ?? (run.image && run.image.prefix > 0 && !run.target.length ? 0 : queries - 1),
    key: within(chosen.key, keys),
  };
}
