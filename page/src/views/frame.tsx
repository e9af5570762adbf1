/** The whole view: header, text, heads on the left, one head in the centre, token and edits on the right. */

import type { ComponentChild } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type App, useApp, type View } from "../app";
import { exportPng, exportSvg } from "../export";
import type { Run } from "../protocol";
import { AnswerView } from "../answer/answer_view";
import { ContrastView } from "../contrast/contrast_view";
import { PassageStrip } from "../answer/passage_strip";
import { ExampleNote } from "../guide/example_note";
import { Help, TERMS } from "../guide/help";
import { Tour } from "../guide/tour";
import { BlockStrip } from "./block_strip";
import { Computation } from "./computation";
import { EditPanel } from "./edit_panel";
import { EffectView } from "./effect_view";
import { GenerationView } from "./generation_view";
import { Header } from "./header";
import { HeadGrid } from "./head_grid";
import { HeadSummary } from "./head_summary";
import { ImageView } from "./image_view";
import { LinesView } from "./lines_view";
import { MapView } from "./map_view";
import { SoundStrip } from "./sound_strip";
import { TextStrip } from "./text_strip";
import { TokenPanel } from "./token_panel";

export function Frame() {
  const app = useApp();
  const words = app.words.value;
  const rootRef = useRef<HTMLDivElement>(null);
  const waitsForText = app.run.chosen.value !== null && !app.run.current.value && !app.task.value;
  useEffect(() => {
    const root: HTMLElement | Window = app.hasAddress ? window : rootRef.current!;
    const onKeyDown = (raw: Event) => {
      const event = raw as KeyboardEvent;
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
      if ((event.composedPath()[0] as HTMLElement).matches?.("textarea")) return;
      if (event.shiftKey) app.edits.redo();
      else app.edits.undo();
      event.preventDefault();
    };
    root.addEventListener("keydown", onKeyDown);
    return () => root.removeEventListener("keydown", onKeyDown);
  }, []);

  return (
    <div ref={rootRef} class="jumok" data-theme={app.theme.value} data-tour={app.guide.step.value ?? undefined} lang={app.language.value}>
      <Header />
      <Notices />
      <ExampleNote />
      <Tour />
      {app.desk.isShown.value ? <AnswerView /> : waitsForText ? <p class="jk-panel jk-hint">{words.textHint}</p> : <Attention />}
      <div class="jk-live" role="status" aria-live="polite">
        {app.announcement.value}
      </div>
      {!app.run.current.value && !waitsForText && !app.failure.value && !app.closed.value && <span class="jk-live">{words.connecting}</span>}
    </div>
  );
}

/** The input with its predictions, and the attention of the model. */
function Attention() {
  const view = useApp().view.value;
  const { Content } = VIEWS[view] ?? VIEWS.map; // a link may name another view
  return (
    <>
      <PassageStrip />
      <SoundStrip />
      <TextStrip />
      <HeadSummary />
      <div class="jk-columns">
        <HeadGrid />
        <main class="jk-centre jk-panel">
          <ViewTabs />
          {view === "map" && <BlockStrip />}
          <Content />
        </main>
        <aside class="jk-side">
          <TokenPanel />
          <EditPanel />
        </aside>
      </div>
    </>
  );
}

/** The views of the centre, in the order of their tabs; some fit only some runs. */
const VIEWS: Record<View, { Content: () => ComponentChild; fits?: (run: Run, app: App) => boolean }> = {
  image: { Content: ImageView, fits: (run) => run.image !== null },
  map: { Content: MapView },
  lines: { Content: LinesView },
  computation: { Content: Computation },
  effect: { Content: EffectView },
  contrast: { Content: ContrastView, fits: (run, app) => app.can("contrast") && run.answered === null },
  generation: { Content: GenerationView, fits: (run) => run.model.predicts === "next token" },
};

function ViewTabs() {
  const app = useApp();
  const words = app.words.value;
  const run = app.run.current.value;
  const views = (Object.keys(VIEWS) as View[]).filter((view) => !VIEWS[view].fits || (run && VIEWS[view].fits(run, app)));
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const next = views[(views.indexOf(app.view.value) + step + views.length) % views.length];
    app.view.value = next;
    (event.currentTarget as HTMLElement).querySelector<HTMLElement>(`[data-view="${next}"]`)?.focus();
    event.preventDefault();
  };
  return (
    <div class="jk-tabs" role="tablist" onKeyDown={move}>
      {views.map((view) => (
        <button
          key={view}
          role="tab"
          data-view={view}
          aria-selected={app.view.value === view}
          tabIndex={app.view.value === view ? 0 : -1}
          onClick={() => (app.view.value = view)}
        >
          {words.views[view]}
        </button>
      ))}
      {TERMS[app.view.value] && <Help of={TERMS[app.view.value]} label={words.views[app.view.value]} />}
      {app.view.value === "map" && run && <ExportButtons />}
    </div>
  );
}

function ExportButtons() {
  const app = useApp();
  const words = app.words.value;
  const root = useRef<HTMLSpanElement>(null);
  const findCanvas = () => root.current!.closest(".jk-centre")!.querySelector<HTMLCanvasElement>("canvas[data-map]");
  return (
    <span class="jk-exports" title={words.exportHint} ref={root}>
      <button data-action="png" onClick={() => exportPng(app, findCanvas())}>
        {words.exportPng}
      </button>
      <button data-action="svg" onClick={() => void exportSvg(app).catch((error) => app.fail(error))}>
        {words.exportSvg}
      </button>
    </span>
  );
}

/** What the user must read: errors, a closed connection, notes of the run. */
function Notices() {
  const app = useApp();
  const words = app.words.value;
  const run = app.run.current.value;
  const closed = app.closed.value;
  const notes = run ? [...run.notes, ...(run.unknown.length ? [words.unknownWords(run.unknown.join(", "))] : [])] : [];
  if (app.hello.value?.carrier === "file") notes.unshift(words.savedFile);
  if (app.hello.value?.carrier === "live" && app.hasAddress) notes.unshift(words.liveFile);
  return (
    <div class="jk-notices">
      {closed && (
        <p class="jk-error" role="alert">
          {closed === "token" ? words.wrongToken : app.desk.isActive.value ? words.goneQuestions : words.gone}
        </p>
      )}
      {app.failure.value && (
        <p class="jk-error" role="alert">
          <span>{app.failure.value}</span>
          <button class="jk-quiet" onClick={() => (app.failure.value = null)}>
            {words.close}
          </button>
        </p>
      )}
      {notes.map((note) => (
        <p key={note} class="jk-note">
          {note}
        </p>
      ))}
    </div>
  );
}
