/** The whole model above the map: the selected token from the embedding through every layer to the logits, with the sizes
 * of the parts, the length of the residual stream, and the logit lens. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type App, useApp } from "../app";
import { formatPercent, labelsOf } from "../describe";
import { Help } from "../guide/help";
import type { Candidate, Layer, Layers, LayersAsk, StreamStep } from "../protocol";
import { useAnswer } from "./hooks";

const PAUSE = 150; // ms after the last selection: a held arrow key asks once

export function BlockStrip() {
  const app = useApp();
  const words = app.words.value.strip;
  const run = app.run.current.value;
  const site = app.selection.site.value;
  const { query } = app.selection.current.value;
  const sequence = site?.query_sequence ?? "source";
  const wanted: LayersAsk | null =
    run && site && app.can("layers") ? { run: run.run, show: app.pass.value, sequence, position: query ?? site.queries - 1 } : null;
  const fields = useSignal<LayersAsk | null>(null);
  const layers = useSignal<Layers | null>(null);
  useEffect(() => {
    const timer = setTimeout(() => (fields.value = wanted), PAUSE);
    return () => clearTimeout(timer);
  }, [JSON.stringify(wanted)]);
  useEffect(() => {
    layers.value = null; // the layers of another stack or model
  }, [run?.model.name, sequence]);
  const isMissing = useSignal(false); // in a saved file, of a long sequence
  const show = (body: Layers | null) => {
    layers.value = body;
    isMissing.value = body === null;
  };
  useAnswer(app, "layers", fields.value, ({ body }) => show(body), () => show(null));
  if (!wanted || !run || isMissing.value) return null;

  const shown = layers.value;
  const isOpen = app.guide.isStripOpen.value;
  const label = labelsOf(run, sequence)[wanted.position] ?? "";
  return (
    <section class="jk-blocks" aria-label={words.title} data-position={shown && fields.value?.position}>
      <div class="jk-blocks-title">
        <button class="jk-quiet" aria-expanded={isOpen} data-action="blocks" onClick={() => (app.guide.isStripOpen.value = !isOpen)}>
          {isOpen ? "▾" : "▸"} {words.title}
        </button>
        <Help of={["embedding", "residual", "attention", "mlp", "norm", "logits", "lens"]} label={words.title} />
        <small>{shown && describeSizes(app, shown)}</small>
      </div>
      {isOpen && shown && shown.layers.length > 0 && <Table app={app} layers={shown} label={label} />}
      {isOpen && shown?.gap && <p class="jk-hint">{words.gaps[shown.gap]}</p>}
    </section>
  );
}

/** "576 numbers per token → 30 × (9 heads × 64, MLP 1,536) → 49,152 logits" */
function describeSizes(app: App, { width, heads, groups, head_width, hidden, outputs, layers }: Layers): string {
  const words = app.words.value.strip;
  const write = (number: number) => number.toLocaleString(app.language.value);
  const attention = [words.heads(heads), head_width === null ? "" : ` × ${head_width}`, groups !== null && groups < heads ? words.groups(groups) : ""].join("");
  const block = [attention, hidden === null ? "" : words.hidden(write(hidden))].filter(Boolean).join(" + ");
  const predicts = app.run.current.value!.model.predicts;
  return [
    width === null ? "" : words.width(write(width)),
    layers.length ? `${layers.length} × (${block})` : block,
    outputs === null ? "" : predicts === "class" ? words.classes(write(outputs)) : words.vocabulary(write(outputs)),
  ]
    .filter(Boolean)
    .join(" → ");
}

