/** All heads: one thumbnail each, layers by heads, framed in the colour of its kind; or sorted by a property. */

import { useEffect, useRef } from "preact/hooks";
import { type App, type HeadOrder, useApp } from "../app";
import { buildPixels, KIND_COLOURS, KINDS } from "../colour";
import { ablates, describeHead, formatSigned, shortenSite } from "../describe";
import { Help } from "../guide/help";
import type { Run } from "../protocol";
import { headKey, type Preview, type Thumbnail } from "../run";
import { useReveal } from "./hooks";

interface Head {
  site: number;
  head: number;
}

export function HeadGrid() {
  const app = useApp();
  const words = app.words.value;
  const run = app.run.current.value;
  const previews = app.run.previews.value;
  const orders: HeadOrder[] = ["model", "kind", "entropy", "effect", "similar"];
  return (
    <nav class="jk-heads jk-panel" aria-label={words.headsTitle}>
      <div class="jk-heads-title">
        <span class="jk-group">
          <h2 title={words.headsHint}>{words.headsTitle}</h2>
          <Help of={["head", "layer", "kind", "entropy", "effect"]} label={words.headsTitle} kinds={[...new Set([...app.run.facts.value.values()].map(({ kind }) => kind))]} />
        </span>
        <label>
          {words.orderTitle}{" "}
          <select
            value={app.order.value}
            onChange={(event) => {
              app.order.value = event.currentTarget.value as HeadOrder;
              if (app.order.value === "effect" && !app.run.effects.value.heads && app.can("effect")) void app.run.measure("heads");
            }}
          >
            {orders.map((order) => (
              <option key={order} value={order}>
                {words.orders[order]}
              </option>
            ))}
          </select>
        </label>
      </div>
      {previews.length > 0 && <small role="status">{words.layersSoFar(previews.length)}</small>}
      <div class="jk-grid">
        {previews.length > 0 ? (
          <Previews app={app} previews={previews} />
        ) : (
          run && (app.order.value === "model" ? <Layers app={app} run={run} /> : <Sorted app={app} run={run} />)
        )}
      </div>
      {run && previews.length === 0 && <KindLegend app={app} />}
    </nav>
  );
}

const GRID_WIDTH = 243; // pixels of a layer's thumbnails
const MAX_IN_LINE = 12; // heads; the other heads of a layer follow below

const FRAME = 6; // pixels: 2 of border on each side, 2 between heads

/** Choose the width of a thumbnail so that the heads of a layer fit into the panel, in lines of equal length. */
function chooseSize(heads: number): { size: number; lineWidth: number } {
  const inLine = Math.ceil(heads / Math.ceil(heads / MAX_IN_LINE));
  const size = Math.min(88, Math.floor(GRID_WIDTH / inLine) - FRAME);
  return { size, lineWidth: inLine * (size + FRAME) };
}

function Layers({ app, run }: { app: App; run: Run }) {
  const stacks = new Map<number, number[]>();
  run.sites.forEach(({ stack }, index) => stacks.set(stack, [...(stacks.get(stack) ?? []), index]));
  const { size, lineWidth } = chooseSize(Math.max(...run.sites.map(({ heads }) => heads)));
  return (
    <>
      {[...stacks.values()].map((sites) => (
        <section key={sites[0]}>
          {run.sites[sites[0]].stack_title && <h3>{app.words.value.stacks[run.sites[sites[0]].stack_title] ?? run.sites[sites[0]].stack_title}</h3>}
          {sites.map((site, row) => (
            <div class="jk-layer" key={site}>
              <span class="jk-layer-name" title={run.sites[site].name}>
                {typeof run.sites[site].layer === "number" ? run.sites[site].layer : row}
              </span>
              <div class="jk-layer-heads" style={{ maxWidth: `${lineWidth}px` }}>
                {Array.from({ length: run.sites[site].heads }, (_, head) => (
                  <HeadButton key={head} app={app} site={site} head={head} size={size} />
                ))}
              </div>
            </div>
          ))}
        </section>
      ))}
    </>
  );
}

/** The layers of a slow run that are computed; heads cannot be chosen before it has finished. */
function Previews({ app, previews }: { app: App; previews: Preview[] }) {
  const { size, lineWidth } = chooseSize(Math.max(...previews.map(({ heads }) => heads.length)));
  return (
    <section data-previews>
      {previews.map(({ name, heads }, layer) => (
        <div class="jk-layer" key={layer}>
          <span class="jk-layer-name" title={name}>
            {layer}
          </span>
          <div class="jk-layer-heads" style={{ maxWidth: `${lineWidth}px` }}>
            {heads.map((thumbnail, head) => (
              <span class="jk-head" key={head}>
                <ThumbnailCanvas app={app} thumbnail={thumbnail} size={size} />
              </span>
            ))}
          </div>
        </div>
      ))}
    </section>
  );
}

