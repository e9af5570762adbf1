/** Two inputs side by side: their tokens, their predictions, what patches of one restore in the other, and their maps. */

import { useSignal } from "@preact/signals";
import { useApp } from "../app";
import { describeHead, formatPercent, formatSigned } from "../describe";
import type { VisibleValues } from "../map/tiles";
import type { Viewport } from "../map/viewport";
import type { Contrast, Run, Sequence, Shown } from "../protocol";
import { useCopied } from "../views/hooks";
import { Legend } from "../views/legend";
import { copyText } from "../copy";
import { ContrastMap, type SharedGestures } from "./contrast_map";
import { describePatch, Restores } from "./restores";
import { restoredShare } from "./state";

export function ContrastView() {
  const app = useApp();
  const words = app.words.value.contrast;
  const run = app.run.current.value;
  const contrast = app.contrast.current.value;
  if (!run) return null;
  return (
    <div class="jk-contrast">
      <h2>{words.title}</h2>
      <p class="jk-hint">
        {run.text === null ? words.introModel : words.intro}
        {app.edits.current.value.length > 0 && <b> {words.ofClean}</b>}
      </p>
      <SecondInput run={run} />
      {contrast && (
        <>
          <PairedTokens run={run} contrast={contrast} />
          {contrast.note && <p class="jk-note">{contrast.note}</p>}
          {contrast.metric && <Metric contrast={contrast} />}
          {contrast.metric && (contrast.can_patch ? <Restores run={run} contrast={contrast} /> : <p class="jk-hint">{words.cannotPatch}</p>)}
          {contrast.can_patch && <PatchList run={run} contrast={contrast} />}
          <Maps run={run} />
        </>
      )}
    </div>
  );
}

/** The second text, and the model that reads it. */
function SecondInput({ run }: { run: Run }) {
  const app = useApp();
  const words = app.words.value.contrast;
  const { text, model } = app.contrast;
  const reads = app.hello.value?.models.find(({ name }) => name === run.model.name)?.reads;
  const others = (app.hello.value?.models ?? []).filter((other) => other.reads === reads && other.name !== run.model.name);
  const checkpoints = app.hello.value?.models.find(({ name }) => name === run.model.name)?.checkpoints ?? [];
  const models = [...checkpoints.map((name) => ({ name: `${run.model.name}/checkpoints/${name}`, title: name })), ...others];
  const isBusy = app.task.value?.name === "contrast";
  return (
    <form
      class="jk-second"
      onSubmit={(event) => {
        event.preventDefault();
        void app.contrast.compare();
      }}
    >
      {run.text !== null && (
        <label class="jk-second-text">
          <span>{words.secondText}</span>
          <textarea
            rows={1}
            data-contrast-input
            value={text.value}
            onInput={(event) => (text.value = event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
              event.preventDefault();
              void app.contrast.compare();
            }}
          />
        </label>
      )}
      <div class="jk-toolbar">
        {models.length > 0 && (
          <label>
            {words.secondModel}{" "}
            <select data-action="second-model" value={model.value} onChange={(event) => (model.value = event.currentTarget.value)}>
              <option value="">{words.sameModel}</option>
              {models.map(({ name, title }) => (
                <option key={name} value={name}>
                  {title}
                </option>
              ))}
            </select>
          </label>
        )}
        <button type="submit" class="jk-main" data-action="compare" disabled={isBusy}>
          {words.compare}
        </button>
        {run.text !== null && !model.value && app.can("run") && (
          <button type="button" title={words.swapHint} onClick={() => void app.contrast.swap()}>
            ⇅ {words.swap}
          </button>
        )}
      </div>
    </form>
  );
}

const MAX_PAIRS = 300;

