/** The selected token: where it looks in this head, and what every other head does with it. */

import { useSignal } from "@preact/signals";
import { type App, useApp } from "../app";
import { describeHead, formatWeight, labelsOf, shortenSite } from "../describe";
import { Help } from "../guide/help";
import type { Run, Token } from "../protocol";
import { CellHeads } from "./cell_heads";
import { useAnswer, useLine } from "./hooks";

const SHOWN_KEYS = 8;
const SHOWN_HEADS = 40;

export function TokenPanel() {
  const app = useApp();
  const words = app.words.value;
  const run = app.run.current.value;
  const site = app.selection.site.value;
  const { query, key } = app.selection.current.value;
  const tab = app.tokenTab;
  const shown = tab.value === "cell" && key === null ? "head" : tab.value;
  const label = run && site && query !== null ? labelsOf(run, site.query_sequence)[query] : null;
  const [heads, tokens] = [app.selection.listHeads().length, app.selection.listTokens().length];
  return (
    <section class="jk-token jk-panel">
      <div class="jk-panel-title">
        <span class="jk-group">
          <h2>{label === null ? words.tokenTitle : `“${label}” [${query}]${tokens > 1 ? ` +${tokens - 1}` : ""}`}</h2>
          <Help of={["token", "query", "key", "weight"]} label={words.tokenTitle} />
        </span>
        <div class="jk-choice" role="group">
          <button aria-pressed={shown === "head"} onClick={() => (tab.value = "head")}>
            {heads > 1 ? words.headCount(heads) : run ? describeHead(app, app.selection.current.value) : words.headsTitle}
          </button>
          <button aria-pressed={shown === "heads"} data-action="every-head" onClick={() => (tab.value = "heads")}>
            {words.everyHeadShort}
          </button>
          {key !== null && (
            <button aria-pressed={shown === "cell"} data-action="cell-heads" title={words.cellTabHint} onClick={() => (tab.value = "cell")}>
              {words.cellTab}
            </button>
          )}
        </div>
      </div>
      {run && shown === "head" && <Several app={app} heads={heads} tokens={tokens} />}
      {!run || label === null ? (
        <p class="jk-hint">{words.pickToken}</p>
      ) : shown === "cell" ? (
        <CellHeads run={run} query={query!} key_={key!} />
      ) : shown === "head" ? (
        <InHead app={app} run={run} label={label} />
      ) : (
        <InEveryHead app={app} run={run} />
      )}
    </section>
  );
}

/** Several heads or tokens: a button that lets every click add one, and what is added up. */
function Several({ app, heads, tokens }: { app: App; heads: number; tokens: number }) {
  const words = app.words.value;
  const { isAdding } = app.selection;
  return (
    <div class="jk-toolbar jk-several">
      <button aria-pressed={isAdding.value} data-action="several" title={words.severalHint} onClick={() => (isAdding.value = !isAdding.value)}>
        {words.several}
      </button>
      {heads * tokens > 1 && (
        <>
          <span class="jk-hint">{words.sumOf(tokens, heads)}</span>
          <button
            onClick={() => {
              app.selection.forgetOthers();
              isAdding.value = false;
            }}
          >
            {words.onlyOne}
          </button>
        </>
      )}
    </div>
  );
}

function InHead({ app, run, label }: { app: App; run: Run; label: string }) {
  const words = app.words.value;
  const site = app.selection.site.value!;
  const row = useLine(app, "query");
  const column = useLine(app, "key");
  const isSelf = site.query_sequence === site.key_sequence;
  const most = [...row.value, ...column.value].reduce((largest, weight) => Math.max(largest, weight), 0) || 1; // one scale for both lists
  return (
    <div class="jk-lists">
      <h3>
        {words.asQuery}
        {run.edited && ` (${words[app.pass.value]})`}
      </h3>
      <Weights app={app} most={most} weights={row.value} labels={labelsOf(run, site.key_sequence)} onPick={(key) => app.selection.change({ key })} />
      {isSelf && (
        <>
          <h3>{words.lookedAtBy(label)}</h3>
          <Weights app={app} most={most} weights={column.value} labels={labelsOf(run, site.query_sequence)} onPick={(query) => app.selection.change({ query })} />
        </>
      )}
    </div>
  );
}

interface WeightsProps {
  app: App;
  most: number;
  weights: Float32Array;
  labels: string[];
  onPick(index: number): void;
}

/** The largest weights as bars. */
function Weights({ most, weights, labels, onPick }: WeightsProps) {
  const order = Array.from(weights.keys())
    .filter((index) => weights[index] > 0)
    .sort((a, b) => weights[b] - weights[a])
    .slice(0, SHOWN_KEYS);
  return (
    <ol class="jk-weights">
      {order.map((index) => (
        <li key={index}>
          <button class="jk-quiet" onClick={() => onPick(index)}>
            <span class="jk-label">{labels[index]}</span>
            <small>{index}</small>
            <span class="jk-track">
              <span class="jk-bar" style={{ width: `${(weights[index] / most) * 100}%` }} />
            </span>
            <span class="jk-number">{formatWeight(weights[index])}</span>
          </button>
        </li>
      ))}
    </ol>
  );
}

function InEveryHead({ app, run }: { app: App; run: Run }) {
  const words = app.words.value;
  const site = app.selection.site.value!;
  const { query } = app.selection.current.value;
  const answer = useSignal<Token | null>(null);
  const direction = useSignal<"query" | "key">("query");
  useAnswer(
    app,
    "token",
    query === null ? null : { run: run.run, show: app.pass.value, sequence: site.query_sequence, position: query },
    ({ body }) => (answer.value = body),
    (error) => app.fail(error),
  );
  const skip = app.skipFirst.value;
  const rows = (direction.value === "query" ? answer.value?.as_query : answer.value?.as_key) ?? [];
  const ranked = rows
    .map((row) => ({ ...row, top: row.top.filter(([index]) => !(skip && direction.value === "query" && index === 0)) }))
    .filter(({ top }) => top.length > 0)
    .sort((a, b) => b.top[0][1] - a.top[0][1])
    .slice(0, SHOWN_HEADS);
  return (
    <div class="jk-lists">
      <div class="jk-choice" role="group">
        <button aria-pressed={direction.value === "query"} onClick={() => (direction.value = "query")}>
          {words.asQuery}
        </button>
        <button aria-pressed={direction.value === "key"} onClick={() => (direction.value = "key")}>
          {words.asKey}
        </button>
      </div>
      <table class="jk-every-head">
        <tbody>
          {ranked.map(({ site: index, head, top }) => {
            const { layer, key_sequence, query_sequence } = run.sites[index];
            const labels = labelsOf(run, direction.value === "query" ? key_sequence : query_sequence);
            return (
              <tr key={`${index}.${head}`}>
                <th>
                  <button class="jk-quiet" onClick={() => app.selection.chooseHead(index, head)}>
                    {typeof layer === "number" ? `L${layer}` : shortenSite(layer)} H{head}
                  </button>
                </th>
                <td>
                  {top.slice(0, 3).map(([position, weight]) => (
                    <span key={position} class="jk-source" title={formatWeight(weight)}>
                      {labels[position]}
                      <small>{weight.toFixed(2)}</small>
                    </span>
                  ))}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
