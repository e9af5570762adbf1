/** The text as it is written: one token after the other, with the row of the selected head at each step. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { useApp } from "../app";
import { cssColour, inkOn, weightColour } from "../colour";
import { describeHead, formatPercent, labelsOf } from "../describe";
import { useLine } from "./hooks";
import { selectSequence } from "./text_strip";

const STEP_TIME = 700; // ms between two steps

export function GenerationView() {
  const app = useApp();
  const words = app.words.value;
  const run = app.run.current.value;
  const site = app.selection.site.value;
  const isPlaying = useSignal(false);
  const row = useLine(app, "query");
  const sequence = run?.target.length ? "target" : "source";
  const labels = run ? labelsOf(run, sequence) : [];
  const isCausal = run?.model.predicts === "next token";
  // the row of position p writes token p + 1
  const start = run ? Math.max(1, Math.min(run.generated, labels.length - 1)) : 1;
  const hasGenerated = run !== null && run.generated < labels.length && run.generated > 0;
  const first = hasGenerated ? start : 1;
  const count = Math.max(0, labels.length - first);
  const query = app.selection.current.value.query ?? first - 1;
  const step = Math.max(0, Math.min(query + 1 - first, count - 1));
  const written = first + step;

  const goTo = (target: number) => {
    if (!run) return;
    const position = first + Math.max(0, Math.min(target, count - 1)) - 1;
    if (site?.query_sequence === sequence) app.selection.change({ query: position, key: null });
    else selectSequence(app, run, sequence, position);
  };
  useEffect(() => {
    if (run && hasGenerated) goTo(0);
  }, [run?.run, hasGenerated]);
  useEffect(() => {
    if (!isPlaying.value) return;
    const timer = setTimeout(() => {
      if (step + 1 >= count) isPlaying.value = false;
      else goTo(step + 1);
    }, STEP_TIME);
    return () => clearTimeout(timer);
  }, [isPlaying.value, step]);

  if (!run || !isCausal || count === 0) return <p class="jk-hint">{words.pickToken}</p>;
  const predictions = run.edited && app.pass.value === "edited" ? run.edited : run.clean;
  const prediction = predictions.find(({ position }) => position === written - 1);
  const isOwnRow = site?.query_sequence === sequence;
  const shadesKeys = isOwnRow && site?.key_sequence === sequence;
  const skip = app.skipFirst.value ? 1 : 0;
  const most = row.value.length ? row.value.subarray(skip).reduce((largest, weight) => Math.max(largest, weight), 0) : 1;
  const sourceWeights = isOwnRow && site?.key_sequence === "source" && sequence === "target" ? row.value : null;
  const from = Math.max(0, written - 150);
  return (
    <div class="jk-generation">
      <div class="jk-toolbar">
        <strong class="jk-title">{words.generationTitle}</strong>
        <span class="jk-group">
          <button aria-label={words.previousStep} disabled={step === 0} onClick={() => goTo(step - 1)}>
            ◀
          </button>
          <button class="jk-main" data-action="play" onClick={() => (isPlaying.value = !isPlaying.value)}>
            {isPlaying.value ? words.pause : words.play}
          </button>
          <button aria-label={words.nextStep} data-action="later" disabled={step + 1 >= count} onClick={() => goTo(step + 1)}>
            ▶
          </button>
        </span>
        <input type="range" class="jk-wide" min={0} max={Math.max(0, count - 1)} value={step} aria-label={words.generationTitle} onInput={(event) => goTo(Number(event.currentTarget.value))} />
        <span class="jk-number">{words.stepOf(step + 1, count)}</span>
      </div>
      {sourceWeights && run.image === null && run.audio === null && (
        <p class="jk-written">
          {run.source.map((label, position) => (
            <Shaded key={position} label={label} weight={sourceWeights[position] ?? 0} most={most} />
          ))}
        </p>
      )}
      <p class="jk-written" aria-live="polite">
        {from > 0 && "… "}
        {labels.slice(from, written).map((label, index) => {
          const position = from + index;
          const weight = shadesKeys && position >= skip ? (row.value[position] ?? 0) : 0;
          return <Shaded key={position} label={label} weight={weight} most={most} isQuery={position === written - 1} />;
        })}
        <b class="jk-new">{labels[written]}</b>
      </p>
      <p>
        {(hasGenerated ? words.writes : words.follows)(labels[written - 1], labels[written], describeHead(app, app.selection.current.value))}
      </p>
      <h3>{words.candidates}</h3>
      {!prediction && <p class="jk-hint">{words.noPrediction(predictions.length)}</p>}
      <table class="jk-candidates">
        <tbody>
          {prediction?.candidates.map(({ label, id, probability }) => (
            <tr key={id} class={label === labels[written] ? "jk-current" : ""}>
              <th>{label}</th>
              <td>
                <span class="jk-bar" style={{ width: `${probability * 100}%` }} />
              </td>
              <td class="jk-number">{formatPercent(probability)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Shaded({ label, weight, most, isQuery = false }: { label: string; weight: number; most: number; isQuery?: boolean }) {
  const app = useApp();
  const colour = weightColour(weight, app.scale.value, most, app.theme.value);
  return (
    <span class={`jk-chip${isQuery ? " jk-selected" : ""}`} title={weight.toFixed(4)} style={{ background: cssColour(colour), color: inkOn(colour) }}>
      {label}
    </span>
  );
}
