/** What a user types, as the tokens that a model reads; words that it does not know are named. */

import type { Language } from "../protocol";
import { EngineError } from "./errors";
import type { EngineModel } from "./model";
import type { Tokenizer } from "./tokenizer";

export interface PreparedText {
  tokens: number[];
  unknown: string[];
  note: string; // a sentence for the user about unknown words; empty if there are none
}

const MAX_NAMED = 10; // words in a sentence
const NEAREST = 3; // known words that are suggested for an unknown one
const LEAST_RATIO = 0.5; // of two words that are spelled alike

export function prepareText(model: EngineModel, text: string, language: Language): PreparedText {
  const { tokenizer, contextLength } = model;
  const { family } = model.config;
  const say = (english: string, korean: string) => (language === "ko" ? korean : english);
  if (!tokenizer)
    throw new EngineError(say("this model has no tokenizer, so it cannot read a text", "이 모델에는 토크나이저가 없어 텍스트를 읽을 수 없습니다"));
  const tokens = tokenizer.encode(text);
  if (!tokens.length) throw new EngineError(say("the text is empty; give the model an input", "텍스트가 비어 있습니다. 모델에 입력을 주세요"));
  if (tokens.length > contextLength) {
    const [count, most] = [format(tokens.length), format(contextLength)];
    throw new EngineError(say(`the text has ${count} tokens, but this ${family} model reads at most ${most}`, `텍스트의 토큰은 ${count}개인데, 이 ${family} 모델은 최대 ${most}개를 읽습니다`));
  }
  const unknownCount = countUnknown(tokenizer, text, tokens);
  const unknown = unknownCount ? tokenizer.listUnknown(text) : [];
  if (!unknown.length) return { tokens, unknown, note: "" };

  const named = nameWords(unknown);
  if (model.isEncoderDecoder && tokenizer.hasWordPieces) {
    const described = unknown.slice(0, MAX_NAMED).map((word) => {
      const nearest = suggestWords(tokenizer, word).join(", ") || say("none", "없음");
      return `${nameWords([word])} (${say("nearest known words", "비슷한 단어")}: ${nearest})`;
    });
    const all = [...described, ...(unknown.length > MAX_NAMED ? ["..."] : [])].join("; ");
    throw new EngineError(
      say(
        `this model's vocabulary does not contain ${all}; write the text with words that the model was trained on`,
        `이 모델의 어휘에 없는 단어가 있습니다: ${all}. 모델이 학습한 단어로 쓰세요`,
      ),
    );
  }
  if (unknownCount >= tokenizer.encode(text, false).length)
    throw new EngineError(
      say(
        `this model's vocabulary contains no word of this text: ${named}; write it with words that the model was trained on`,
        `이 모델의 어휘에는 이 글의 단어가 하나도 없습니다: ${named}. 모델이 학습한 단어로 쓰세요`,
      ),
    );
  const [part, total] = [format(unknownCount), format(tokens.length)];
  const note = say(
    `${part} of ${total} tokens are unknown to this model's tokenizer: ${named}; where they are, its answer is a guess`,
    `토큰 ${total}개 가운데 ${part}개는 이 모델의 토크나이저가 모르는 것입니다: ${named}. 이 부분의 답은 추측입니다`,
  );
  return { tokens, unknown, note };
}

function format(count: number): string {
  return count.toLocaleString("en");
}

/** Count the unknown tokens of a text. Where the unknown token also ends texts, it counts only where it is neither
 * written in the text nor added around it. */
function countUnknown(tokenizer: Tokenizer, text: string, tokens: number[]): number {
  const { unknown, end } = tokenizer;
  if (unknown === null) return 0;
  const count = (ids: number[]) => ids.filter((id) => id === unknown).length;
  if (unknown !== end) return count(tokens);
  const written = text.split(tokenizer.idToToken(unknown)).length - 1;
  return Math.max(0, count(tokens) - count(tokenizer.encode("")) - written);
}

function nameWords(words: string[]): string {
  return [...words.slice(0, MAX_NAMED), ...(words.length > MAX_NAMED ? ["..."] : [])].join(", ");
}

/** Return the words of the vocabulary that are spelled most like a word; Hangul is compared letter by letter. A particle
 * or an ending that the vocabulary has is left out of the comparison. */
function suggestWords(tokenizer: Tokenizer, unknown: string): string[] {
  const pieces = new Set(tokenizer.wordPieces);
  const word = unknown.replace(/^[.,!?~]+|[.,!?~]+$/g, "");
  const stems = Array.from(word, (_, length) => word.slice(0, length)).filter((stem) => pieces.has(`##${word.slice(stem.length)}`));
  const spell = (text: string) => text.toLowerCase().normalize("NFD");
  const spelling = spell(stems[0] ?? word);
  return [...pieces]
    .filter((piece) => !piece.startsWith("##"))
    .map((piece) => ({ piece, ratio: compareSpellings(spell(piece), spelling) }))
    .filter(({ ratio }) => ratio >= LEAST_RATIO)
    .sort((a, b) => b.ratio - a.ratio || (spell(a.piece) < spell(b.piece) ? 1 : -1))
    .slice(0, NEAREST)
    .map(({ piece }) => piece);
}

/** Return the share of letters in common blocks (Ratcliff and Obershelp 1988), as Python's difflib computes it. */
function compareSpellings(left: string, right: string): number {
  return (2 * countCommon(left, right)) / (left.length + right.length || 1);
}

/** Count the letters of the longest common block, and of those before and behind it. */
function countCommon(left: string, right: string): number {
  let [begin, other, longest] = [0, 0, 0];
  for (let i = 0; i < left.length; i++)
    for (let j = 0; j < right.length; j++) {
      let length = 0;
      while (i + length < left.length && left[i + length] === right[j + length]) length++;
      if (length > longest) [begin, other, longest] = [i, j, length];
    }
  if (!longest) return 0;
  const before = countCommon(left.slice(0, begin), right.slice(0, other));
  return longest + before + countCommon(left.slice(begin + longest), right.slice(other + longest));
}
