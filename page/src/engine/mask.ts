/** Masks: which keys a query may attend to, as expressions of the small language of jumok.attention.mask.
 *
 *     causal & (window(4) | global_at([0])) & ~edge(query=3, key=1)
 *
 * A mask is a predicate on a head, the position of a query and the position of a key. */

import { EngineError } from "./errors";

export interface Mask {
  allows(head: number, query: number, key: number): boolean;
  /** The largest `key - query` that may be allowed; Infinity where it is not known. */
  ahead: number;
}

export const causal: Mask = { allows: (_, query, key) => key <= query, ahead: 0 };

/** Allow keys at a distance below `size`. */
export function window(size: number): Mask {
  return { allows: (_, query, key) => Math.abs(query - key) < size, ahead: size - 1 };
}

/** Allow the cells of these heads, queries and keys; null means all. */
export function edge(query: readonly number[] | null, key: readonly number[] | null, head: readonly number[] | null = null): Mask {
  const has = (indices: readonly number[] | null) => {
    const set = indices && new Set(indices);
    return (index: number) => set === null || set.has(index);
  };
  const [hasQuery, hasKey, hasHead] = [has(query), has(key), has(head)];
  return { allows: (h, q, k) => hasHead(h) && hasQuery(q) && hasKey(k), ahead: Infinity };
}

export function and(left: Mask, right: Mask): Mask {
  return { allows: (h, q, k) => left.allows(h, q, k) && right.allows(h, q, k), ahead: Math.min(left.ahead, right.ahead) };
}

export function or(left: Mask, right: Mask): Mask {
  return { allows: (h, q, k) => left.allows(h, q, k) || right.allows(h, q, k), ahead: Math.max(left.ahead, right.ahead) };
}

export function not(mask: Mask): Mask {
  return { allows: (h, q, k) => !mask.allows(h, q, k), ahead: Infinity };
}

type Argument = number | number[] | null;

interface MaskFunction {
  parameters: string[];
  needed: number; // how many of the parameters have no default
  example: string;
  build(arguments_: Argument[]): Mask;
}

const FUNCTIONS: Record<string, MaskFunction> = {
  window: { parameters: ["n"], needed: 1, example: "window(64)", build: ([n]) => window(readInteger("window", n, 1)) },
  prefix: { parameters: ["n"], needed: 1, example: "prefix(4)", build: ([n]) => buildPrefix(readInteger("prefix", n, 0)) },
  global_at: { parameters: ["positions"], needed: 1, example: "global_at([0])", build: ([positions]) => buildGlobal(positions) },
  blocks: { parameters: ["size", "shift"], needed: 1, example: "blocks(16)", build: ([size, shift]) => buildBlocks(size, shift ?? 0) },
  edge: { parameters: ["query", "key", "head"], needed: 0, example: "edge(query=3, key=1)", build: buildEdge },
};

function buildPrefix(size: number): Mask {
  return { allows: (_, __, key) => key < size, ahead: Infinity };
}

function buildGlobal(positions: Argument): Mask {
  const chosen = readIntegers("global_at", positions);
  return or(edge(chosen, null), edge(null, chosen));
}

function buildBlocks(size: Argument, shift: Argument): Mask {
  const [length, offset] = [readInteger("blocks", size, 1), readInteger("the shift of blocks", shift, 0)];
  const block = (position: number) => Math.floor((position - offset) / length);
  return { allows: (_, query, key) => block(query) === block(key), ahead: length - 1 };
}

function buildEdge([query, key, head]: Argument[]): Mask {
  const read = (name: string, indices: Argument | undefined) => {
    if (indices === null || indices === undefined) return null;
    const numbers = readIntegers(`the ${name} of edge`, indices);
    if (!numbers.length) throw new EngineError(`edge got an empty list for ${name}; leave ${name} out to mean all`);
    return numbers;
  };
  return edge(read("query", query), read("key", key), read("head", head));
}

function readInteger(name: string, content: Argument | undefined, smallest: number): number {
  if (typeof content !== "number") throw new EngineError(`${name} takes integers, not ${JSON.stringify(content ?? null)}`);
  if (content < smallest) throw new EngineError(`${name} takes integers of at least ${smallest}, not ${content}`);
  return content;
}

function readIntegers(name: string, content: Argument | undefined): number[] {
  return (Array.isArray(content) ? content : [content ?? null]).map((number) => readInteger(name, number, 0));
}

