/** Two texts that a model wrote, without and with an edit, with the words that differ marked. */

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

interface MarkedWord {
  text: string;
  isChanged: boolean;
}

/** Mark the words of each text that the other one does not have, by their longest common subsequence. */
function compareTexts(before: string, after: string): [MarkedWord[], MarkedWord[]] {
  const [left, right] = [before, after].map((text) => text.split(/\s+/).filter(Boolean));
  const plain = (word: string) => word.toLowerCase().replace(/[^\p{L}\p{N}']/gu, "") || word;
  const isSame = (i: number, j: number) => plain(left[i]) === plain(right[j]);
  const lengths = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--)
    for (let j = right.length - 1; j >= 0; j--)
      lengths[i][j] = isSame(i, j) ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  const marked: [MarkedWord[], MarkedWord[]] = [[], []];
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && isSame(i, j)) {
      marked[0].push({ text: left[i++], isChanged: false });
      marked[1].push({ text: right[j++], isChanged: false });
    } else if (j === right.length || (i < left.length && lengths[i + 1][j] >= lengths[i][j + 1])) marked[0].push({ text: left[i++], isChanged: true });
    else marked[1].push({ text: right[j++], isChanged: true });
  }
  return marked;
}
