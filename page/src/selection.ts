/** Where the user is: an attention, a head, a query and a key. */

import { computed, effect, signal } from "@preact/signals";
import type { App } from "./app";
import type { Run, Selection, Site } from "./protocol";

export class SelectionState {
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
    this.current.value = { ...this.current.value, ...change };
  }

  chooseHead(site: number, head: number): void {
    const run = this.app.run.current.value;
    if (run) this.current.value = checkSelection(run, { ...this.current.value, site, head });
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
