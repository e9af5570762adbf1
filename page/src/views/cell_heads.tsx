/** Which heads link two tokens: the weight of one cell in every head, and what cutting it there changes. */

import { useSignal } from "@preact/signals";
import { type App, useApp } from "../app";
import { formatSigned, formatWeight, labelsOf, shortenSite } from "../describe";
import type { CellWeight, Run } from "../protocol";
import { useAnswer } from "./hooks";
import { TaskLine } from "./task_line";

const SHOWN_HEADS = 40;

export function CellHeads({ run, query, key_: key }: { run: Run; query: number; key_: number }) {
  const app = useApp();
  const words = app.words.value;
  const weights = useSignal<CellWeight[]>([]);
  const isByEffect = useSignal(false);
  const { site: siteIndex } = app.selection.current.value;
  const site = run.sites[siteIndex];
  // heads of the same sequences have the same list
  const first = run.sites.findIndex(({ query_sequence, key_sequence }) => query_sequence === site.query_sequence && key_sequence === site.key_sequence);
  useAnswer(
    app,
    "cell",
    app.can("cell") ? { run: run.run, show: app.pass.value, site: first, query, key } : null,
    ({ body }) => (weights.value = body.heads),
    (error) => app.fail(error),
  );
  if (!app.can("cell")) return <p class="jk-hint">{words.fileHasNoCells}</p>;
  const measured = findEffects(app, query, key);
  const effectOf = (row: CellWeight) => measured.get(`${row.site}.${row.head}`);
  const rows = [...weights.value];
  if (isByEffect.value && measured.size) rows.sort((a, b) => Math.abs(effectOf(b) ?? 0) - Math.abs(effectOf(a) ?? 0) || b.weight - a.weight);
  const most = Math.max(...weights.value.map(({ weight }) => weight), 1e-9);
  const canMeasure = app.can("effect") && app.canEdit.value;
  return (
    <div class="jk-lists">
      <p class="jk-hint">{words.cellTitle(labelsOf(run, site.query_sequence)[query], labelsOf(run, site.key_sequence)[key])}</p>
      {canMeasure && (
        <div class="jk-toolbar">
          <button data-action="measure-cell" disabled={app.task.value?.name === "effect"} title={words.measureCellHint} onClick={() => void app.run.measureCell(first, query, key)}>
            {words.measureCell}
          </button>
          {measured.size > 0 && (
            <label>
              <input type="checkbox" data-action="by-effect" checked={isByEffect.value} onChange={(event) => (isByEffect.value = event.currentTarget.checked)} /> {words.byEffect}
            </label>
          )}
        </div>
      )}
      {canMeasure && <TaskLine only="effect" />}
      <ol class="jk-weights jk-cell-heads">
        {rows.slice(0, SHOWN_HEADS).map((row) => (
          <CellRow key={`${row.site}.${row.head}`} app={app} run={run} row={row} most={most} effect={effectOf(row)} hasEffects={measured.size > 0} />
        ))}
      </ol>
    </div>
  );
}

/** Return the measured effects of cutting a cell, by head. */
function findEffects(app: App, query: number, key: number): Map<string, number> {
  const rows = app.run.effects.value.cell?.rows ?? [];
  return new Map(rows.filter((row) => row.query === query && row.key === key).map((row) => [`${row.site}.${row.head}`, row.effect]));
}

interface CellRowProps {
  app: App;
  run: Run;
  row: CellWeight;
  most: number;
  effect: number | undefined;
  hasEffects: boolean;
}

function CellRow({ app, run, row: { site, head, weight }, most, effect, hasEffects }: CellRowProps) {
  const { layer } = run.sites[site];
  const selection = app.selection.current.value;
  const isSelected = selection.site === site && selection.head === head;
  return (
    <li>
      <button class="jk-quiet" data-cell-head={`${site}.${head}`} aria-pressed={isSelected} onClick={() => app.selection.chooseHead(site, head)}>
        <span class="jk-label">
          {typeof layer === "number" ? `L${layer}` : shortenSite(layer)} H{head}
        </span>
        <span class="jk-track">
          <span class="jk-bar" style={{ width: `${(weight / most) * 100}%` }} />
        </span>
        <span class="jk-number">{formatWeight(weight)}</span>
        {hasEffects && <span class={`jk-number jk-cell-effect${effect !== undefined && effect < 0 ? " jk-negative" : ""}`}>{effect === undefined ? "" : formatSigned(effect)}</span>}
      </button>
    </li>
  );
}
