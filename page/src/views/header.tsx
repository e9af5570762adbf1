/** The header: model, text, and the buttons for the whole page. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { useApp } from "../app";
import { copyText } from "../copy";
import { GuideMenu } from "../guide/guide_menu";
import { useCopied } from "./hooks";
import { TaskLine, useSlowTask } from "./task_line";

export const GENERATED_TOKENS = 12;

export function Header() {
  const app = useApp();
  const words = app.words.value;
  const hello = app.hello.value;
  const run = app.run.current.value;
  const text = useSignal("");
  useEffect(() => {
    if (run?.text != null) text.value = run.text;
  }, [run]);

  const questions = hello?.questions ?? null;
  const answer = app.desk.answer.value;
  useEffect(() => {
    const first = questions?.question ?? hello?.text;
    if (first && !app.run.current.value) text.value = first;
  }, [hello]);
  useEffect(() => {
    if (answer) text.value = answer.question;
  }, [answer]);

  const canRun = app.can("run");
  const model = app.run.model.value;
  const canType = canRun && (run === null || run.text !== null);
  const canGenerate = canRun && !questions && run?.model.predicts === "next token" && run.target.length === 0;
  const submit = (generate = 0) => {
    const most = questions?.max_question ?? hello?.max_text ?? Infinity;
    if (text.value.length > most) app.failure.value = words.tooLong(most);
    else if (!text.value.trim()) app.failure.value = questions ? words.emptyQuestion : words.emptyText;
    else if (questions) void app.desk.ask(text.value);
    else void app.run.execute(model, text.value, { generate });
  };
  const { isCopied, say } = useCopied(app);
  const isSlow = useSlowTask(app);

  return (
    <header class="jk-header">
      <h1>
        <span lang="ko">주목</span> Jumok
      </h1>
      {hello && hello.models.length > 1 && canRun ? (
        <select
          aria-label={words.model}
          value={model}
          onChange={(event) => void app.run.choose(event.currentTarget.value, text.value)}
        >
          {hello.models.map(({ name, title }) => (
            <option key={name} value={name}>
              {title}
            </option>
          ))}
        </select>
      ) : (
        <strong class="jk-model">{model}</strong>
      )}
      <form
        class="jk-text"
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        <textarea
          aria-label={questions ? words.question : words.text}
          placeholder={questions ? words.questionHint : run?.text === null ? words.notText : words.textHint}
          rows={1}
          value={run && run.text === null ? "" : text.value}
          disabled={!canType}
          onInput={(event) => (text.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            submit();
          }}
        />
        {canRun && (
          <button type="submit" class="jk-main" disabled={!canType}>
            {questions ? words.ask : words.run}
          </button>
        )}
        {canGenerate && (
          <button type="button" title={words.generateHint} onClick={() => submit(GENERATED_TOKENS)}>
            {words.generate}
          </button>
        )}
      </form>
      <div class="jk-tools">
        <div class="jk-task" data-busy={app.task.value ? "true" : "false"}>
          {isSlow && <TaskLine />}
        </div>
        <GuideMenu />
        <span class="jk-message">{isCopied.value && words.copied}</span>
        {app.hasAddress && !isSlow && (
          <button onClick={() => say(copyText(location.href))} title={words.copyLink}>
            {words.copyLink}
          </button>
        )}
        {run && app.can("save") && !isSlow && <button onClick={() => void app.saveFile()}>{words.saveFile}</button>}
        {run?.model.can_live && app.can("save") && hello?.carrier !== "live" && !isSlow && (
          <button data-action="save-live" title={words.saveLiveHint} onClick={() => void app.saveFile(true)}>
            {words.saveLive}
          </button>
        )}
        <button
          title={words.themeButton}
          aria-label={words.themeButton}
          data-action="theme"
          onClick={() => (app.theme.value = app.theme.value === "light" ? "dark" : "light")}
        >
          {app.theme.value === "light" ? "☾" : "☀"}
        </button>
        <button
          data-action="language"
          lang={app.language.value === "en" ? "ko" : "en"}
          onClick={() => (app.language.value = app.language.value === "en" ? "ko" : "en")}
        >
          {words.languageButton}
        </button>
      </div>
    </header>
  );
}
