/** The text as tokens, shaded by where the selected token looks, beside what the model predicts. */

import { useEffect, useRef } from "preact/hooks";
import { listPassageCuts } from "../cuts";
import { type App, useApp } from "../app";
import { cssColour, inkOn, weightColour } from "../colour";
import { CompareButton } from "../contrast/compare_button";
import { describeHead, formatPercent } from "../describe";
import { Help } from "../guide/help";
import type { Prediction, Run, Sequence } from "../protocol";
import { ComparedTexts } from "./compared_texts";
import { revealIn, useLine } from "./hooks";

const MAX_CHIPS = 400;

export function TextStrip() {
  const app = useApp();
  const words = app.words.value;
  const run = app.run.current.value;
  const weights = useLine(app, "query");
  if (!run) return <section class="jk-strip jk-panel jk-empty" />;
  const site = app.selection.site.value;
  const isText = run.image === null && run.audio === null;
  const hasShades = weights.value.length > 0 && site !== null && (isText || site.key_sequence === "target");
  return (
    <section class="jk-strip jk-panel">
      <div class="jk-sequences">
        {isText && (
          <Chips
            app={app}
            run={run}
            sequence="source"
            title={run.target.length ? words.sourceTitle : ""}
            weights={site?.key_sequence === "source" ? weights.value : null}
          />
        )}
        {run.target.length > 0 && (
          <Chips
            app={app}
            run={run}
            sequence="target"
            title={words.targetTitle}
            weights={site?.key_sequence === "target" ? weights.value : null}
          />
        )}
        {isText && run.edited_answer !== null && (
          <ComparedTexts titles={[words.clean, words.edited]} before={run.answer ?? ""} after={run.edited_answer} empty={words.noAnswer} />
        )}
        <p class="jk-hint jk-strip-foot">
          {hasShades ? describeShades(app) : "\u00a0"}
          <CompareButton />
        </p>
      </div>
      <Predictions app={app} run={run} />
    </section>
  );
}

/** Say what the shades of the tokens are: weights of one row, or a sum. */
function describeShades(app: App): string {
  const words = app.words.value;
  const [heads, tokens] = [app.selection.listHeads().length, app.selection.listTokens().length];
  if (heads * tokens > 1) return words.shadedBySum(tokens, heads);
  return words.shadedBy(describeHead(app, app.selection.current.value));
}

interface ChipsProps {
  app: App;
  run: Run;
  sequence: Sequence;
  title: string;
  weights: Float32Array | null;
}

function Chips({ app, run, sequence, title, weights }: ChipsProps) {
  const words = app.words.value;
  const labels = sequence === "target" ? run.target : run.source;
  const selection = app.selection.current.value;
  const site = app.selection.site.value;
  const isQuerySide = site?.query_sequence === sequence;
  const first = Math.max(0, Math.min((selection.query ?? 0) - MAX_CHIPS / 2, labels.length - MAX_CHIPS));
  const shown = labels.slice(first, first + MAX_CHIPS);
  const passages = (sequence === "source" && run.answered?.passages) || [];
  const cut = listPassageCuts(passages, app.edits.current.value).map(({ passage }) => passage);
  const skip = app.skipFirst.value ? 1 : 0;
  let most = 0;
  if (weights) for (let key = skip; key < weights.length; key++) most = Math.max(most, weights[key]);

  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const selected = isQuerySide && ref.current!.querySelector<HTMLElement>(`[data-position="${selection.query}"]`);
    if (selected) revealIn(selected);
  }, [run, isQuerySide, selection.query]);

  const choose = (position: number, isAdding = false) => {
    if (isQuerySide && isAdding) app.selection.toggleToken(position);
    else if (isQuerySide) app.selection.chooseToken(position);
    else selectSequence(app, run, sequence, position);
  };
  const move = (event: KeyboardEvent, position: number) => {
    const next = position + (event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0);
    if (next === position || next < 0 || next >= labels.length) return;
    if (!app.selection.isAdding.value) choose(next);
    const parent = (event.currentTarget as HTMLElement).parentElement!;
    parent.querySelector<HTMLElement>(`[data-position="${next}"]`)?.focus();
    event.preventDefault();
  };
  return (
    <div class="jk-sequence">
      {title && <h2>{title}</h2>}
      <div class="jk-chips" ref={ref} role="group" aria-label={title || words.inputTitle} data-sequence={sequence}>
        {first > 0 && <span class="jk-more">… {first.toLocaleString()}</span>}
        {shown.map((label, index) => {
          const position = first + index;
          const weight = position >= skip ? (weights?.[position] ?? 0) : 0; // a new text is shown before its row
          const colour = weights ? weightColour(weight, app.scale.value, most, app.theme.value) : null;
          const isSelected = isQuerySide && selection.query === position;
          const isAdded = isQuerySide && app.selection.otherTokens.value.includes(position);
          const passage = passages.findIndex(({ range }) => range[0] <= position && position < range[1]);
          return (
            <button
              key={position}
              data-position={position}
              class={`jk-chip${isSelected || isAdded ? " jk-selected" : ""}${passage < 0 ? "" : ` jk-of-passage${cut.includes(passage) ? " jk-cut" : ""}`}`}
              data-number={passage >= 0 && passages[passage].range[0] === position ? passage + 1 : undefined}
              aria-pressed={isSelected || isAdded}
              tabIndex={isSelected || (selection.query === null && position === 0) ? 0 : -1}
              title={words.tokenHint(label, position)}
              style={colour ? { background: cssColour(colour), color: inkOn(colour) } : {}}
              onClick={(event) => choose(position, app.selection.adds(event))}
              onKeyDown={(event) => move(event, position)}
            >
              {label}
            </button>
          );
        })}
        {first + shown.length < labels.length && (
          <span class="jk-more">… {(labels.length - first - shown.length).toLocaleString()}</span>
        )}
      </div>
    </div>
  );
}

