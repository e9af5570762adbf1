/** What heads do, by the keys that their weights fall on. The names, scores and thresholds are those of
 * lens/describe/head_kinds.py; the annotated sentences come from annotated_sentences.toml. */

import type { HeadFacts } from "../protocol";
import { forward } from "./forward";
import { groupWords } from "./labels";
import type { EngineModel } from "./model";
import { Random } from "./random";
import type { EnginePass, SitePass } from "./types";

const LOCAL_DISTANCE = 3;
const REPEATED_LENGTH = 50; // random tokens, which are then repeated once
const MIN_ARCS = 8; // a relation with fewer pairs is not scored by itself
const MIN_CONTROLS = 3; // pairs at a distance with fewer controls are left out
const MIN_SIMILARITIES = 50; // the correlation of fewer pairs is mostly chance

// the smallest score at which a head is named after a kind: of these kinds the largest score wins ...
const KEY_KINDS: [string, number][] = ["induction", "previous", "duplicate", "own", "separator", "syntactic", "syntactic_margin", "first"].map((name) => [name, 0.4]);
// ... otherwise the others are tried in this order
const OTHER_KINDS: [string, number][] = [
  ["uniform", 0.95],
  ["semantic_margin", 0.2],
  ["local", 0.6],
  ["positional", 0.8],
  ["semantic", 0.5],
];

type Scores = Record<string, number | null>;

interface Kind {
  scores: Scores;
  scoresWithoutFirst: Scores;
  entropy: number;
  distance: number;
}

function nameKind(scores: Scores): string {
  const select = (kinds: [string, number][]) => kinds.filter(([name, least]) => (scores[name] ?? 0) >= least).map(([name]) => name);
  const [keyKinds, otherKinds] = [select(KEY_KINDS), select(OTHER_KINDS)];
  if (otherKinds.includes("uniform")) return "uniform"; // uniform attention covers the keys of every kind
  const name = keyKinds.length ? keyKinds.reduce((best, kind) => (scores[kind]! > scores[best]! ? kind : best)) : (otherKinds[0] ?? "mixed");
  return name.replace("_margin", "");
}

/** The weights of a head, and which of them the mask allows: [query, key]. */
interface Table {
  count: number;
  weights: Float32Array;
  allowed: Uint8Array;
}

function readTable(site: SitePass, head: number): Table {
  const { queries, keys } = site;
  const weights = new Float32Array(queries * keys);
  const allowed = new Uint8Array(queries * keys);
  const map = site.open(head);
  for (let query = 0; query < queries; query++) {
    map.readRow(query, weights.subarray(query * keys, (query + 1) * keys));
    for (let key = 0; key < keys; key++) allowed[query * keys + key] = Number(site.allows(head, query, key));
  }
  return { count: queries, weights, allowed };
}

/** Leave out the first key, and normalise each row again, if anything remains of it. */
function dropFirstKey({ count, weights, allowed }: Table): Table {
  const kept = { count, weights: weights.slice(), allowed: allowed.slice() };
  for (let query = 0; query < count; query++) {
    const row = kept.weights.subarray(query * count, (query + 1) * count);
    row[0] = 0;
    kept.allowed[query * count] = 0;
    const sum = row.reduce((total, weight) => total + weight, 0);
    if (sum > 0) for (let key = 0; key < count; key++) row[key] /= sum;
  }
  return kept;
}

const PATTERNS: Record<string, (query: number, key: number, tokens: readonly number[]) => boolean> = {
  previous: (query, key) => query - key === 1,
  own: (query, key) => query === key,
  first: (query, key) => key === 0 && query > 0,
  local: (query, key) => Math.abs(query - key) <= LOCAL_DISTANCE,
  duplicate: (query, key, tokens) => query > key && tokens[query] === tokens[key],
  induction: (query, key, tokens) => key > 0 && query >= key && tokens[query] === tokens[key - 1],
};

