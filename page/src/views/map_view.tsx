/** The map of one head with its tools: colours, zoom, clean or edited or both, export. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import { type Scale, SCALES } from "../colour";
import { ablates, describeHead, formatSigned } from "../describe";
import type { Rectangle } from "../map/painter";
import type { VisibleValues } from "../map/tiles";
import { type Viewport, WHOLE } from "../map/viewport";
import type { Shown } from "../protocol";
import { headKey } from "../run";
import { Legend } from "./legend";
import { MapCanvas, type MapGestures, ZOOM_STEP } from "./map_canvas";

export function MapView() {
  const app = useApp();
  const words = app.words.value;
  const run = app.run.current.value;
  const gestures: MapGestures = {
    viewport: useSignal<Viewport | null>(null),
    cursor: useSignal<{ query: number; key: number } | null>(null),
    rectangle: useSignal<Rectangle | null>(null),
    isSelecting: useSignal(false),
    value: useSignal(""),
    values: useSignal<Map<Shown, VisibleValues>>(new Map()),
    most: useSignal(1),
    isSampled: useSignal(false),
    zoom: useRef(null),
  };
  const site = app.selection.site.value;
  const shape = site ? `${site.queries}x${site.keys}` : "";
  useEffect(() => {
    gestures.viewport.value = null;
    gestures.cursor.value = null;
    gestures.rectangle.value = null;
  }, [shape, run?.model.name, run?.text]);

  const shown = run?.edited ? app.shown.value : "clean";
  const maps: Shown[] = shown === "all" ? ["clean", "edited", "difference"] : [shown];
  const rectangle = gestures.rectangle.value;
  const count = rectangle ? rectangle.queries * rectangle.keys : 0;
  const canEdit = app.canEdit.value;
  return (
    <div class="jk-map-view">
      <div class={`jk-map-layout${maps.length === 1 && site && site.queries >= 0.7 * site.keys ? " jk-tall" : ""}`}>
        <Toolbar gestures={gestures} />
        <HeadHint />
        <div class={`jk-maps${maps.length > 1 ? " jk-three" : ""}`}>
          {maps.map((map, index) => (
            <MapCanvas key={index /* the canvas keeps the focus when the first edit shows another map */} shown={map} gestures={gestures} title={maps.length > 1 ? words[map] : undefined} />
          ))}
          {maps.length > 1 && <Explanation />}
          {!run && <p class="jk-placeholder">{app.closed.value || app.failure.value ? "" : words.loadingMap}</p>}
          {app.tiles.failure.value && <p class="jk-placeholder jk-error">{app.tiles.failure.value}</p>}
        </div>
        <div class="jk-map-foot">
          <p class="jk-value" role="status" aria-live="polite">
            {gestures.value.value || (gestures.isSampled.value ? words.preview : words.hoverHint)}
          </p>
          {rectangle && canEdit && (
            <button
              class="jk-main"
              onClick={() => {
                app.edits.knockOut(rectangle);
                gestures.rectangle.value = null;
              }}
            >
              {words.knockOutCells(count)}
            </button>
          )}
          <HeadFactsList />
          <Legend kind={shown === "difference" ? "difference" : "weight"} most={gestures.most.value} />
        </div>
      </div>
    </div>
  );
}

/** What was measured on the head; it is shown where there is room beside the map. */
function HeadFactsList() {
  const app = useApp();
  const words = app.words.value;
  const { site, head } = app.selection.current.value;
  const facts = app.run.facts.value.get(headKey(site, head));
  const effect = app.run.effects.value.heads?.rows.find((row) => row.site === site && row.head === head)?.effect;
  const rows = [
    facts?.kind && [words.kindName, words.kinds[facts.kind] ?? facts.kind],
    facts && [words.entropyName, words.natsOf(facts.entropy.toFixed(2))],
    facts?.distance != null && [words.distanceName, words.tokensOf(facts.distance.toFixed(1))],
    effect !== undefined && [words.effectName, formatSigned(effect)],
  ];
  return (
    <dl class="jk-head-facts">
      {rows.map(
        (row) =>
          row && (
            <>
              <dt>{row[0]}</dt>
              <dd class="jk-number">{row[1]}</dd>
            </>
          ),
      )}
    </dl>
  );
}

/** What the head does, by its kind, and what a decoder's rows stand for; of an ablated head, what happens to its output. */
function HeadHint() {
  const app = useApp();
  const words = app.words.value;
  const { site, head } = app.selection.current.value;
  const facts = app.run.facts.value.get(headKey(site, head));
  const run = app.run.current.value;
  const shownSite = app.selection.site.value;
  const ablation = app.pass.value === "edited" && shownSite ? run?.edits.find((edit) => ablates(edit, shownSite, head)) : undefined;
  if (ablation) return <p class="jk-hint jk-head-hint jk-ablated-hint">{words.ablatedHead[ablation.by ?? "zero"] ?? words.ablatedHead.zero}</p>;
  const kind = facts?.kind ? `${words.kinds[facts.kind] ?? facts.kind}: ${words.kindHints[facts.kind] ?? ""}. ` : "";
  const rows = app.selection.site.value?.query_sequence === "target" ? words.decoderRows : "";
  return <p class="jk-hint jk-head-hint">{kind + rows || "\u00a0"}</p>;
}

/** The fourth part beside three maps: the scale of the difference, and how far the prediction moved. */
function Explanation() {
  const app = useApp();
  const words = app.words.value;
  const change = app.run.current.value?.change;
  return (
    <div class="jk-explanation">
      <Legend kind="difference" most={app.largestDifference.value} />
      {change !== null && change !== undefined && <p title={words.changeHint}>{words.changeOf(change.toPrecision(2))}</p>}
      <p class="jk-hint">{words.changeHint}</p>
    </div>
  );
}

function Toolbar({ gestures }: { gestures: MapGestures }) {
  const app = useApp();
  const words = app.words.value;
  const run = app.run.current.value;
  return (
    <div class="jk-toolbar">
      <strong class="jk-title">{run ? describeHead(app, app.selection.current.value) : "\u00a0"}</strong>
      <label title={words.scaleTitle}>
        <select aria-label={words.scaleTitle} value={app.scale.value} data-action="scale" onChange={(event) => app.chooseScale(event.currentTarget.value as Scale)}>
          {SCALES.map((scale) => (
            <option key={scale} value={scale}>
              {words.scales[scale]}
            </option>
          ))}
        </select>
      </label>
      <label title={words.skipFirstHint}>
        <input
          type="checkbox"
          checked={app.skipFirst.value}
          data-action="skip-first"
          onChange={(event) => (app.skipFirst.value = event.currentTarget.checked)}
        />{" "}
        {words.skipFirst}
      </label>
      <span class="jk-group">
        <button title={words.zoomOut} aria-label={words.zoomOut} onClick={() => gestures.zoom.current?.(1 / ZOOM_STEP)}>
          −
        </button>
        <button title={words.zoomIn} aria-label={words.zoomIn} onClick={() => gestures.zoom.current?.(ZOOM_STEP)}>
          +
        </button>
        <button title={words.zoomFit} aria-label={words.zoomFit} onClick={() => (gestures.viewport.value = run?.audio ? WHOLE : null)}>
          ⤢
        </button>
      </span>
      {app.canEdit.value && (
        <button
          aria-pressed={gestures.isSelecting.value}
          title={words.rectangleHint}
          onClick={() => (gestures.isSelecting.value = !gestures.isSelecting.value)}
        >
          {words.rectangle}
        </button>
      )}
    </div>
  );
}
