/** Compare two transcripts word by word. */

export interface MarkedWord {
  text: string;
  isChanged: boolean;
}

/** Mark the words of each text that the other one does not have, by their longest common subsequence. */
export function compareTexts(before: string, after: string): [MarkedWord[], MarkedWord[]] {
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