/** What the kinds of a text are found with: its tokens, and how similar their vectors are, [token, token]. */
interface Patterns {
  tokens: readonly number[];
  similarities: Float32Array | null;
}

function compareTokens(model: EngineModel | null, tokens: readonly number[]): Patterns {
  if (!model) return { tokens, similarities: null };
  const vectors = tokens.map((token) => normalize(readEmbedding(model, token)));
  const similarities = new Float32Array(tokens.length ** 2);
  vectors.forEach((left, query) => vectors.forEach((right, key) => (similarities[query * tokens.length + key] = multiply(left, right))));
  return { tokens, similarities };
}

function readEmbedding({ main, config }: EngineModel, token: number): Float32Array {
  return main.embedding.subarray(token * config.width, (token + 1) * config.width);
}

function normalize(vector: Float32Array): Float32Array {
  const length = Math.max(Math.sqrt(multiply(vector, vector)), 1e-12);
  return vector.map((entry) => entry / length);
}

function multiply(left: ArrayLike<number>, right: ArrayLike<number>): number {
  let product = 0;
  for (let index = 0; index < left.length; index++) product += left[index] * right[index];
  return product;
}

class Mean {
  private sum = 0;
  private count = 0;

  add(number: number): void {
    this.sum += number;
    this.count++;
  }

  get(): number | null {
    return this.count ? this.sum / this.count : null;
  }
}

function classify(site: SitePass, head: number, patterns: Patterns): Kind {
  const table = readTable(site, head);
  const { scores, entropy, distance } = measure(table, patterns);
  return { scores, entropy, distance, scoresWithoutFirst: measure(dropFirstKey(table), patterns).scores };
}

function measure({ count, weights, allowed }: Table, { tokens, similarities }: Patterns): Omit<Kind, "scoresWithoutFirst"> {
  const scores: Scores = {};
  for (const [name, has] of Object.entries(PATTERNS)) {
    const mean = new Mean();
    for (let query = 0; query < count; query++) {
      let [weight, isDefined] = [0, false];
      for (let key = 0; key < count; key++) {
        if (!has(query, key, tokens)) continue;
        weight += weights[query * count + key];
        isDefined ||= allowed[query * count + key] === 1;
      }
      if (isDefined) mean.add(weight);
    }
    scores[name] = mean.get();
  }

  const [uniform, positional] = [new Mean(), new Mean()];
  const [byDistance, cells] = [new Float64Array(2 * count - 1), new Float64Array(2 * count - 1)];
  const choices = new Uint32Array(count);
  const moments = [0, 0, 0, 0, 0, 0];
  let [entropySum, distanceSum] = [0, 0];
  for (let query = 0; query < count; query++) {
    let entropy = 0;
    for (let key = 0; key < count; key++) {
      const cell = query * count + key;
      const weight = weights[cell];
      if (weight > 0) entropy -= weight * Math.log(weight);
      distanceSum += weight * Math.abs(query - key);
      byDistance[query - key + count - 1] += weight;
      if (!allowed[cell]) continue;
      cells[query - key + count - 1]++;
      choices[query]++;
      // a token is most similar to itself: with its own cell, a head that attends to itself would be semantic
      if (!similarities || query === key) continue;
      const similarity = similarities[cell];
      [1, weight, similarity, weight * weight, similarity * similarity, weight * similarity].forEach((term, index) => (moments[index] += term));
    }
    entropySum += entropy;
    if (choices[query] > 1) uniform.add(entropy / Math.log(choices[query]));
  }
  for (let query = 0; query < count; query++) {
    if (choices[query] <= 1) continue;
    const expect = (key: number) => (allowed[query * count + key] * byDistance[query - key + count - 1]) / Math.max(1, cells[query - key + count - 1]);
    let [total, differences] = [0, 0];
    for (let key = 0; key < count; key++) total += expect(key);
    for (let key = 0; key < count; key++) differences += Math.abs(weights[query * count + key] - expect(key) / Math.max(total, 1e-12));
    positional.add(1 - differences / 2);
  }
  Object.assign(scores, { uniform: uniform.get(), positional: positional.get() });
  if (similarities) scores.semantic = correlate(moments);
  return { scores, entropy: entropySum / count, distance: distanceSum / count };
}