function Sorted({ app, run }: { app: App; run: Run }) {
  return (
    <div class="jk-sorted">
      {sortHeads(app, run).map(({ site, head, note }) => (
        <div key={headKey(site, head)}>
          <HeadButton app={app} site={site} head={head} size={52} />
          <small>
            {typeof run.sites[site].layer === "number" ? `L${run.sites[site].layer}` : shortenSite(String(run.sites[site].layer))} H{head}
          </small>
          <small>{note}</small>
        </div>
      ))}
    </div>
  );
}

function sortHeads(app: App, run: Run): (Head & { note: string })[] {
  const words = app.words.value;
  const heads: Head[] = run.sites.flatMap(({ heads }, site) => Array.from({ length: heads }, (_, head) => ({ site, head })));
  const facts = ({ site, head }: Head) => app.run.facts.value.get(headKey(site, head));
  const order = app.order.value;
  if (order === "kind") {
    const rank = (head: Head) => KINDS.indexOf(facts(head)?.kind ?? "mixed");
    return heads
      .map((head) => ({ ...head, note: words.kinds[facts(head)?.kind ?? ""] ?? "" }))
      .sort((a, b) => rank(a) - rank(b) || a.site - b.site || a.head - b.head);
  }
  if (order === "entropy") {
    const entropy = (head: Head) => facts(head)?.entropy ?? Infinity;
    return heads
      .map((head) => ({ ...head, note: facts(head) ? facts(head)!.entropy.toFixed(2) : "" }))
      .sort((a, b) => entropy(a) - entropy(b));
  }
  if (order === "effect") {
    const effects = new Map(app.run.effects.value.heads?.rows.map((row) => [headKey(row.site, row.head), row.effect]));
    const effect = ({ site, head }: Head) => effects.get(headKey(site, head));
    return heads
      .map((head) => ({ ...head, note: effect(head) === undefined ? "" : formatSigned(effect(head)!) }))
      .sort((a, b) => Math.abs(effect(b) ?? 0) - Math.abs(effect(a) ?? 0));
  }
  const { site, head } = app.selection.current.value;
  const reference = app.run.thumbnails.value.get(headKey(site, head));
  const similarity = (candidate: Head) => compareThumbnails(reference, app.run.thumbnails.value.get(headKey(candidate.site, candidate.head)));
  return heads
    .map((candidate) => ({ ...candidate, note: similarity(candidate).toFixed(2), similarity: similarity(candidate) }))
    .sort((a, b) => b.similarity - a.similarity);
}

/** Return the cosine similarity of two thumbnails' weights; -1 if their shapes differ. */
export function compareThumbnails(a: Thumbnail | undefined, b: Thumbnail | undefined): number {
  if (!a || !b || a.rows !== b.rows || a.columns !== b.columns) return -1;
  let product = 0;
  let squaresA = 0;
  let squaresB = 0;
  for (let index = 0; index < a.bytes.length; index++) {
    const [x, y] = [a.bytes[index] ** 2, b.bytes[index] ** 2]; // bytes are square roots of weights
    product += x * y;
    squaresA += x * x;
    squaresB += y * y;
  }
  return product / Math.sqrt(squaresA * squaresB || 1);
}

