/** The edits: buttons that change the computation, the list of changes, undo, redo and their Python. */

import { type ShownMaps, useApp } from "../app";
import { appliesTo, describeHead, listChanges } from "../describe";
import { Help } from "../guide/help";
import type { Edit } from "../protocol";
import { useCopied } from "./hooks";

const SHOWN_MAPS: ShownMaps[] = ["clean", "edited", "difference", "all"];
const TEMPERATURES = { least: -3, most: 3, step: 0.1 }; // powers of two

export function EditPanel() {
  const app = useApp();
  const words = app.words.value;
  const run = app.run.current.value;
  const { isCopied, say } = useCopied(app);
  const canEdit = app.canEdit.value;
  return (
    <section class="jk-edits jk-panel">
      <div class="jk-panel-title">
        <span class="jk-group">
          <h2>{words.editsTitle}</h2>
          <Help of={["ablate", "knockOut", "temperature", "mask", "scale", "difference", "change"]} label={words.editsTitle} />
        </span>
        {canEdit && (
          <span class="jk-group">
            <button title={`${words.undo} (Ctrl+Z)`} aria-label={words.undo} data-action="undo" disabled={!app.edits.steps.value.undo} onClick={() => app.edits.undo()}>
              ↶
            </button>
            <button title={`${words.redo} (Ctrl+Shift+Z)`} aria-label={words.redo} data-action="redo" disabled={!app.edits.steps.value.redo} onClick={() => app.edits.redo()}>
              ↷
            </button>
          </span>
        )}
      </div>
      {run && !run.model.is_editable && (
        <p class="jk-hint">
          {words.notEditable}: {run.model.reason}
        </p>
      )}
      {canEdit && <Buttons />}
      {canEdit && app.edits.current.value.length === 0 && <p class="jk-hint">{words.editsEmpty}</p>}
      <ol class="jk-edit-list">
        {listChanges(app).map(({ text, edits }) => (
          <li key={edits[0]}>
            <span>{text}</span>
            {canEdit && (
              <button class="jk-quiet" aria-label={`${words.remove}: ${text}`} title={words.remove} onClick={() => app.edits.remove(edits)}>
                ✕
              </button>
            )}
          </li>
        ))}
      </ol>
      {run?.edited && (
        <div class="jk-show">
          <span class="jk-hint">{words.showTitle}</span>
          <div class="jk-choice" role="group" aria-label={words.showTitle}>
            {SHOWN_MAPS.map((shown) => (
              <button key={shown} aria-pressed={app.shown.value === shown} data-show={shown} onClick={() => (app.shown.value = shown)}>
                {words[shown]}
              </button>
            ))}
          </div>
        </div>
      )}
      <div class="jk-edit-foot">
        {run && app.can("code") && (
          <button title={words.copyPythonHint} data-action="python" onClick={() => say(app.copyCode())}>
            {isCopied.value ? words.copied : words.copyPython}
          </button>
        )}
        {canEdit && app.edits.current.value.length > 1 && <button onClick={() => app.edits.replace([])}>{words.clear}</button>}
      </div>
    </section>
  );
}

function Buttons() {
  const app = useApp();
  const words = app.words.value;
  const site = app.selection.site.value;
  const { head, query, key } = app.selection.current.value;
  if (!site) return null;
  const { layer } = site;
  const isScale = (edit: Edit) => edit.edit === "Scale" && edit.layer === layer && edit.head === head;
  const temperature = Number(app.edits.current.value.find(isScale)?.temperature ?? 1);
  const setTemperature = (exponent: number) => {
    const others = app.edits.current.value.filter((edit) => !isScale(edit));
    const chosen = 2 ** exponent;
    const edits = Math.abs(exponent) < 1e-9 ? others : [...others, { edit: "Scale", layer, head, temperature: chosen } as Edit];
    app.edits.replace(edits);
  };
  const isUnmasked = app.edits.current.value.some((edit) => edit.edit === "Remask" && appliesTo(edit, site));
  return (
    <div class="jk-edit-buttons">
      <p class="jk-hint">{describeHead(app, app.selection.current.value)}</p>
      <button title={words.ablateHint} data-action="ablate" onClick={() => app.edits.add({ edit: "Ablate", layer, head })}>
        {words.ablateHead}
      </button>
      <button
        title={key === null ? words.pickCell : words.knockOutHint}
        data-action="knock-out"
        disabled={query === null || key === null}
        onClick={() => app.edits.knockOut({ query: query!, key: key!, queries: 1, keys: 1 })}
      >
        {words.knockOutCell}
      </button>
      {site.has_mask && (
        <button title={words.removeMaskHint} data-action="remask" disabled={isUnmasked} onClick={() => app.edits.add({ edit: "Remask", layer, head: null, mask: null })}>
          {words.removeMask}
        </button>
      )}
      {site.scale !== null && Math.abs(site.scale - 1) > 1e-6 && (
        <button
          title={words.removeScaleHint}
          data-action="unscale"
          onClick={() => app.edits.add({ edit: "Scale", layer, head: null, temperature: site.scale! })}
        >
          {words.removeScale}
        </button>
      )}
      <label class="jk-slider" title={words.temperatureHint}>
        <span>{words.temperature}</span>
        <input
          type="range"
          data-action="temperature"
          min={TEMPERATURES.least}
          max={TEMPERATURES.most}
          step={TEMPERATURES.step}
          value={Math.log2(temperature)}
          aria-valuetext={temperature.toFixed(2)}
          onPointerDown={() => app.edits.beginDrag()}
          onInput={(event) => setTemperature(Number(event.currentTarget.value))}
          onPointerUp={() => app.edits.endDrag()}
        />
        <output class="jk-number">{temperature.toFixed(2)}</output>
      </label>
    </div>
  );
}