/** The tokens of both texts, one pair after the other. */
function PairedTokens({ run, contrast }: { run: Run; contrast: Contrast }) {
  const words = useApp().words.value.contrast;
  const sequences: Sequence[] = run.target.length ? ["source", "target"] : ["source"];
  if (run.text === null) return null;
  return (
    <div class="jk-pairs-all" title={words.tokens}>
      {sequences.map((sequence) => {
        const [first, second] = sequence === "target" ? [run.target, contrast.target] : [run.source, contrast.source];
        const pairs = contrast.pairs[sequence];
        const isDifferent = (pair: (typeof pairs)[number]) => pair[0] === null || pair[1] === null || first[pair[0]] !== second[pair[1]];
        // of a long text, the part around the first difference
        const begin = pairs.length > MAX_PAIRS ? Math.max(0, pairs.findIndex(isDifferent) - MAX_PAIRS / 2) : 0;
        return (
          <div class="jk-pairs" key={sequence} role="group" aria-label={words.tokens}>
            {begin > 0 && <span class="jk-more">… {begin.toLocaleString()}</span>}
            {pairs.slice(begin, begin + MAX_PAIRS).map((pair, index) => {
              const labels = [pair[0] === null ? "·" : first[pair[0]], pair[1] === null ? "·" : second[pair[1]]];
              return (
                <span key={index} class={`jk-pair${isDifferent(pair) ? " jk-differs" : ""}`} title={words.pairHint(labels[0], labels[1])}>
                  <span>{labels[0]}</span>
                  <span>{labels[1]}</span>
                </span>
              );
            })}
            {begin + MAX_PAIRS < pairs.length && <span class="jk-more">… {(pairs.length - begin - MAX_PAIRS).toLocaleString()}</span>}
          </div>
        );
      })}
    </div>
  );
}