function HeadButton({ app, site, head, size }: Head & { app: App; size: number }) {
  const words = app.words.value;
  const key = headKey(site, head);
  const facts = app.run.facts.value.get(key);
  const selection = app.selection.current.value;
  const isSelected = selection.site === site && selection.head === head;
  const isAdded = app.selection.otherHeads.value.some((other) => other.site === site && other.head === head);
  const ref = useReveal<HTMLButtonElement>(isSelected, `${app.order.value} ${app.run.facts.value.size}`);
  const effect = app.run.effects.value.heads?.rows.find((row) => row.site === site && row.head === head)?.effect;
  const isAblated = app.run.current.value!.edits.some((edit) => ablates(edit, app.run.current.value!.sites[site], head));
  const title = [
    describeHead(app, { site, head }),
    isAblated && words.ablated,
    facts?.kind && `${words.kinds[facts.kind] ?? facts.kind}: ${words.kindHints[facts.kind] ?? ""}`,
    facts && words.entropyOf(facts.entropy.toFixed(2)),
    effect !== undefined && words.effectOf(formatSigned(effect)),
  ];
  const move = (event: KeyboardEvent) => {
    const grid = (event.currentTarget as HTMLElement).closest(".jk-grid")!;
    const rows = app.run.current.value!.sites;
    let target: Head | null = null;
    if (event.key === "ArrowRight") target = head + 1 < rows[site].heads ? { site, head: head + 1 } : null;
    if (event.key === "ArrowLeft") target = head > 0 ? { site, head: head - 1 } : null;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const next = site + (event.key === "ArrowDown" ? 1 : -1);
      if (rows[next]) target = { site: next, head: Math.min(head, rows[next].heads - 1) };
    }
    if (!target) return;
    event.preventDefault();
    if (!app.selection.isAdding.value) app.selection.chooseHead(target.site, target.head);
    grid.querySelector<HTMLElement>(`[data-head="${headKey(target.site, target.head)}"]`)?.focus();
  };
  return (
    <button
      class={`jk-head${isSelected ? " jk-selected" : ""}${isAdded ? " jk-added" : ""}${isAblated ? " jk-ablated" : ""}`}
      data-head={key}
      title={title.filter(Boolean).join("\n")}
      aria-label={title.filter(Boolean).join(", ")}
      aria-pressed={isSelected || isAdded}
      tabIndex={isSelected ? 0 : -1}
      ref={ref}
      style={{ borderColor: facts ? (KIND_COLOURS[app.theme.value][facts.kind] ?? "") : "" }}
      onClick={(event) => (app.selection.adds(event) ? app.selection.toggleHead(site, head) : app.selection.chooseHead(site, head))}
      onKeyDown={move}
    >
      <ThumbnailCanvas app={app} thumbnail={app.run.thumbnails.value.get(key)} size={size} />
      {effect !== undefined && size >= 40 && <span class={`jk-badge${effect < 0 ? " jk-negative" : ""}`}>{formatSigned(effect)}</span>}
      {effect !== undefined && size < 40 && <span class={`jk-dot${effect < 0 ? " jk-negative" : ""}`} style={{ opacity: dotOpacity(app, effect) }} />}
    </button>
  );
}

/** A large effect gives an opaque dot. */
function dotOpacity(app: App, effect: number): number {
  const most = Math.max(...(app.run.effects.value.heads?.rows.map((row) => Math.abs(row.effect)) ?? [1]));
  return most > 0 ? Math.max(0.08, Math.abs(effect) / most) : 0;
}

function ThumbnailCanvas({ app, thumbnail, size }: { app: App; thumbnail: Thumbnail | undefined; size: number }) {
  const ref = useRef<HTMLCanvasElement>(null);
  const scale = app.scale.value;
  const theme = app.theme.value;
  const skipFirst = app.skipFirst.value;
  useEffect(() => {
    const canvas = ref.current!;
    if (!thumbnail) {
      canvas.width = canvas.width; // clears it
      return;
    }
    const { bytes, rows, columns } = thumbnail;
    canvas.width = columns;
    canvas.height = rows;
    let most = 0;
    for (let index = 0; index < bytes.length; index++)
      if (!(skipFirst && index % columns === 0)) most = Math.max(most, bytes[index]);
    const pixels = buildPixels(false, scale, (most / 255) ** 2 || 1, theme);
    const image = new ImageData(columns, rows);
    const target = new Uint32Array(image.data.buffer);
    for (let index = 0; index < target.length; index++)
      target[index] = pixels[skipFirst && index % columns === 0 ? 0 : bytes[index]];
    canvas.getContext("2d")!.putImageData(image, 0, 0);
  }, [thumbnail, scale, theme, skipFirst]);
  return <canvas ref={ref} data-loaded={thumbnail ? "true" : "false"} style={{ width: `${size}px`, height: `${size}px` }} />;
}

function KindLegend({ app }: { app: App }) {
  const words = app.words.value;
  const counts = new Map<string, number>();
  for (const { kind } of app.run.facts.value.values()) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const kinds = KINDS.filter((kind) => counts.has(kind));
  const sampled = kinds.length > 0 ? app.run.sampledQueries.value : null;
  const run = app.run.current.value;
  return (
    <div class="jk-kinds">
      {kinds.length === 0 && app.can("kinds") && <span>{app.run.noKinds.value || words.kindPending}</span>}
      {kinds.map((kind) => (
        <span key={kind} title={words.kindHints[kind]}>
          <i style={{ background: KIND_COLOURS[app.theme.value][kind] }} />
          {words.kinds[kind]} <b>{counts.get(kind)}</b>
        </span>
      ))}
      {sampled !== null && run && <span data-sample>{words.kindsOfSample(sampled, run.source.length)}</span>}
      {app.run.effects.value.heads && <span>{words.effectBadge}</span>}
    </div>
  );
}
