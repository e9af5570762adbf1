/** Weight beside measured effect: does it matter where a head looks? */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type App, useApp } from "../app";
import { describeHead, formatSigned, labelsOf } from "../describe";
import { FONT, readColours } from "../map/painter";
import type { EffectRow, Effects } from "../protocol";
import { MeasureChoices } from "./measure_choices";
import { TaskLine } from "./task_line";

export function EffectView() {
  const app = useApp();
  const words = app.words.value;
  const canMeasure = app.can("effect") && app.canEdit.value; // a file only has what was measured before
  const isBusy = app.task.value?.name === "effect";
  const measuresEdges = app.hello.value?.carrier !== "live"; // they are screened by a gradient
  const heads = app.run.effects.value.heads;
  const edges = app.run.effects.value.edges;
  return (
    <div class="jk-effects">
      <h2>{words.effectTitle}</h2>
      <p>
        {words.effectIntro}
        {app.edits.current.value.length > 0 && <b> {words.effectOfClean}</b>}
      </p>
      {canMeasure && <MeasureChoices run={app.run.current.value!} />}
      {canMeasure ? (
        <div class="jk-toolbar">
          <button class="jk-main" data-action="measure-heads" disabled={isBusy} onClick={() => void app.run.measure("heads")}>
            {words.measureHeads}
          </button>
          {measuresEdges && (
            <button class="jk-main" data-action="measure-edges" disabled={isBusy} onClick={() => void app.run.measure("edges")}>
              {words.measureEdges}
            </button>
          )}
          <TaskLine only="effect" />
        </div>
      ) : (
        <p class="jk-hint">{app.hello.value?.carrier === "file" ? words.effectNeedsProgram : words.notEditable}</p>
      )}
      <div class="jk-effect-columns">
        <section>
          <h3>{words.headEffectsTitle}</h3>
          {heads ? <HeadBars app={app} effects={heads} /> : <p class="jk-hint">{words.notMeasured}</p>}
        </section>
        <section>
          <h3>{words.edgeEffectsTitle}</h3>
          {edges ? <EdgeScatter app={app} effects={edges} /> : <p class="jk-hint">{measuresEdges ? words.notMeasured : words.edgesNeedPython}</p>}
        </section>
      </div>
    </div>
  );
}

function MetricLine({ app, effects }: { app: App; effects: Effects }) {
  const words = app.words.value;
  const ablation = effects.over === "heads" ? ` ${words.ablatedBy(words.ablationNames[effects.by] ?? effects.by)}` : "";
  return (
    <p class="jk-hint jk-metric-line">
      {words.metricLine(words.metricName(effects.metric), effects.clean.toPrecision(4).replace("-", "−"))}
      {ablation}
    </p>
  );
}

const SHOWN_ROWS = 24;

function HeadBars({ app, effects }: { app: App; effects: Effects }) {
  const rows = [...effects.rows].sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect)).slice(0, SHOWN_ROWS);
  const most = Math.max(...rows.map(({ effect }) => Math.abs(effect)), 1e-9);
  return (
    <>
      <MetricLine app={app} effects={effects} />
      <ol class="jk-effect-bars">
        {rows.map((row) => (
          <li key={`${row.site}.${row.head}`}>
            <button class="jk-quiet" onClick={() => app.selection.chooseHead(row.site, row.head)}>
              <span class="jk-label">{describeHead(app, row)}</span>
              <span class="jk-track jk-both">
                <span
                  class={`jk-bar${row.effect < 0 ? " jk-negative" : ""}`}
                  style={{
                    width: `${(Math.abs(row.effect) / most) * 50}%`,
                    left: row.effect < 0 ? `${50 - (Math.abs(row.effect) / most) * 50}%` : "50%",
                  }}
                />
              </span>
              <span class="jk-number">{formatSigned(row.effect)}</span>
            </button>
          </li>
        ))}
      </ol>
    </>
  );
}

