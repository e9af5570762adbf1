/** Align the tokens of two texts; the same as `align_tokens` in lens/effects/alignment.py, and `pair_positions`. */

export type Partners = (number | null)[];
export type Pair = [number | null, number | null];

const MAX_COMPARED = 2 ** 22; // pairs of tokens, after what both texts begin and end with

/** Return for each position of the second text its partner in the first one; null where it has none. Equal tokens are
 * paired in their order, and the tokens between them from the last one on. */
export function alignTokens(first: readonly unknown[], second: readonly unknown[]): Partners {
  if (first.length === second.length) return Array.from(first.keys());
  const shortest = Math.min(first.length, second.length);
  let begin = 0;
  while (begin < shortest && first[begin] === second[begin]) begin++;
  let end = 0;
  while (end < shortest - begin && first.at(-1 - end) === second.at(-1 - end)) end++;
  const middle = first.slice(begin, first.length - end);
  const secondMiddle = second.slice(begin, second.length - end);

  const partners: Partners = [...Array(begin).keys(), ...secondMiddle.map(() => null)];
  const isLong = middle.length * secondMiddle.length > MAX_COMPARED;
  const blocks = [...(isLong ? [] : findEqualBlocks(middle, secondMiddle)), [middle.length, secondMiddle.length, 0]];
  let [gap, secondGap] = [0, 0]; // where the tokens between two blocks begin
  for (const [at, secondAt, size] of blocks) {
    for (let index = 1; index <= Math.min(at - gap, secondAt - secondGap); index++) partners[begin + secondAt - index] = begin + at - index;
    for (let index = 0; index < size; index++) partners[begin + secondAt + index] = begin + at + index;
    [gap, secondGap] = [at + size, secondAt + size];
  }
  return [...partners, ...Array.from({ length: end }, (_, index) => first.length - end + index)];
}

/** Return the stretches that both lists have, in their order: the longest one, and those on both sides of it, as difflib of
 * Python finds them. */
function findEqualBlocks(first: readonly unknown[], second: readonly unknown[]): number[][] {
  const places = new Map<unknown, number[]>();
  second.forEach((token, index) => places.set(token, [...(places.get(token) ?? []), index]));
  const blocks: number[][] = [];
  const parts = [[0, first.length, 0, second.length]];
  for (let part = parts.pop(); part; part = parts.pop()) {
    const [low, high, secondLow, secondHigh] = part;
    let [at, secondAt, size] = [low, secondLow, 0];
    let lengths = new Map<number, number>(); // of the stretches that end at a position of the second list
    for (let index = low; index < high; index++) {
      const longer = new Map<number, number>();
      for (const other of places.get(first[index]) ?? []) {
        if (other < secondLow || other >= secondHigh) continue;
        const length = (lengths.get(other - 1) ?? 0) + 1;
        longer.set(other, length);
        if (length > size) [at, secondAt, size] = [index - length + 1, other - length + 1, length];
      }
      lengths = longer;
    }
    if (!size) continue;
    blocks.push([at, secondAt, size]);
    parts.push([low, at, secondLow, secondAt], [at + size, high, secondAt + size, secondHigh]);
  }
  return blocks.sort((a, b) => a[0] - b[0]);
}

/** Return the aligned positions in their order, with null where one text has no token. */
export function pairPositions(count: number, partners: Partners): Pair[] {
  const pairs: Pair[] = [];
  let begin = 0;
  const skipTo = (end: number) => {
    for (; begin < end; begin++) pairs.push([begin, null]);
  };
  partners.forEach((partner, position) => {
    if (partner !== null) {
      skipTo(partner);
      begin = partner + 1;
    }
    pairs.push([partner, position]);
  });
  skipTo(count);
  return pairs;
}
