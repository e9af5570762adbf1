/** Two texts that a model wrote, without and with an edit, with the words that differ marked. */

import { compareTexts, type MarkedWord } from "../sound/differences";

interface ComparedTextsProps {
  titles: [string, string];
  before: string;
  after: string;
  empty: string; // stands for a text without words
}

export function ComparedTexts({ titles, before, after, empty }: ComparedTextsProps) {
  const [clean, edited] = compareTexts(before, after);
  const join = (marked: MarkedWord[], Mark: "del" | "ins") =>
    marked.length ? marked.map(({ text, isChanged }, index) => [index > 0 && " ", isChanged ? <Mark>{text}</Mark> : text]) : <em>{empty}</em>;
  return (
    <dl class="jk-transcripts" aria-live="polite">
      <dt>{titles[0]}</dt>
      <dd data-transcript="clean">{join(clean, "del")}</dd>
      <dt>{titles[1]}</dt>
      <dd data-transcript="edited">{join(edited, "ins")}</dd>
    </dl>
  );
}
