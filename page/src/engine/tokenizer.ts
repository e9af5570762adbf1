/** Tokenizers: text to token ids and back, as a tokenizer.json of Hugging Face describes it.
 *
 *     text -> special tokens cut out -> normalizer -> pre-tokenizer: words -> model: tokens -> template around them
 *
 * The models are byte-pair encoding (of bytes or of characters), word pieces and whole words: those that the recipes of
 * Jumok train. A file with another part is refused by the name of that part. */

import { byteToLetter, decodeUtf8, encodeUtf8, tokenToBytes } from "./bytes";
import { EngineError } from "./errors";
import { createWordModel, type WordModel } from "./word_models";

type Json = Record<string, any>;

/** A part of a text: its letters (UTF-16 units) after normalization, and where each of them was in the text. */
export interface Piece {
  text: string;
  offsets: number[];
}

/** A token of a text, which stands for the letters from `begin` to the one before `end`. */
export interface Token {
  id: number;
  begin: number;
  end: number;
}

interface AddedToken {
  id: number;
  content: string;
  lstrip: boolean;
  rstrip: boolean;
  special: boolean;
}

/** Roles of special tokens, by their names in tokenizer_config.json. */
const ROLES = { begin: "bos_token", end: "eos_token", pad: "pad_token", mask: "mask_token", unknown: "unk_token", separator: "sep_token", classify: "cls_token" };
const USUAL_TOKENS: Record<string, string[]> = {
  begin: ["<s>"],
  end: ["</s>"],
  pad: ["<pad>", "[PAD]"],
  mask: ["<mask>", "[MASK]"],
  unknown: ["<unk>", "[UNK]"],
  separator: ["[SEP]"],
  classify: ["[CLS]"],
};

export class Tokenizer {
  /** Ids of special tokens; null where there is none. */
  readonly begin: number | null;
  readonly end: number | null;
  readonly mask: number | null;
  readonly unknown: number | null;
  /** Whether words are cut into pieces ("##ing"). */
  readonly hasWordPieces: boolean;
  private readonly tokens = new Map<number, string>();
  private readonly added: AddedToken[];
  private readonly special = new Set<number>();
  private readonly words: WordModel;
  private readonly normalize: (piece: Piece) => Piece;
  private readonly split: (piece: Piece) => Piece[];
  private readonly before: number[];
  private readonly after: number[];
  private readonly decoders: Json[];
  private readonly form: "bytes" | "text" | "other";

  constructor(document: Json, specials: Json = {}) {
    const vocabulary: Record<string, number> = document.model?.vocab ?? {};
    for (const [token, id] of Object.entries(vocabulary)) this.tokens.set(id, token);
    this.added = (document.added_tokens ?? []) as AddedToken[];
    for (const { id, content, special } of this.added) {
      this.tokens.set(id, content);
      if (special) this.special.add(id);
    }
    const ids = new Map(Array.from(this.tokens, ([id, token]) => [token, id]));
    const roles = readRoles(document, specials);
    const find = (role: keyof typeof ROLES) => ids.get(roles[role] ?? "") ?? null;
    [this.begin, this.end, this.mask, this.unknown] = [find("begin"), find("end"), find("mask"), find("unknown")];

    this.words = createWordModel(document.model ?? {});
    this.hasWordPieces = document.model?.type === "WordPiece";
    this.normalize = createNormalizer(document.normalizer);
    this.split = createSplitter(document.pre_tokenizer);
    [this.before, this.after] = readTemplate(document.post_processor);
    this.decoders = listParts(document.decoder, "decoders");
    const kinds = this.decoders.map(({ type }) => type).join();
    this.form = kinds.includes("ByteLevel") ? "bytes" : kinds === "Fuse" ? "text" : "other";
  }

  /** Return the token ids of a text; with `special`, those that the model expects around it too. */
  encode(text: string, special = true): number[] {
    const ids = this.encodeTokens(text).map(({ id }) => id);
    return special ? [...this.before, ...ids, ...this.after] : ids;
  }

  /** Return the words or characters of a text that the vocabulary does not contain, each once. */
  listUnknown(text: string): string[] {
    if (this.unknown === null) return [];
    const unknown = this.encodeTokens(text).filter(({ id }) => id === this.unknown);
    return [...new Set(unknown.map(({ begin, end }) => text.slice(begin, end)))];
  }

  /** Return the text of token ids; an id that the vocabulary does not contain is written as "<id 49152>". */
  decode(ids: readonly number[], special = true): string {
    let text = "";
    let group: string[] = [];
    const flush = () => {
      if (group.length) text += decodeTokens(group, this.decoders);
      group = [];
    };
    for (const id of ids) {
      if (!this.tokens.has(id)) {
        flush();
        text += this.idToToken(id);
      } else if (special || !this.special.has(id)) group.push(this.tokens.get(id)!);
    }
    flush();
    return text;
  }

  containsId(id: number): boolean {
    return this.tokens.has(id);
  }

