/** How a word becomes tokens: by merging pairs, by the longest pieces, or as a whole. */

import { EngineError } from "./errors";
import type { Piece, Token } from "./tokenizer";

type Json = Record<string, any>;

/** Returns the tokens of a word. */
export type WordModel = (word: Piece) => Token[];

export function createWordModel(model: Json): WordModel {
  const vocabulary = new Map<string, number>(Object.entries(model.vocab ?? {}));
  const unknown = vocabulary.get(model.unk_token) ?? null;
  // files of earlier versions name no type of byte-pair encoding
  if (model.type === "BPE" || Array.isArray(model.merges)) return createMerger(model, vocabulary, unknown);
  if (model.type === "WordPiece") return createPieceCutter(model, vocabulary, unknown);
  if (model.type === "WordLevel") {
    return (word) => {
      const id = vocabulary.get(word.text) ?? unknown;
      return id === null ? [] : [makeToken(id, word, 0, word.text.length)];
    };
  }
  throw new EngineError(`this page cannot compute this model's tokenizer: the model ${model.type} is not supported; open the model with jumok look`);
}

function makeToken(id: number, { offsets }: Piece, begin: number, end: number): Token {
  return { id, begin: offsets[begin], end: offsets[end - 1] + 1 };
}

/** Byte-pair encoding (Sennrich et al. 2016): the letters of a word are merged pair by pair, in the order in which the
 * merges were learned. */
function createMerger(model: Json, vocabulary: Map<string, number>, unknown: number | null): WordModel {
  if (model.byte_fallback || model.continuing_subword_prefix || model.end_of_word_suffix)
    throw new EngineError("this page cannot compute this model's tokenizer: byte-pair encoding with prefixes or byte fallback is not supported");
  const ranks = new Map<string, number>();
  (model.merges ?? []).forEach((merge: string | string[], rank: number) => {
    ranks.set(typeof merge === "string" ? merge : merge.join(" "), rank);
  });
  return (word) => {
    const whole = model.ignore_merges ? vocabulary.get(word.text) : undefined;
    if (whole !== undefined) return [makeToken(whole, word, 0, word.text.length)];
    const parts = mergePairs(Array.from(word.text), ranks);
    const tokens: Token[] = [];
    let begin = 0;
    for (const part of parts) {
      const id = vocabulary.get(part) ?? unknown;
      if (id !== null) tokens.push(makeToken(id, word, begin, begin + part.length));
      begin += part.length;
    }
    return tokens;
  };
}

function mergePairs(parts: string[], ranks: Map<string, number>): string[] {
  if (!ranks.size) return parts;
  const rankAt = (index: number) => (index + 1 < parts.length ? (ranks.get(`${parts[index]} ${parts[index + 1]}`) ?? Infinity) : Infinity);
  const pairRanks = parts.map((_, index) => rankAt(index));
  for (;;) {
    let best = 0;
    for (let index = 1; index < pairRanks.length; index++) if (pairRanks[index] < pairRanks[best]) best = index;
    if (!(pairRanks[best] < Infinity)) return parts;
    parts.splice(best, 2, parts[best] + parts[best + 1]);
    pairRanks.splice(best + 1, 1);
    pairRanks[best] = rankAt(best);
    if (best) pairRanks[best - 1] = rankAt(best - 1);
  }
}

/** Word pieces (Schuster and Nakajima 2012): a word is cut into the longest pieces from its beginning; a word that cannot
 * be cut is unknown as a whole. */
function createPieceCutter(model: Json, vocabulary: Map<string, number>, unknown: number | null): WordModel {
  const prefix: string = model.continuing_subword_prefix ?? "##";
  return (word) => {
    const { text } = word;
    const tokens: Token[] = [];
    for (let begin = 0; begin < text.length; ) {
      let end = text.length;
      let id: number | undefined;
      while (end > begin) {
        id = vocabulary.get((begin ? prefix : "") + text.slice(begin, end));
        if (id !== undefined) break;
        end--;
      }
      if (id === undefined || Array.from(text).length > model.max_input_chars_per_word) return unknown === null ? [] : [makeToken(unknown, word, 0, text.length)];
      tokens.push(makeToken(id, word, begin, end));
      begin = end;
    }
    return tokens;
  };
}