/** Return Pearson's correlation from sums; null where one side is constant. */
function correlate([n, x, y, xx, yy, xy]: number[]): number | null {
  const variances = (n * xx - x * x) * (n * yy - y * y);
  return variances <= 0 ? null : (n * xy - x * y) / Math.sqrt(variances);
}

// kinds on texts that do not depend on what the user typed

/** Annotated sentences, such as "the>1:det cat>2:nsubj slept>-1:root". */
export interface Sentences {
  english: string[];
  korean: string[];
}

/** What the heads of a model do on built-in texts; the keys are "site/head". */
export interface Profile {
  onRepeats: Map<string, string>; // kind on random tokens that repeat
  sentenceScores: Map<string, Scores>; // "syntactic", and of related words over control pairs both margins
}

interface Annotation {
  words: string[];
  governors: number[]; // -1 for the root
  relations: string[];
}

function parseAnnotation(annotation: string): Annotation {
  const parts = annotation.split(" ").map((word) => word.match(/^(.*)>(-?\d+):(.*)$/)!);
  return { words: parts.map(([, word]) => word), governors: parts.map(([, , governor]) => Number(governor)), relations: parts.map(([, , , relation]) => relation) };
}

/** Classify the heads of a model with a single stack on built-in texts; after each text the page may draw. */
export function* buildProfile(model: EngineModel, sentences: Sentences): Generator<void, Profile> {
  const profile: Profile = { onRepeats: new Map(), sentenceScores: new Map() };
  const length = Math.min(REPEATED_LENGTH, Math.floor(model.contextLength / 2));
  if (length >= 2) {
    const random = new Random(0);
    const once = Array.from({ length }, () => random.drawBits() % model.vocabulary);
    const tokens = [...once, ...once];
    const pass = forward(model, { source: tokens }, { logits: 1 });
    pass.sites.forEach((site, index) => {
      for (let head = 0; head < site.info.heads; head++) profile.onRepeats.set(`${index}/${head}`, nameKind(classify(site, head, { tokens, similarities: null }).scores));
    });
    yield;
  }
  if (!model.tokenizer) return profile;

  const syntactic = new Map<string, Mean>();
  const pairs = new WordPairs();
  for (const language of ["english", "korean"] as const) {
    for (const sentence of sentences[language].map(parseAnnotation)) {
      const text = sentence.words.join(" ");
      const tokens = model.tokenizer.encode(text);
      // special tokens around the text do not belong to a word
      const words = groupWords(model.tokenizer, tokens).filter((word) => text.includes(word.text));
      if (words.length !== sentence.words.length || tokens.length > model.contextLength) continue;
      const pass = forward(model, { source: tokens }, { logits: 1 });
      const ends = new Uint8Array(tokens.length ** 2);
      sentence.governors.forEach((governor, dependent) => {
        if (governor < 0) return;
        for (let query = words[dependent].begin; query < words[dependent].end; query++)
          for (let key = words[governor].begin; key < words[governor].end; key++) ends[query * tokens.length + key] = ends[key * tokens.length + query] = 1;
      });
      const tables = new Map<string, Table>();
      pass.sites.forEach((site, index) => {
        for (let head = 0; head < site.info.heads; head++) {
          const [name, table] = [`${index}/${head}`, readTable(site, head)];
          tables.set(name, table);
          const excess = measureExcess(table, ends);
          if (excess === null) continue;
          if (!syntactic.has(name)) syntactic.set(name, new Mean());
          syntactic.get(name)!.add(excess);
        }
      });
      // the Korean sentences have too few pairs of each relation for margins
      if (language === "english") pairs.addSentence(sentence, words.map(({ begin, end }) => [begin, end]), tables, tokens.map((token) => readEmbedding(model, token)));
      yield;
    }
  }
  const margins = pairs.computeMargins();
  for (const [name, mean] of syntactic) profile.sentenceScores.set(name, { syntactic: mean.get(), ...margins.get(name) });
  return profile;
}