  /** Return a token as it is written in the vocabulary, such as "Ġworld" or "##ing". */
  idToToken(id: number): string {
    return this.tokens.get(id) ?? `<id ${id}>`;
  }

  /** Return the bytes of a token; null if it does not stand for bytes. */
  idToBytes(id: number): Uint8Array | null {
    const token = this.tokens.get(id);
    if (token === undefined || this.form === "other") return null;
    return this.form === "bytes" ? tokenToBytes(token) : encodeUtf8(token);
  }

  /** The pieces of words, without the special tokens. */
  get wordPieces(): string[] {
    return Array.from(this.tokens).flatMap(([id, token]) => (this.special.has(id) ? [] : [token]));
  }

  private encodeTokens(text: string): Token[] {
    const tokens: Token[] = [];
    let begin = 0;
    const readText = (end: number) => {
      if (begin < end) tokens.push(...this.encodePart(text.slice(begin, end), begin));
    };
    for (const { token, from, to } of this.findAdded(text)) {
      readText(from);
      tokens.push({ id: token.id, begin: from, end: to });
      begin = to;
    }
    readText(text.length);
    return tokens;
  }

  private encodePart(text: string, begin: number): Token[] {
    const offsets = Array.from({ length: text.length }, (_, index) => begin + index);
    return this.split(this.normalize({ text, offsets })).flatMap((word) => this.words(word));
  }

  /** Find the added tokens that are written in a text, from left to right. */
  private *findAdded(text: string) {
    let position = 0;
    while (this.added.length) {
      let first: { token: AddedToken; at: number } | null = null;
      for (const token of this.added) {
        const at = text.indexOf(token.content, position);
        if (at < 0) continue;
        if (!first || at < first.at || (at === first.at && token.content.length > first.token.content.length)) first = { token, at };
      }
      if (!first) return;
      const { token } = first;
      let [from, to] = [first.at, first.at + token.content.length];
      while (token.lstrip && from > position && isSpace(text[from - 1])) from--;
      while (token.rstrip && to < text.length && isSpace(text[to])) to++;
      yield { token, from, to };
      position = to;
    }
  }
}

function readRoles(document: Json, specials: Json): Record<string, string | undefined> {
  const read = (token: unknown) => (typeof token === "string" ? token : typeof token === "object" && token ? (token as Json).content : undefined);
  const roles: Record<string, string | undefined> = {};
  if (!Object.values(ROLES).some((name) => name in specials)) {
    const added = new Set<string>((document.added_tokens ?? []).map(({ content }: AddedToken) => content));
    for (const [role, tokens] of Object.entries(USUAL_TOKENS)) roles[role] = tokens.findLast((token) => added.has(token));
    roles.unknown = document.model?.unk_token ?? roles.unknown;
  }
  for (const [role, name] of Object.entries(ROLES)) if (name in specials) roles[role] = read(specials[name]);
  return roles;
}

// normalizers and pre-tokenizers

function isSpace(letter: string): boolean {
  return /\p{White_Space}/u.test(letter);
}

function refuse(kind: string, name: unknown): EngineError {
  return new EngineError(`this page cannot compute this model's tokenizer: ${kind} ${name} is not supported; open the model with jumok look`);
}

/** Return a part of a tokenizer.json as a list: a sequence of parts, one, or none. */
function listParts(part: Json | null | undefined, name: string): Json[] {
  if (!part) return [];
  return part.type === "Sequence" ? (part[name] ?? []).flatMap((inner: Json) => listParts(inner, name)) : [part];
}

/** Return the regular expression of a pattern; the white space of Unicode, as in Python's tokenizers. */
function readPattern(pattern: Json): RegExp {
  if (typeof pattern.String === "string") return new RegExp(pattern.String.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gu");
  return new RegExp(pattern.Regex.replace(/\\s/g, "\\p{White_Space}").replace(/\\S/g, "\\P{White_Space}"), "gu");
}

function createNormalizer(part: Json | null): (piece: Piece) => Piece {
  const steps = listParts(part, "normalizers").map((step): ((piece: Piece) => Piece) => {
    if (step.type === "Replace") {
      const pattern = readPattern(step.pattern);
      return (piece) => replaceIn(piece, pattern, step.content);
    }
    if (step.type === "Lowercase") return ({ text, offsets }) => fit(text.toLowerCase(), offsets);
    if (["NFC", "NFD", "NFKC", "NFKD"].includes(step.type)) return ({ text, offsets }) => fit(text.normalize(step.type), offsets);
    throw refuse("the normalizer", step.type);
  });
  return (piece) => steps.reduce((current, step) => step(current), piece);
}

/** Return a piece with a new text, whose letters are assumed to stand in the same order. */
function fit(text: string, offsets: number[]): Piece {
  return { text, offsets: Array.from({ length: text.length }, (_, index) => offsets[Math.min(index, offsets.length - 1)]) };
}

function replaceIn({ text, offsets }: Piece, pattern: RegExp, content: string): Piece {
  let replaced = "";
  const kept: number[] = [];
  let begin = 0;
  const copy = (end: number) => {
    replaced += text.slice(begin, end);
    kept.push(...offsets.slice(begin, end));
  };
  for (const match of text.matchAll(pattern)) {
    copy(match.index);
    replaced += content;
    for (let index = 0; index < content.length; index++) kept.push(offsets[match.index]);
    begin = match.index + match[0].length;
  }
  copy(text.length);
  return { text: replaced, offsets: kept };
}

const BYTE_LEVEL_WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
const WORD_LETTER = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]";
const WORDS_AND_SIGNS = new RegExp(`${WORD_LETTER}+|[^${WORD_LETTER.slice(1, -1)}\\p{White_Space}]+`, "gu");

