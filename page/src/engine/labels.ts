/** Tokens as readable labels, and as words. The same as data/tokenizers/token_labels.py. */

import { decodeStrictly } from "./bytes";
import type { Tokenizer } from "./tokenizer";

const VISIBLE: Record<string, string> = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "⏎" };
const SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉";
const SPACE_PREFIX = /^[▁Ġ]/; // how some vocabularies write a space before a word
const CONTINUATION_PREFIX = "##"; // BERT's prefix of a token that continues a word
const REPLACEMENT = "\ufffd";

/** Return a short readable label for each token; one that is a part of a character has a number. */
export function labelTokens(tokenizer: Tokenizer, ids: readonly number[]): string[] {
  const parts = ids.map((id) => tokenizer.idToBytes(id));
  const labels: string[] = [];
  for (let begin = 0; begin < ids.length; ) {
    if (parts[begin] === null) {
      const token = tokenizer.idToToken(ids[begin]);
      const isText = tokenizer.containsId(ids[begin]); // otherwise "<id 49152>", whose space is not one of the text
      labels.push(isText ? makeVisible(token.replace(SPACE_PREFIX, " ")) : token);
      begin++;
      continue;
    }
    let end = begin;
    while (end < ids.length && parts[end] !== null) end++;
    labels.push(...labelBytes(parts.slice(begin, end) as Uint8Array[]));
    begin = end;
  }
  return labels;
}

/** A word of a text, and the positions of its tokens: `end` is the one after the last. */
export interface Word {
  text: string;
  begin: number;
  end: number;
}

/** Return the words of a text. Spaces belong to the word after them; special tokens are words. */
export function groupWords(tokenizer: Tokenizer, ids: readonly number[]): Word[] {
  const tokens = ids.map((id) => tokenizer.idToToken(id));
  const parts = ids.map((id) => tokenizer.idToBytes(id));
  // vocabularies mark either the beginning of a word or its continuation
  const marksBeginning = tokens.some((token) => SPACE_PREFIX.test(token));
  const words: Word[] = [];
  tokens.forEach((token, position) => {
    const part = parts[position];
    const previous = position ? parts[position - 1] : null;
    let beginsWord: boolean;
    if (part) beginsWord = previous === null || (isSpace(part[0]) && !previous.every(isSpace));
    else if (marksBeginning) beginsWord = isSpecial(token) || SPACE_PREFIX.test(token);
    else beginsWord = isSpecial(token) || !token.startsWith(CONTINUATION_PREFIX);
    if (beginsWord || !words.length || isSpecial(tokens[position - 1])) words.push({ text: "", begin: position, end: position });
    words.at(-1)!.end = position + 1;
  });
  for (const word of words) {
    const wordIds = ids.slice(word.begin, word.end);
    word.text = tokenizer.decode(wordIds).trim();
    if (!word.text || word.text.includes(REPLACEMENT)) word.text = labelTokens(tokenizer, wordIds).join("");
  }
  return words;
}

function isSpace(byte: number): boolean {
  return byte === 32 || (byte >= 9 && byte <= 13);
}

function isSpecial(token: string): boolean {
  return token.length > 2 && ["<>", "[]"].includes(token[0] + token.at(-1));
}

/** Label tokens that are bytes by the characters that they form together. */
function labelBytes(parts: Uint8Array[]): string[] {
  const labels = parts.map(() => "");
  const owners = parts.flatMap((part, token) => Array.from(part, () => token));
  const bytes = parts.flatMap((part) => Array.from(part));
  for (let offset = 0; offset < bytes.length; ) {
    const [letter, size] = readLetter(bytes, offset);
    const tokens = [...new Set(owners.slice(offset, offset + size))];
    tokens.forEach((token, index) => {
      labels[token] += tokens.length === 1 ? letter : letter + writeSubscript(index + 1);
    });
    offset += size;
  }
  return labels;
}

/** Return the character at an offset and its number of bytes; a byte outside a character is written as a number. */
function readLetter(bytes: number[], offset: number): [string, number] {
  for (let size = 1; size <= Math.min(4, bytes.length - offset); size++) {
    const letter = decodeStrictly(bytes.slice(offset, offset + size));
    if (letter !== null) return [makeVisible(letter), size];
  }
  return [`<${writeHex(bytes[offset])}>`, 1];
}

function makeVisible(text: string): string {
  return Array.from(text, (letter) => VISIBLE[letter] ?? (/[\p{C}\p{Z}]/u.test(letter) ? `<${writeHex(letter.codePointAt(0)!)}>` : letter)).join("");
}

function writeHex(number: number): string {
  return number.toString(16).toUpperCase().padStart(2, "0");
}

function writeSubscript(number: number): string {
  return String(number).replace(/\d/g, (digit) => SUBSCRIPTS[Number(digit)]);
}