/** The logit difference of both texts, and their most probable tokens. */
function Metric({ contrast }: { contrast: Contrast }) {
  const app = useApp();
  const words = app.words.value.contrast;
  const { tokens, patched } = app.contrast;
  const metric = contrast.metric!;
  const labels = contrast.target.length ? contrast.target : contrast.source;
  const apply = () => void app.contrast.chooseTokens(tokens.value.right, tokens.value.wrong);
  const enter = (side: "right" | "wrong") => (
    <input
      list="jk-contrast-tokens"
      size={10}
      data-token={side}
      title={words.tokenHint}
      aria-label={words.tokenHint}
      value={tokens.value[side]}
      onChange={(event) => {
        tokens.value = { ...tokens.value, [side]: event.currentTarget.value };
        apply();
      }}
    />
  );
  const value = patched.value?.value ?? null;
  const share = value === null ? null : restoredShare(value - metric.corrupted, metric);
  const shownCandidates = contrast.candidates.slice(0, 5);
  return (
    <section class="jk-contrast-metric">
      <p title={words.metricHint}>
        {metric.right ? (
          <>
            <b>{words.metric}</b> {enter("right")} {words.minus} {enter("wrong")}{" "}
            {contrast.position !== null && <span class="jk-hint">{words.position(labels[contrast.position] ?? "")}</span>}
          </>
        ) : (
          <b>{words.number}</b>
        )}
      </p>
      <datalist id="jk-contrast-tokens">
        {contrast.candidates.map(({ id, label }) => (
          <option key={id} value={label} />
        ))}
      </datalist>
      <table>
        <thead>
          <tr>
            <th />
            <th scope="col">{words.first}</th>
            <th scope="col">{words.second}</th>
            {patched.value && <th scope="col">{words.patched}</th>}
          </tr>
        </thead>
        <tbody>
          <tr class="jk-metric-row">
            <th scope="row">{metric.right ? words.metric : words.number}</th>
            <td data-value="clean">{formatSigned(metric.clean)}</td>
            <td data-value="corrupted">{formatSigned(metric.corrupted)}</td>
            {value !== null && (
              <td data-value="patched">
                {formatSigned(value)} {share !== null && <small>({words.restored(formatShare(share))})</small>}
              </td>
            )}
          </tr>
          {shownCandidates.map(({ id, label, clean, corrupted }, index) => (
            <tr key={id}>
              <th scope="row">{label}</th>
              <Share value={clean} />
              <Share value={corrupted} />
              {patched.value && <Share value={patched.value.probabilities[index] ?? 0} />}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Share({ value }: { value: number }) {
  return (
    <td>
      <span class="jk-bar" style={{ width: `${60 * value}%` }} /> <span class="jk-number">{formatPercent(value)}</span>
    </td>
  );
}

export function formatShare(share: number): string {
  const percent = share * 100;
  return `${percent < 0 ? "−" : ""}${Math.abs(percent).toFixed(Math.abs(percent) < 9.95 ? 1 : 0)}%`;
}

/** What is patched across, together. */
function PatchList({ run, contrast }: { run: Run; contrast: Contrast }) {
  const app = useApp();
  const all = app.words.value;
  const words = all.contrast;
  const { patches, patched } = app.contrast;
  const { isCopied, say } = useCopied(app);
  const metric = contrast.metric!;
  const share = patched.value && restoredShare(patched.value.value - metric.corrupted, metric);
  const copy = async () => copyText(await app.contrast.writeCode(null));
  return (
    <section class="jk-edits-across">
      <h3>{words.patchedTitle}</h3>
      {patches.value.length === 0 && <p class="jk-hint">{words.patchedNone}</p>}
      <ol class="jk-edit-list" data-patches>
        {patches.value.map((patch) => {
          const text = describePatch(app, run, contrast, patch);
          return (
            <li key={text}>
              <span>{text}</span>
              <button class="jk-quiet" title={all.remove} aria-label={`${all.remove}: ${text}`} onClick={() => app.contrast.toggle(patch)}>
                ✕
              </button>
            </li>
          );
        })}
      </ol>
      {patched.value && (
        <p aria-live="polite" data-patched>
          {metric.right ? words.metric : words.number}: {formatSigned(metric.corrupted)} → <b>{formatSigned(patched.value.value)}</b>
          {share !== null && `, ${words.restored(formatShare(share))}`}
        </p>
      )}
      <div class="jk-toolbar">
        {app.can("code") && (
          <button data-action="contrast-python" title={all.copyPythonHint} onClick={() => say(copy())}>
            {isCopied.value ? all.copied : all.copyPython}
          </button>
        )}
        {patches.value.length > 1 && <button onClick={() => app.contrast.clearPatches()}>{all.clear}</button>}
      </div>
    </section>
  );
}

const MOST_DIFFERENT = 4;

/** The maps of the selected head for both texts, and their difference. */
function Maps({ run }: { run: Run }) {
  const app = useApp();
  const words = app.words.value.contrast;
  const gestures: SharedGestures = {
    viewport: useSignal<Viewport | null>(null),
    cursor: useSignal<{ query: number; key: number } | null>(null),
    sentence: useSignal(""),
    values: useSignal<Map<Shown, VisibleValues>>(new Map()),
    most: useSignal(1),
  };
  const { site, head } = app.selection.current.value;
  const heads = run.sites.flatMap((shape, index) => Array.from({ length: shape.heads }, (_, number) => ({ site: index, head: number })));
  const changes = app.contrast.changes.value;
  const change = changes[heads.findIndex((other) => other.site === site && other.head === head)];
  const order = heads.map((other, index) => ({ ...other, change: changes[index] ?? 0 })).sort((a, b) => b.change - a.change);
  return (
    <section class="jk-contrast-maps">
      <h3>{words.mapsTitle}</h3>
      <p class="jk-hint">
        {describeHead(app, app.selection.current.value)}. {change === undefined ? words.mapsHint : words.differs(formatPercent(change))}
      </p>
      {changes.length > 0 && (
        <p class="jk-group jk-most-different">
          <span class="jk-hint">{words.mostDifferent}</span>
          {order.slice(0, MOST_DIFFERENT).map((other) => (
            <button
              key={`${other.site}.${other.head}`}
              aria-pressed={other.site === site && other.head === head}
              onClick={() => app.selection.chooseHead(other.site, other.head)}
            >
              {describeHead(app, other)} <small>{formatPercent(other.change)}</small>
            </button>
          ))}
        </p>
      )}
      <div class="jk-maps jk-contrast-three">
        <ContrastMap shown="clean" title={words.first} gestures={gestures} />
        <ContrastMap shown="edited" title={words.second} gestures={gestures} />
        <ContrastMap shown="difference" title={words.difference} gestures={gestures} />
        <div class="jk-explanation">
          <Legend kind="difference" most={gestures.most.value} title={words.scale} />
          <p class="jk-value" role="status" aria-live="polite">
            {gestures.sentence.value || app.words.value.hoverHint}
          </p>
        </div>
      </div>
    </section>
  );
}