function createSplitter(part: Json | null): (piece: Piece) => Piece[] {
  const steps = listParts(part, "pretokenizers").map((step): ((piece: Piece) => Piece[]) => {
    switch (step.type) {
      case "WhitespaceSplit":
        return (piece) => cut(piece, /\P{White_Space}+/gu);
      case "Whitespace":
        return (piece) => cut(piece, WORDS_AND_SIGNS);
      case "Digits":
        return (piece) => cutApart(piece, step.individual_digits ? /\p{N}/gu : /\p{N}+/gu);
      case "Split": {
        if (step.behavior !== "Isolated" || step.invert) break;
        const pattern = readPattern(step.pattern);
        return (piece) => cutApart(piece, pattern);
      }
      case "ByteLevel":
        return (piece) => splitBytes(piece, step);
    }
    throw refuse("the pre-tokenizer", step.type);
  });
  return (piece) => steps.reduce((pieces, step) => pieces.flatMap(step), [piece]);
}

function slice({ text, offsets }: Piece, begin: number, end: number): Piece {
  return { text: text.slice(begin, end), offsets: offsets.slice(begin, end) };
}

/** Return the parts that match a pattern; what is between them is dropped. */
function cut(piece: Piece, pattern: RegExp): Piece[] {
  return Array.from(piece.text.matchAll(pattern), ({ 0: word, index }) => slice(piece, index, index + word.length));
}

/** Return the parts that match a pattern, and what is between them. */
function cutApart(piece: Piece, pattern: RegExp): Piece[] {
  const edges = Array.from(piece.text.matchAll(pattern), ({ 0: word, index }) => [index, index + word.length]).flat();
  const all = [0, ...edges, piece.text.length];
  return all.slice(1).flatMap((end, index) => (end > all[index] ? [slice(piece, all[index], end)] : []));
}

function splitBytes(piece: Piece, step: Json): Piece[] {
  const needsSpace = step.add_prefix_space && piece.text && !isSpace(piece.text[0]);
  const padded = needsSpace ? { text: ` ${piece.text}`, offsets: [piece.offsets[0], ...piece.offsets] } : piece;
  const words = step.use_regex === false ? [padded] : cut(padded, BYTE_LEVEL_WORDS);
  return words.map(({ text, offsets }) => {
    let letters = "";
    const origins: number[] = [];
    let index = 0;
    for (const letter of text) {
      for (const byte of encodeUtf8(letter)) {
        letters += byteToLetter(byte);
        origins.push(offsets[index]);
      }
      index += letter.length;
    }
    return { text: letters, offsets: origins };
  });
}

/** Return the ids before and after every text. */
function readTemplate(processor: Json | null): [number[], number[]] {
  if (!processor || processor.type === "ByteLevel") return [[], []];
  if (processor.type !== "TemplateProcessing") throw refuse("the post-processor", processor.type);
  const before: number[] = [];
  const after: number[] = [];
  let side = before;
  for (const item of processor.single as Json[]) {
    if (item.Sequence) side = after;
    else side.push(...processor.special_tokens[item.SpecialToken.id].ids);
  }
  return [before, after];
}

// decoding

function decodeTokens(tokens: string[], decoders: Json[]): string {
  if (!decoders.length) return tokens.join(" ");
  return decoders.reduce(decodeStep, tokens).join("");
}

function decodeStep(tokens: string[], decoder: Json): string[] {
  switch (decoder.type) {
    case "ByteLevel":
      return [decodeUtf8(tokens.flatMap((token) => Array.from(tokenToBytes(token))))];
    case "Fuse":
      return [tokens.join("")];
    case "WordPiece":
      return tokens.map((token, index) => {
        if (!index) return token;
        return token.startsWith(decoder.prefix) ? token.slice(decoder.prefix.length) : ` ${token}`;
      });
    case "Strip":
      return tokens.map((token) => {
        let [begin, end] = [0, token.length];
        while (begin < Math.min(decoder.start, end) && token[begin] === decoder.content) begin++;
        while (end > Math.max(begin, token.length - decoder.stop) && token[end - 1] === decoder.content) end--;
        return token.slice(begin, end);
      });
  }
  throw refuse("the decoder", decoder.type);
}