function EdgeScatter({ app, effects }: { app: App; effects: Effects }) {
  const words = app.words.value;
  const ref = useRef<HTMLCanvasElement>(null);
  const hovered = useSignal<EffectRow | null>(null);
  const points = useRef<{ x: number; y: number; row: EffectRow }[]>([]);
  const theme = app.theme.value;
  useEffect(() => {
    const canvas = ref.current!;
    const ratio = devicePixelRatio || 1;
    const { width, height } = canvas.getBoundingClientRect();
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const colours = readColours(theme);
    const [left, right, top, bottom] = [62, 12, 10, 34];
    const bounds = effects.rows.flatMap(({ effect, control_low, control_high }) => [effect, control_low ?? 0, control_high ?? 0]);
    const [least, most] = [Math.min(0, ...bounds) * 1.08, Math.max(0, ...bounds) * 1.08];
    const range = most - least || 1;
    const toX = (weight: number) => left + weight * (width - left - right);
    const toY = (effect: number) => top + ((most - effect) / range) * (height - top - bottom);
    context.font = `11px ${FONT}`;
    context.fillStyle = colours.soft;
    context.strokeStyle = colours.line;
    context.beginPath();
    context.moveTo(left, toY(0));
    context.lineTo(width - right, toY(0));
    context.moveTo(left, top);
    context.lineTo(left, height - bottom);
    context.stroke();
    context.textAlign = "center";
    for (const tick of [0, 0.25, 0.5, 0.75, 1]) context.fillText(String(tick), toX(tick), height - bottom + 14);
    context.fillText(words.weightAxis, (left + width - right) / 2, height - 4);
    context.textAlign = "right";
    for (const tick of [least / 1.08, 0, most / 1.08].filter((tick) => tick === 0 || Math.abs(tick) > range * 0.08)) context.fillText(formatSigned(tick), left - 6, toY(tick) + 4);
    context.save();
    context.translate(11, (top + height - bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(words.effectAxis, 0, 0);
    context.restore();
    points.current = [];
    for (const row of effects.rows) {
      const x = toX(row.weight ?? 0);
      if (row.control_low !== null && row.control_high !== null) {
        context.strokeStyle = theme === "light" ? "#d3d8e0" : "#3d4654";
        context.lineWidth = 3;
        context.beginPath();
        context.moveTo(x, toY(row.control_low));
        context.lineTo(x, toY(row.control_high) - 1);
        context.stroke();
        context.lineWidth = 1;
      }
    }
    for (const row of effects.rows) {
      const [x, y] = [toX(row.weight ?? 0), toY(row.effect)];
      context.fillStyle = row.effect < 0 ? (theme === "light" ? "#c45c00" : "#ffa046") : theme === "light" ? "#5c34a0" : "#b096ff";
      context.beginPath();
      context.arc(x, y, row === hovered.value ? 7 : 4.5, 0, 2 * Math.PI);
      context.fill();
      points.current.push({ x, y, row });
    }
  }, [effects, theme, hovered.value, words]);
  const nearest = (event: MouseEvent) => {
    const bounds = ref.current!.getBoundingClientRect();
    const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
    let best: { distance: number; row: EffectRow | null } = { distance: 14, row: null };
    for (const point of points.current) {
      const distance = Math.hypot(point.x - x, point.y - y);
      if (distance < best.distance) best = { distance, row: point.row };
    }
    return best.row;
  };
  const open = (row: EffectRow | null) => {
    if (!row) return;
    app.selection.current.value = { site: row.site, head: row.head, query: row.query, key: row.key };
    app.view.value = "map";
  };
  const strongest = [...effects.rows].sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect)).slice(0, 8);
  return (
    <>
      <MetricLine app={app} effects={effects} />
      <canvas
        ref={ref}
        class="jk-scatter"
        role="img"
        aria-label={words.edgeEffectsTitle}
        onMouseMove={(event) => (hovered.value = nearest(event))}
        onMouseLeave={() => (hovered.value = null)}
        onClick={(event) => open(nearest(event))}
      />
      <p class="jk-hint">{hovered.value ? describeEdge(app, hovered.value) : words.controlsLegend}</p>
      <h3>{words.strongest}</h3>
      <ol class="jk-edge-list">
        {strongest.map((row) => (
          <li key={`${row.site}.${row.head}.${row.query}.${row.key}`}>
            <button class="jk-quiet" onClick={() => open(row)}>
              {describeEdge(app, row)}
            </button>
          </li>
        ))}
      </ol>
    </>
  );
}

function describeEdge(app: App, row: EffectRow): string {
  const words = app.words.value;
  const run = app.run.current.value!;
  const site = run.sites[row.site];
  const query = `${labelsOf(run, site.query_sequence)[row.query ?? 0]} [${row.query}]`;
  const key = `${labelsOf(run, site.key_sequence)[row.key ?? 0]} [${row.key}]`;
  const parts = [
    describeHead(app, row),
    words.edge(query, key),
    `${words.weight} ${(row.weight ?? 0).toFixed(2)}`,
    words.effectOf(formatSigned(row.effect)),
  ];
  if (row.rank !== null && row.of !== null) parts.push(words.controlRank(row.rank, row.of));
  return parts.join(", ");
}