/** Return the mean weight on some cells in excess of uniform attention, at most 1, over the rows with some, but not only,
 * such cells; null without such rows. */
function measureExcess({ count, weights, allowed }: Table, cells: Uint8Array): number | null {
  const mean = new Mean();
  for (let query = 0; query < count; query++) {
    let [weight, chosen, choices] = [0, 0, 0];
    for (let cell = query * count; cell < (query + 1) * count; cell++) {
      weight += cells[cell] * weights[cell];
      chosen += cells[cell] * allowed[cell];
      choices += allowed[cell];
    }
    const uniform = chosen / Math.max(1, choices);
    if (chosen > 0 && uniform < 1) mean.add((weight - uniform) / Math.max(1e-9, 1 - uniform));
  }
  return mean.get();
}

type Span = [number, number];

/** Pairs of different words in sentences of one language, and the weight of every head on each of them. */
class WordPairs {
  private readonly distances: number[] = []; // in words; negative for later keys
  private readonly relations: string[] = []; // with the direction; "" for unrelated words
  private readonly similarities: number[] = []; // cosines; NaN for equal words
  private readonly weights = new Map<string, number[]>();

  addSentence(sentence: Annotation, words: Span[], tables: Map<string, Table>, vectors: Float32Array[]): void {
    const related = new Map<string, string>();
    sentence.governors.forEach((governor, dependent) => {
      if (governor < 0) return;
      for (const [query, key] of [
        [dependent, governor],
        [governor, dependent],
      ])
        related.set(`${query}/${key}`, `${sentence.relations[dependent]}, ${key < query ? "backward" : "forward"}`);
    });
    const wordVectors = words.map(([begin, end]) => {
      const sum = new Float32Array(vectors[0].length);
      for (const vector of vectors.slice(begin, end)) vector.forEach((entry, index) => (sum[index] += entry / (end - begin)));
      return normalize(sum);
    });
    const { count, allowed } = [...tables.values()].at(-1)!;
    const isReachable = ([begin, end]: Span, [first, last]: Span) => {
      for (let query = begin; query < end; query++) for (let key = first; key < last; key++) if (allowed[query * count + key]) return true;
      return false;
    };
    const pairs: Span[] = [];
    words.forEach((querySpan, query) =>
      words.forEach((keySpan, key) => {
        // without the first token, a word that consists of it has no weight
        const isFirst = keySpan[0] === 0 && keySpan[1] === 1;
        if (query !== key && !isFirst && isReachable(querySpan, keySpan)) pairs.push([query, key]);
      }),
    );
    for (const [query, key] of pairs) {
      this.distances.push(query - key);
      this.relations.push(related.get(`${query}/${key}`) ?? "");
      const isRepeated = sentence.words[query].toLowerCase() === sentence.words[key].toLowerCase();
      this.similarities.push(isRepeated ? NaN : multiply(wordVectors[query], wordVectors[key]));
    }
    for (const [name, table] of tables) {
      const { weights } = dropFirstKey(table);
      const merged = pairs.map(([query, key]) => {
        let sum = 0;
        for (let row = words[query][0]; row < words[query][1]; row++) for (let column = words[key][0]; column < words[key][1]; column++) sum += weights[row * count + column];
        return sum / (words[query][1] - words[query][0]);
      });
      this.weights.set(name, [...(this.weights.get(name) ?? []), ...merged]);
    }
  }