/** Parse an expression of mask names, `&`, `|`, `~`, parentheses and integers. */
export function parseMask(text: string): Mask {
  return new Parser(text).parse();
}

const TOKEN = /\s*(?:([A-Za-z_]\w*)|(-?\d+)|([&|~()[\],=]))/y;
const MAX_DEPTH = 100;

/** Reads an expression from left to right; `~` binds more tightly than `&`, and `&` than `|`. */
class Parser {
  private tokens: string[] = [];
  private next = 0;
  private depth = 0;

  constructor(private readonly text: string) {
    const rest = text.trim();
    TOKEN.lastIndex = 0;
    while (TOKEN.lastIndex < rest.length) {
      const match = TOKEN.exec(rest);
      if (!match) throw this.fail();
      this.tokens.push(match[1] ?? match[2] ?? match[3]);
    }
  }

  parse(): Mask {
    const mask = this.readAlternatives();
    if (this.next < this.tokens.length) throw this.fail();
    return mask;
  }

  private readAlternatives(): Mask {
    if (++this.depth > MAX_DEPTH) throw new EngineError(`the mask expression ${this.quote()} is nested too deeply; simplify it`);
    let mask = this.readConjunction();
    while (this.accept("|")) mask = or(mask, this.readConjunction());
    this.depth--;
    return mask;
  }

  private readConjunction(): Mask {
    let mask = this.readNegation();
    while (this.accept("&")) mask = and(mask, this.readNegation());
    return mask;
  }

  private readNegation(): Mask {
    let negations = 0;
    while (this.accept("~")) negations++;
    const mask = this.readAtom();
    return negations % 2 ? not(mask) : mask;
  }

  private readAtom(): Mask {
    if (this.accept("(")) {
      const mask = this.readAlternatives();
      this.require(")");
      return mask;
    }
    const name = this.tokens[this.next++];
    if (name === "causal") return causal;
    const called = FUNCTIONS[name];
    if (!called || !Object.hasOwn(FUNCTIONS, name)) throw this.fail(name);
    if (this.tokens[this.next] !== "(") throw new EngineError(`${name} needs arguments: did you mean ${called.example}?`);
    return called.build(this.readArguments(name, called));
  }

  private readArguments(name: string, { parameters, needed, example }: MaskFunction): Argument[] {
    const wrong = () => new EngineError(`${name} has wrong arguments; write ${name}(${parameters.join(", ")}), for example ${example}`);
    const values: Argument[] = [];
    this.require("(");
    for (let position = 0; !this.accept(")"); position++) {
      if (position) this.require(",");
      const isNamed = this.tokens[this.next + 1] === "=";
      const index = isNamed ? parameters.indexOf(this.tokens[this.next]) : position;
      if (index < 0 || index >= parameters.length || index in values) throw wrong();
      if (isNamed) this.next += 2;
      values[index] = this.readLiteral();
    }
    for (let index = 0; index < needed; index++) if (!(index in values)) throw wrong();
    return values;
  }

  private readLiteral(): Argument {
    if (this.accept("None")) return null;
    if (!this.accept("[")) return this.readNumber();
    const numbers: number[] = [];
    while (!this.accept("]")) {
      if (numbers.length) this.require(",");
      numbers.push(this.readNumber());
    }
    return numbers;
  }

  private readNumber(): number {
    const token = this.tokens[this.next++] ?? "";
    if (!/^-?\d+$/.test(token)) throw new EngineError(`'${token}' in ${this.quote()} must be an integer or a list of integers`);
    return Number(token);
  }

  private accept(token: string): boolean {
    const isNext = this.tokens[this.next] === token;
    if (isNext) this.next++;
    return isNext;
  }

  private require(token: string): void {
    if (!this.accept(token)) throw this.fail();
  }

  private fail(name?: string): EngineError {
    if (!name) return new EngineError(`${this.quote()} is not a mask; an example is: causal & window(3)`);
    const examples = Object.values(FUNCTIONS).map(({ example }) => example);
    return new EngineError(`'${name}' is not a mask; choose from causal, ${examples.join(", ")}, joined by & | ~`);
  }

  private quote(): string {
    return `'${this.text.length > 80 ? this.text.slice(0, 79) + "…" : this.text}'`;
  }
}