function Table({ app, layers: { layers, candidates, gap }, label }: { app: App; layers: Layers; label: string }) {
  const words = app.words.value.strip;
  const { site } = app.selection.current.value;
  const current = layers.findIndex((layer) => layer.steps.some((step) => step.site === site));
  const part = layers[current]?.steps.find((step) => step.site === site)?.part;
  const mostNorm = Math.max(layers[0].before, ...layers.map(({ after }) => after ?? 0), 1e-9);
  const predicted = layers.at(-1)!.candidates[0];

  const choose = (index: number): boolean => {
    const steps = layers[index]?.steps.filter((step) => step.site !== null) ?? [];
    const chosen = steps.find((step) => step.part === part) ?? steps[0];
    if (chosen) app.selection.chooseHead(chosen.site!, app.selection.current.value.head);
    return chosen !== undefined;
  };
  const move = (event: KeyboardEvent, index: number) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step || !choose(index + step)) return;
    event.preventDefault();
    (event.currentTarget as HTMLElement).closest("tr")!.querySelector<HTMLElement>(`[data-layer="${index + step}"]`)?.focus();
  };
  const scroll = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const [box, header] = [scroll.current!, scroll.current!.querySelector<HTMLElement>("thead .jk-current")];
    if (!header) return;
    const first = box.querySelector("tr > :first-child")!.getBoundingClientRect().right; // the rows' names cover what is scrolled below them
    const { left, right } = header.getBoundingClientRect();
    const end = box.getBoundingClientRect().right;
    if (left < first || right > end) box.scrollLeft += (left + right - first - end) / 2;
  }, [current]);
  const mark = (index: number) => (index === current ? "jk-current" : "");
  return (
    <div class="jk-blocks-scroll" ref={scroll}>
      <table>
        <caption class="jk-live">{words.caption(label)}</caption>
        <thead>
          <tr>
            <th scope="col">“{label}”</th>
            <th scope="col">{words.embedding}</th>
            {layers.map((layer, index) => (
              <th scope="col" key={layer.name} class={mark(index)}>
                <button
                  data-layer={index}
                  aria-pressed={index === current}
                  aria-label={`${words.layer} ${index}`}
                  title={layer.name}
                  tabIndex={index === Math.max(current, 0) ? 0 : -1}
                  onClick={() => choose(index)}
                  onKeyDown={(event) => move(event, index)}
                >
                  {index}
                </button>
              </th>
            ))}
            <th scope="col">{words.logits}</th>
          </tr>
        </thead>
        <tbody>
          <tr class="jk-added">
            <th scope="row">
              <i class="jk-attention" /> {words.attention} <i /> {words.mlp}
            </th>
            <td />
            {layers.map((layer, index) => (
              <td key={layer.name} class={mark(index)} title={layer.steps.map((step) => describeStep(app, step)).join("\n")}>
                {layer.steps.map((step, part) => (
                  <span key={part} class={step.site === null ? "" : "jk-attention"} style={{ width: `${100 * compareAdded(step, layer)}%` }}>
                    <span class="jk-live">{describeStep(app, step)}</span>
                  </span>
                ))}
              </td>
            ))}
            <td />
          </tr>
          <tr class="jk-norms">
            <th scope="row">{words.norm}</th>
            <NormCell norm={layers[0].before} most={mostNorm} className="" />
            {layers.map((layer, index) => (
              <NormCell key={layer.name} norm={layer.after} most={mostNorm} className={mark(index)} />
            ))}
            <td />
          </tr>
          {gap === null && (
            <tr class="jk-lens">
              <th scope="row">{words.lens}</th>
              <LensCell candidates={candidates} className="" />
              {layers.map((layer: Layer, index) => (
                <LensCell key={layer.name} candidates={layer.candidates} className={mark(index)} />
              ))}
              <td>{predicted && `${predicted.label} ${formatPercent(predicted.probability)}`}</td>
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

/** Compare the vector that a part adds with the residual stream behind it: 1 is as long, or longer. */
function compareAdded({ added, norm }: StreamStep, { before, after }: Layer): number {
  return Math.min(1, added / Math.max(norm ?? after ?? before, 1e-9));
}

function describeStep(app: App, { part, added, norm }: StreamStep): string {
  const words = app.words.value.strip;
  return words.step(words.parts[part], formatNorm(added), norm === null ? "" : formatNorm(norm));
}

function formatNorm(norm: number): string {
  return norm >= 1000 ? norm.toFixed(0) : norm.toPrecision(3);
}

function NormCell({ norm, most, className }: { norm: number | null; most: number; className: string }) {
  if (norm === null) return <td class={className}>–</td>;
  return (
    <td class={className}>
      <span class="jk-bar" style={{ width: `${(100 * norm) / most}%` }} />
      <span class="jk-number">{formatNorm(norm)}</span>
    </td>
  );
}

function LensCell({ candidates, className }: { candidates: Candidate[]; className: string }) {
  const best = candidates[0];
  if (!best) return <td class={className}>–</td>;
  return (
    <td
      class={className}
      title={candidates.map(({ label, probability }) => `${label}  ${formatPercent(probability)}`).join("\n")}
      style={{ background: `color-mix(in srgb, var(--bar) ${Math.round(60 * best.probability)}%, transparent)` }}
    >
      {best.label}
    </td>
  );
}
