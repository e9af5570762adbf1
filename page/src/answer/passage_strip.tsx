/** The passages of the prompt above its attention: cut one, or go back to the answer. */

import { useApp } from "../app";

export function PassageStrip() {
  const app = useApp();
  const words = app.words.value;
  const { desk } = app;
  const answer = desk.answer.value;
  if (!desk.isActive.value || !answer) return null;
  return (
    <section class="jk-passage-strip jk-panel">
      <button class="jk-main" data-action="answer" onClick={() => desk.showAnswer()}>
        {words.showAnswer}
      </button>
      <span class="jk-hint">{words.passagesTitle}</span>
      <span class="jk-group" role="group" aria-label={words.passagesTitle}>
        {answer.passages.map(({ location }, index) => (
          <button
            key={index}
            data-strip-passage={index}
            aria-pressed={desk.cut.value.includes(index)}
            title={desk.cut.value.includes(index) ? words.putBack : words.cutPassage}
            onClick={() => desk.toggle(index)}
          >
            {index + 1} · {location}
          </button>
        ))}
      </span>
    </section>
  );
}
