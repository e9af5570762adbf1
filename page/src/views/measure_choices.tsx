/** The choices of "Does it matter?": the metric, its tokens and position, and how heads are ablated. */

import { useApp } from "../app";
import type { AblationMethod, MetricName, Run } from "../protocol";

const METRICS: MetricName[] = ["log-probability", "logit-difference", "kl", "loss"];
const METHODS: AblationMethod[] = ["zero", "mean", "resample"];

export function MeasureChoices({ run }: { run: Run }) {
  const app = useApp();
  const words = app.words.value;
  const { by, metric, token, other } = app.measurement;
  const { predicts } = run.model;
  const readsTokens = predicts === "next token" || predicts === "masked token";
  const hasToken = predicts === "class" || (readsTokens && (metric.value === "log-probability" || metric.value === "logit-difference"));
  const candidates = app.measurement.listCandidates(run);
  return (
    <div class="jk-toolbar jk-choices">
      {readsTokens && (
        <label>
          {words.metricTitle}{" "}
          <select data-action="metric" value={metric.value} onChange={(event) => (metric.value = event.currentTarget.value as MetricName)}>
            {METRICS.map((name) => (
              <option key={name} value={name}>
                {words.metricNames[name]}
              </option>
            ))}
          </select>
        </label>
      )}
      {hasToken && (
        <label title={words.metricTokenHint}>
          {predicts === "class" ? words.metricClass : words.metricToken}{" "}
          <input
            data-action="metric-token"
            list="jk-candidates"
            size={9}
            maxLength={100}
            value={token.value}
            placeholder={candidates[0]?.label ?? ""}
            onInput={(event) => (token.value = event.currentTarget.value)}
          />
        </label>
      )}
      {readsTokens && metric.value === "logit-difference" && (
        <label title={words.metricTokenHint}>
          {words.metricOther}{" "}
          <input
            data-action="metric-other"
            list="jk-candidates"
            size={9}
            maxLength={100}
            value={other.value}
            placeholder={candidates[1]?.label ?? ""}
            onInput={(event) => (other.value = event.currentTarget.value)}
          />
        </label>
      )}
      <datalist id="jk-candidates">
        {candidates.map(({ label, id }) => (
          <option key={id} value={label} />
        ))}
      </datalist>
      {readsTokens && metric.value !== "loss" && <PositionChoice run={run} />}
      <label title={words.ablationHint}>
        {words.ablationTitle}{" "}
        <select data-action="ablation" value={by.value} onChange={(event) => (by.value = event.currentTarget.value as AblationMethod)}>
          {METHODS.map((method) => (
            <option key={method} value={method}>
              {words.ablationNames[method]}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

/** Where the metric reads: the usual position, the selected token, or the one that was chosen before. */
function PositionChoice({ run }: { run: Run }) {
  const app = useApp();
  const words = app.words.value;
  const { position } = app.measurement;
  const sequence = run.target.length ? "target" : "source";
  const labels = run[sequence];
  const { query } = app.selection.current.value;
  const selected = app.selection.site.value?.query_sequence === sequence ? query : null;
  const positions = [...new Set([selected, position.value])].filter((index): index is number => index !== null && index < labels.length);
  return (
    <label title={words.metricPositionHint}>
      {words.metricPosition}{" "}
      <select
        data-action="metric-position"
        value={position.value ?? ""}
        onChange={(event) => (position.value = event.currentTarget.value === "" ? null : Number(event.currentTarget.value))}
      >
        <option value="">{run.target.length ? words.firstWord : words.lastToken}</option>
        {positions.map((index) => (
          <option key={index} value={index}>
            “{labels[index]}” [{index}]
          </option>
        ))}
      </select>
    </label>
  );
}
