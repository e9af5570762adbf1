/** The lines view: queries on the left, keys on the right, one line for each large weight. */

import { effect, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import { shade } from "../colour";
import { describeHead, labelsOf } from "../describe";
import { FONT, readColours, shorten } from "../map/painter";
import type { MapId, VisibleValues } from "../map/tiles";
import { useSize } from "./hooks";

const WINDOW = 64; // tokens on each side
const MAX_LINES = 500;
const MAX_HEADS = 16; // of a layer, drawn together
const TOP = 20; // pixels above the first token

export function LinesView() {
  const app = useApp();
  const words = app.words.value;
  const ref = useRef<HTMLCanvasElement>(null);
  const first = useSignal(0);
  const hovered = useSignal<{ side: "query" | "key"; index: number } | null>(null);
  const values = useSignal<VisibleValues[]>([]); // one for each head that is drawn
  const showsLayer = useSignal(false);
  const size = useSize(ref);
  const run = app.run.current.value;
  const site = app.selection.site.value;
  const { site: siteIndex, head } = app.selection.current.value;
  const pass = app.pass.value;
  const count = site ? Math.max(site.queries, site.keys) : 0;
  const last = Math.min(first.value + WINDOW, count);
  const firstQuery = site ? Math.min(first.value, Math.max(0, site.queries - 1)) : 0;
  const queries = site ? Math.min(WINDOW, site.queries - firstQuery) : 0;
  const firstKey = site ? Math.max(0, Math.min(first.value, site.keys - Math.min(WINDOW, site.keys))) : 0;
  const keys = site ? Math.min(WINDOW, site.keys - firstKey) : 0;

  useEffect(() => {
    if (!run || !site) return;
    const heads = showsLayer.value ? Array.from({ length: Math.min(site.heads, MAX_HEADS) }, (_, index) => index) : [head];
    let isCurrent = true;
    const load = (drawn: number) => {
      const map: MapId = { run: run.run, shown: pass, site: siteIndex, head: drawn, skipFirst: false };
      return app.tiles.loadValues(map, firstQuery, firstKey, queries, keys);
    };
    Promise.all(heads.map(load))
      .then((loaded) => {
        if (isCurrent) values.value = loaded;
      })
      .catch((error) => app.fail(error));
    return () => {
      isCurrent = false;
    };
  }, [run, siteIndex, head, pass, firstQuery, firstKey, showsLayer.value]);

  useEffect(() => {
    first.value = 0;
  }, [run?.text, run?.model.name]);

  useEffect(
    () =>
      effect(() => {
        const canvas = ref.current;
        const drawn = values.value;
        const current = drawn[0];
        const now = app.run.current.value;
        const shownSite = app.selection.site.value;
        const { width, height } = size.value;
        if (!canvas || !current || !now || !shownSite || !width) return; // an answer may come after the view was left
        const ratio = devicePixelRatio || 1;
        canvas.width = width * ratio;
        canvas.height = height * ratio;
        const context = canvas.getContext("2d")!;
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        const colours = readColours(app.theme.value);
        const column = Math.min(180, width * 0.25);
        const step = { query: (height - TOP) / current.rows, key: (height - TOP) / current.columns };
        const toY = (side: "query" | "key", index: number) => (index + 0.5) * Math.min(step[side], 26) + TOP;
        const focus = hovered.value;
        const skip = app.skipFirst.value;

        const lines: { colour: string; row: number; key: number; weight: number }[] = [];
        const single = app.theme.value === "light" ? "#1d5fa8" : "#79bdf0";
        let most = 0;
        drawn.forEach(({ weights }, index) => {
          const colour = drawn.length > 1 ? headColour(index) : single;
          for (let row = 0; row < current.rows; row++)
            for (let key = 0; key < current.columns; key++) {
              if (skip && current.column + key === 0) continue;
              const weight = weights[row * current.columns + key];
              most = Math.max(most, weight);
              const isFocused = !focus || (focus.side === "query" ? row : key) === focus.index;
              if (weight > 0.004 && isFocused) lines.push({ colour, row, key, weight });
            }
        });
        lines.sort((a, b) => b.weight - a.weight);
        canvas.dataset.lines = String(Math.min(lines.length, MAX_LINES));
        for (const { colour, row, key, weight } of lines.slice(0, MAX_LINES)) {
          context.strokeStyle = colour;
          const amount = shade(weight, app.scale.value, most);
          context.globalAlpha = 0.08 + 0.92 * amount;
          context.lineWidth = 0.5 + 4.5 * amount;
          context.beginPath();
          context.moveTo(column, toY("query", row));
          const middle = width / 2;
          context.bezierCurveTo(middle, toY("query", row), middle, toY("key", key), width - column, toY("key", key));
          context.stroke();
        }
        context.globalAlpha = 1;
        context.textBaseline = "middle";
        const fontSize = (side: "query" | "key") => Math.max(8, Math.min(14, step[side] * 0.72));
        const write = (side: "query" | "key", labels: string[], offset: number, total: number) => {
          for (let index = 0; index < total; index++) {
            const isFocused = focus?.side === side && focus.index === index;
            context.font = `${isFocused ? "700 " : ""}${fontSize(side)}px ${FONT}`;
            context.fillStyle = isFocused ? colours.accent : colours.ink;
            context.textAlign = side === "query" ? "right" : "left";
            const x = side === "query" ? column - 8 : width - column + 8;
            context.fillText(shorten(context, labels[offset + index] ?? "", column - 14), x, toY(side, index));
          }
        };
        context.font = `600 11px ${FONT}`;
        context.fillStyle = colours.soft;
        context.textAlign = "right";
        context.fillText(app.words.value.queries, column - 8, 9);
        context.textAlign = "left";
        context.fillText(app.words.value.keys, width - column + 8, 9);
        write("query", labelsOf(now, shownSite.query_sequence), current.row, current.rows);
        write("key", labelsOf(now, shownSite.key_sequence), current.column, current.columns);
      }),
    [],
  );

  const find = (event: MouseEvent) => {
    const current = values.value[0];
    const bounds = ref.current!.getBoundingClientRect();
    if (!current) return null;
    const side = event.clientX - bounds.left < bounds.width / 2 ? "query" : "key";
    const total = side === "query" ? current.rows : current.columns;
    const index = Math.floor((event.clientY - bounds.top - TOP) / Math.min((bounds.height - TOP) / total, 26));
    const isOnLabel = Math.min(event.clientX - bounds.left, bounds.right - event.clientX) < Math.min(180, bounds.width * 0.25);
    return isOnLabel && index >= 0 && index < total ? ({ side, index } as const) : null;
  };
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!step || !site) return;
    const query = Math.max(0, Math.min((app.selection.current.value.query ?? -1) + step, site.queries - 1));
    app.selection.change({ query, key: null });
    if (query < first.value || query >= first.value + WINDOW) first.value = Math.floor(query / WINDOW) * WINDOW;
    event.preventDefault();
  };
  return (
    <div class="jk-lines-view">
      <div class="jk-toolbar">
        <strong class="jk-title">{run ? describeHead(app, app.selection.current.value) : "\u00a0"}</strong>
        <label title={words.skipFirstHint}>
          <input type="checkbox" checked={app.skipFirst.value} onChange={(event) => (app.skipFirst.value = event.currentTarget.checked)} /> {words.skipFirst}
        </label>
        {site && site.heads > 1 && (
          <label>
            <input
              type="checkbox"
              data-action="all-heads"
              checked={showsLayer.value}
              onChange={(event) => (showsLayer.value = event.currentTarget.checked)}
            />{" "}
            {words.headsOfLayer}
          </label>
        )}
        {showsLayer.value &&
          values.value.map((_, index) => (
            <button key={index} class="jk-quiet" onClick={() => app.selection.chooseHead(siteIndex, index)}>
              <i class="jk-swatch" style={{ background: headColour(index) }} />H{index}
            </button>
          ))}
        {count > WINDOW && (
          <span class="jk-group">
            <button disabled={first.value === 0} onClick={() => (first.value = Math.max(0, first.value - WINDOW))}>
              {words.earlier}
            </button>
            <span>{words.linesPart(first.value, last - 1, count)}</span>
            <button disabled={last >= count} onClick={() => (first.value = first.value + WINDOW)}>
              {words.later}
            </button>
          </span>
        )}
      </div>
      <canvas
        ref={ref}
        class="jk-lines"
        tabIndex={0}
        role="img"
        aria-describedby={app.guide.summaryId}
        aria-label={`${words.views.lines}: ${run ? describeHead(app, app.selection.current.value) : ""}`}
        onMouseMove={(event) => (hovered.value = find(event))}
        onMouseLeave={() => (hovered.value = null)}
        onKeyDown={move}
        onClick={(event) => {
          const token = find(event);
          if (token?.side === "query" && values.value[0]) app.selection.change({ query: values.value[0].row + token.index, key: null });
        }}
      />
      <p class="jk-hint">{words.linesHint}</p>
    </div>
  );
}

const HEAD_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b4ba1", "#7f7f7f"];

/** Return the colour of a head among those of its layer; from the ninth on they repeat. */
function headColour(head: number): string {
  return HEAD_COLOURS[head % HEAD_COLOURS.length];
}