  computeMargins(): Map<string, Scores> {
    const byDistance = groupIndices(this.distances);
    const controls = [...byDistance.values()].map((indices) => ({ indices, controls: indices.filter((pair) => !this.relations[pair]) })).filter((group) => group.controls.length >= MIN_CONTROLS);
    const hasControls = new Set(controls.flatMap(({ indices }) => indices));
    const byRelation = [...groupIndices(this.relations)].filter(([relation]) => relation).map(([, pairs]) => pairs.filter((pair) => hasControls.has(pair)));
    const members = byRelation.filter((pairs) => pairs.length >= MIN_ARCS);
    const usable = this.similarities.flatMap((similarity, pair) => (Number.isFinite(similarity) ? [pair] : []));
    const similarities = usable.length >= MIN_SIMILARITIES ? this.subtractMeans(usable, this.similarities) : null;

    const margins = new Map<string, Scores>();
    for (const [name, weights] of this.weights) {
      const excess = weights.slice();
      for (const { indices, controls: unrelated } of controls) {
        const mean = average(unrelated.map((pair) => weights[pair]));
        for (const pair of indices) excess[pair] -= mean;
      }
      const scores: Scores = {};
      if (members.length) scores.syntactic_margin = Math.max(...members.map((pairs) => average(pairs.map((pair) => excess[pair]))));
      if (similarities) {
        const own = this.subtractMeans(usable, weights);
        const lengths = Math.sqrt(multiply(own, own) * multiply(similarities, similarities));
        scores.semantic_margin = multiply(own, similarities) / Math.max(lengths, 1e-12);
      }
      margins.set(name, scores);
    }
    return margins;
  }

  /** Return the numbers of some pairs minus their mean at each distance. */
  private subtractMeans(pairs: number[], numbers: number[]): number[] {
    const means = new Map([...groupIndices(pairs.map((pair) => this.distances[pair]))].map(([distance, indices]) => [distance, average(indices.map((index) => numbers[pairs[index]]))]));
    return pairs.map((pair) => numbers[pair] - means.get(this.distances[pair])!);
  }
}

function groupIndices<Key>(keys: Key[]): Map<Key, number[]> {
  const groups = new Map<Key, number[]>();
  keys.forEach((key, index) => groups.set(key, [...(groups.get(key) ?? []), index]));
  return groups;
}

function average(numbers: number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}

/** Describe every head of a pass without edits; after each head the page may draw. Without a profile, heads are
 * classified by the positions only, as in an encoder-decoder. */
export function* describeKinds(model: EngineModel, clean: EnginePass, profile: Profile | null): Generator<HeadFacts> {
  const lengths = { source: clean.input.source.length, target: clean.input.target?.length ?? 0 };
  const patterns = Object.fromEntries(
    Object.entries(lengths).map(([sequence, length]) => {
      const positions = Array.from({ length }, (_, position) => position);
      return [sequence, profile ? compareTokens(model, clean.input.source) : { tokens: positions, similarities: null }];
    }),
  );
  for (const [index, site] of clean.sites.entries()) {
    for (let head = 0; head < site.info.heads; head++) {
      const name = `${index}/${head}`;
      if (site.info.querySequence !== site.info.keySequence) {
        yield { site: index, head, kind: "", kind_without_first: "", kind_on_repeats: "", entropy: measureEntropy(site, head), distance: null };
        continue;
      }
      const kind = classify(site, head, patterns[site.info.querySequence]);
      const { syntactic, ...margins } = profile?.sentenceScores.get(name) ?? {};
      const ofSentences = syntactic === undefined ? {} : { syntactic, ...margins };
      yield {
        site: index,
        head,
        kind: nameKind({ ...kind.scores, ...ofSentences }),
        kind_without_first: nameKind({ ...kind.scoresWithoutFirst, ...margins }),
        kind_on_repeats: profile?.onRepeats.get(name) ?? "",
        entropy: kind.entropy,
        distance: kind.distance,
      };
    }
  }
}

function measureEntropy(site: SitePass, head: number): number {
  const row = new Float32Array(site.keys);
  const map = site.open(head);
  let sum = 0;
  for (let query = 0; query < site.queries; query++) {
    map.readRow(query, row);
    for (const weight of row) if (weight > 0) sum -= weight * Math.log(weight);
  }
  return sum / site.queries;
}