/** Select a token of a sequence that the current head does not query: the last head that does is opened. */
export function selectSequence(app: App, run: Run, sequence: Sequence, position: number): void {
  const site = run.sites.findLastIndex((candidate) => candidate.query_sequence === sequence);
  if (site >= 0) app.selection.current.value = { site, head: 0, query: position, key: null };
}

function Predictions({ app, run }: { app: App; run: Run }) {
  const words = app.words.value;
  const site = app.selection.site.value;
  const { query } = app.selection.current.value;
  const predicted: Sequence = run.target.length ? "target" : "source";
  const wanted = site?.query_sequence === predicted ? query : null;
  const clean = findPrediction(run.clean, wanted);
  const edited = run.edited ? findPrediction(run.edited, wanted) : null;
  const labels = predicted === "target" ? run.target : run.source;
  const label = labels[clean?.position ?? wanted ?? -1] ?? "";
  return (
    <div class="jk-predictions">
      <span class="jk-group">
        <h2>{(words.predictionTitle[run.model.predicts] ?? (() => ""))(label)}</h2>
        <Help of={["token", "prediction", "logits", "change"]} label={words.guide.predictions} />
      </span>
      {clean && (
        <table>
          <thead class={edited ? "" : "jk-hidden"}>
            <tr>
              <th class="jk-change" title={words.changeHint}>
                {run.change !== null && clean === run.clean.at(-1) && words.changeOf(run.change.toPrecision(2))}
              </th>
              <th>{words.clean}</th>
              {edited && <th>{words.edited}</th>}
            </tr>
          </thead>
          <tbody>
            {joinCandidates(clean, edited).map(({ label: name, id, before, after }) => (
              <tr key={id}>
                <th scope="row">{name}</th>
                <ProbabilityCell probability={before} className="jk-clean" isNumber={run.model.predicts === "number"} />
                {edited && <ProbabilityCell probability={after} className="jk-edited" isNumber={run.model.predicts === "number"} />}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p class="jk-hint">
        {clean?.actual &&
          words.actualProbability(
            clean.actual.label,
            [clean, edited].flatMap((side) => (side?.actual ? [formatPercent(side.actual.probability)] : [])).join(" → "),
          )}
        {!clean && run.clean.length > 0 && words.noPrediction(run.clean.length)}
      </p>
    </div>
  );
}

function ProbabilityCell({ probability, className, isNumber }: { probability: number | null; className: string; isNumber: boolean }) {
  if (probability === null) return <td class={className}>–</td>;
  if (isNumber) return <td class={className} />;
  return (
    <td class={className}>
      <span class="jk-bar" style={{ width: `${Math.max(probability * 100, 0.5)}%` }} />
      <span class="jk-number">{formatPercent(probability)}</span>
    </td>
  );
}

/** Return the prediction at a position; without one that is selected, and of a whole input, the last prediction. */
function findPrediction(predictions: Prediction[], position: number | null): Prediction | null {
  const last = predictions.at(-1) ?? null;
  return position === null || last?.position === -1 ? last : (predictions.find((prediction) => prediction.position === position) ?? null);
}

interface Candidate {
  label: string;
  id: number;
  before: number | null;
  after: number | null;
}

/** Join the candidates of both passes, the most probable ones of either first. */
export function joinCandidates(clean: Prediction, edited: Prediction | null): Candidate[] {
  const joined = new Map<number, Candidate>();
  for (const { label, id, probability } of clean.candidates) joined.set(id, { label, id, before: probability, after: null });
  for (const { label, id, probability } of edited?.candidates ?? []) {
    const known = joined.get(id);
    if (known) known.after = probability;
    else joined.set(id, { label, id, before: null, after: probability });
  }
  for (const candidate of joined.values()) {
    // the token that follows is known in both passes
    if (clean.actual?.id === candidate.id) candidate.before ??= clean.actual.probability;
    if (edited?.actual?.id === candidate.id) candidate.after ??= edited.actual.probability;
  }
  const largest = ({ before, after }: Candidate) => Math.max(before ?? 0, after ?? 0);
  return [...joined.values()].sort((a, b) => largest(b) - largest(a)).slice(0, edited ? 5 : 6);
}
