/** The answer to a question beside the passages that the model read; a click cuts a passage. */

import { useApp } from "../app";
import { formatSigned } from "../describe";
import type { Answer, Quotation } from "../protocol";
import type { Words } from "../words";
import { ComparedTexts } from "../views/compared_texts";
import { toRatio } from "../cuts";
import { PassageList } from "./passage_list";

export function AnswerView() {
  const app = useApp();
  const answer = app.desk.answer.value;
  return (
    <div class="jk-answer-view">
      <section class="jk-answer jk-panel" aria-busy={app.task.value?.name === "question"}>
        {answer ? <AnswerPanel answer={answer} /> : <p class="jk-hint">{!app.task.value && app.words.value.questionHint}</p>}
      </section>
      <section class="jk-passages jk-panel">{answer && <PassageList answer={answer} />}</section>
    </div>
  );
}

function AnswerPanel({ answer }: { answer: Answer }) {
  const app = useApp();
  const words = app.words.value;
  const { desk } = app;
  const otherEdits = app.edits.current.value.length - desk.cut.value.length;
  return (
    <>
      <h2 class="jk-question">{answer.question}</h2>
      {answer.quotation && <Quoted quotation={answer.quotation} />}
      {answer.quotation && answer.verdict && <p class="jk-hint">{words.modelWrites}</p>}
      {answer.verdict && (
        <p>
          <strong class="jk-verdict" data-verdict={answer.verdict}>
            {words.verdicts[answer.verdict]}
          </strong>
        </p>
      )}
      {answer.text !== null && answer.verdict !== "nothing fits" && <Text answer={answer} />}
      <p class="jk-why" hidden={desk.cut.value.length > 0}>
        {explainVerdict(words, answer, app.hello.value?.questions?.folder ?? "")}
      </p>
      {answer.text !== null && answer.verdict === "nothing fits" && (
        <>
          <p class="jk-hint">{words.wouldHaveWritten}</p>
          <Text answer={answer} />
        </>
      )}
      {answer.note && <p class="jk-note">{answer.note}</p>}
      {desk.cut.value.length > 0 && <CutPanel answer={answer} />}
      {otherEdits > 0 && <p class="jk-hint">{words.otherEdits(otherEdits)}</p>}
      {answer.has_attention && (
        <p class="jk-answer-foot">
          <button data-action="attention" title={words.showAttentionHint} onClick={() => void desk.showAttention()}>
            {words.showAttention}
          </button>
        </p>
      )}
    </>
  );
}

/** The sentence of the files that answers the question, word for word. */
function Quoted({ quotation }: { quotation: Quotation }) {
  const words = useApp().words.value;
  const missing = quotation.missing.map((word) => `"${word}"`).join(", ");
  return (
    <>
      <p>
        <strong class="jk-verdict" data-verdict={quotation.verdict}>
          {words.verdicts[quotation.verdict]}
        </strong>
      </p>
      <blockquote class="jk-written-answer" data-quotation={quotation.location}>
        {quotation.text}
      </blockquote>
      <p class="jk-why">
        {words.quotedFrom(quotation.location)} {quotation.verdict === "partly supported" && words.quotationLacks(missing)}
      </p>
    </>
  );
}

/** The text; with cuts, beside what the model writes now. */
function Text({ answer }: { answer: Answer }) {
  const app = useApp();
  const words = app.words.value;
  const { cut, cutAnswer } = app.desk;
  const again = cut.value.length ? cutAnswer.value : null;
  const text = addDots(answer.text ?? "", answer.reached_limit);
  if (!again || again.text === null)
    return (
      <p class="jk-written-answer" data-answer="clean">
        {answer.text ? text : <em>{words.emptyAnswer}</em>}
      </p>
    );
  return (
    <ComparedTexts
      titles={[words.withAll, words.withoutPassages(cut.value.length)]}
      before={text}
      after={addDots(again.text, again.reached_limit)}
      empty={words.emptyAnswer}
    />
  );
}

/** What a cut changes: the probability of the first answer, and whether the model still writes it. */
function CutPanel({ answer }: { answer: Answer }) {
  const app = useApp();
  const words = app.words.value;
  const { cut, cutAnswer } = app.desk;
  const again = cutAnswer.value;
  // the change of one passage is known before the model has written again
  const change = again?.change ?? (cut.value.length === 1 ? answer.passages[cut.value[0]].change : null);
  return (
    <div class="jk-sentence" data-cut={cut.value.join()} data-done={Boolean(again)}>
      <p>{change === null ? words.answeringAgain : words.firstAnswerChange(cut.value.length, describeChange(words, change), formatSigned(change))}</p>
      {!again && change !== null && app.task.value?.name === "cut" && <p class="jk-hint">{words.answeringAgain}</p>}
      {again?.text === answer.text && <p>{words.sameAnswer}</p>}
      {again?.note && <p>{again.note}</p>}
      <button data-action="put-back" onClick={() => app.desk.putBack()}>
        {words.putAllBack}
      </button>
    </div>
  );
}

function addDots(text: string, isCutOff: boolean): string {
  return isCutOff ? `${text} …` : text;
}

function explainVerdict(words: Words, answer: Answer, folder: string): string {
  if (answer.citation !== null) {
    const { location, change } = answer.passages[answer.citation];
    return words.supportedBy(location, describeChange(words, change!), formatSigned(change!));
  }
  const lacking = answer.passages.filter(({ missing }) => missing.length).sort((one, other) => one.word_change! - other.word_change!);
  if (answer.verdict === "partly supported" && lacking.length)
    return words.missingFrom(lacking[0].location, lacking[0].missing.map((word) => `"${word}"`).join(", "));
  const changes = answer.passages.flatMap(({ change }) => (change === null ? [] : [change]));
  const sentences = answer.verdict === "nothing fits" ? [words.nothingFits(folder)] : [];
  if (changes.length) sentences.push(words.withoutSupport(changes.length, formatSigned(Math.min(...changes))));
  return sentences.join(" ");
}

function describeChange(words: Words, change: number): string {
  const ratio = toRatio(change);
  if (ratio < 1.05) return words.asProbable;
  return change < 0 ? words.lessProbable(ratio) : words.moreProbable(ratio);
}
