/** A run that the engine computed in the page: its predictions, its maps, and the rest of what the page asks about it. */

import { addExponentials, type EngineModel, type EnginePass, labelTokens, measureDivergence, nameSentences, readVectors, type SitePass } from "../engine";
import type { Candidate, Edit, Language, Pass, Prediction, Run, Selection, Site, Steps, Thumbnails } from "../protocol";
import { AskError } from "./client";
import type { StoredMap } from "./file_maps";
import { type Answer, type Ask, RunAnswers } from "./run_answers";
import type { HeadVectors } from "./steps";

export const MAX_PREDICTIONS = 256; // positions: of a longer input, the last ones
const CANDIDATES = 5;
const MAX_SELECTED_KEYS = 4096; // the rows of longer inputs would delay the first picture
const START = "<start>";
const REPLACEMENT = "\ufffd";

/** What a run reads, and what comes out. */
export interface RunParts {
  number: number;
  name: string; // of the model
  text: string;
  unknown: string[];
  notes: string[];
  edits: Edit[];
  generated: number; // the first generated position; equal to the length if none
  clean: EnginePass;
  edited: EnginePass | null;
  editedAnswer: string | null; // the translation that the model writes under the edits
  seconds: number;
}

export class LiveRun extends RunAnswers {
  private readonly maps = new Map<string, StoredMap>();

  constructor(
    readonly model: EngineModel,
    readonly parts: RunParts,
    private readonly texts: Record<Language, Record<string, string>>,
  ) {
    super(describeRun(model, parts));
  }

  getPass(pass: Pass): EnginePass {
    if (pass === "clean") return this.parts.clean;
    if (!this.parts.edited) throw new AskError("this run has no edits; there is only the clean pass", "invalid");
    return this.parts.edited;
  }

  override answer(ask: Ask): Promise<Answer | null> | Answer | null {
    return ask.ask === "thumbnails" ? this.answerThumbnails(ask) : super.answer(ask);
  }

  override findMap(pass: Pass, site: number, head: number): StoredMap {
    const name = `${pass}/${site}/${head}`;
    if (!this.maps.has(name)) this.maps.set(name, this.findSite(pass, site).open(head));
    return this.maps.get(name)!;
  }

  override findVectors(pass: Pass, site: number, head: number): HeadVectors {
    return readVectors(this.findSite(pass, site), head);
  }

  override writeSentences(pass: Pass, site: number, language: Language): Steps["sentences"] {
    const names = nameSentences(this.findSite(pass, site));
    return Object.fromEntries(Object.entries(names).map(([step, text]) => [step, this.texts[language][text]])) as Steps["sentences"];
  }

  private findSite(pass: Pass, site: number): SitePass {
    return this.getPass(pass).sites[site];
  }

  /** Pool the maps of all heads of an attention: the largest weight of each cell. */
  private answerThumbnails({ show, site, size }: Ask): Answer {
    const { heads, queries, keys } = this.run.sites[site];
    const [rows, columns] = [Math.min(size, queries), Math.min(size, keys)];
    const pooled = new Float32Array(heads * rows * columns);
    const weights = new Float32Array(keys);
    for (let head = 0; head < heads; head++) {
      const map = this.findMap(show, site, head);
      for (let row = 0; row < rows; row++) {
        const cells = pooled.subarray((head * rows + row) * columns, (head * rows + row + 1) * columns);
        for (let query = Math.floor((queries * row) / rows); query < Math.floor((queries * (row + 1)) / rows); query++) {
          map.readRow(query, weights);
          for (let column = 0; column < columns; column++)
            for (let key = Math.floor((keys * column) / columns); key < Math.floor((keys * (column + 1)) / columns); key++)
              if (weights[key] > cells[column]) cells[column] = weights[key];
        }
      }
    }
    const body: Thumbnails = { heads, rows, columns, is_preview: false };
    return { body, buffers: [Uint8Array.from(pooled, (weight) => Math.round(255 * Math.sqrt(weight)))] };
  }
}

function describeRun(model: EngineModel, parts: RunParts): Run {
  const { clean, edited } = parts;
  const { source, target } = clean.input;
  const tokenizer = model.tokenizer!;
  const sites = model.sites.map((info, index): Site => {
    const { queries, keys } = clean.sites[index];
    return {
      ...{ name: info.name, layer: info.layer, stack: info.stack, stack_title: info.stackTitle, heads: info.heads, queries, keys },
      ...{ query_sequence: info.querySequence, key_sequence: info.keySequence, is_causal: info.isCausal, has_mask: info.hasMask },
      ...{ scale: info.scale, grid: null },
    };
  });
  const predictions = describePredictions(model, clean, edited);
  return {
    run: parts.number,
    model: {
      name: parts.name,
      family: model.config.family,
      parameters: model.parameterCount,
      layers: sites.filter((site) => site.query_sequence === site.key_sequence).length,
      heads: sites.reduce((sum, site) => sum + site.heads, 0),
      ...{ is_editable: true, reason: "", predicts: "next token", has_tokenizer: true, can_live: true },
    },
    text: parts.text,
    source: labelTokens(tokenizer, source),
    target: target ? [START, ...labelTokens(tokenizer, target.slice(1))] : [],
    ...{ image: null, audio: null, edited_answer: parts.editedAnswer, answered: null },
    // a limit may cut a character in two
    answer: target ? tokenizer.decode(target.slice(1)).replaceAll(REPLACEMENT, "") : null,
    generated: parts.generated,
    unknown: parts.unknown,
    notes: parts.notes,
    sites,
    edits: parts.edits,
    ...predictions,
    first_selection: suggestSelection(clean, sites),
    change: edited && measureChange(readLast(clean), readLast(edited)),
    seconds: parts.seconds,
  };
}

function measureChange(clean: Float32Array, edited: Float32Array): number | null {
  const divergence = measureDivergence(clean, edited);
  return Number.isFinite(divergence) ? Math.max(divergence, 0) : null;
}

/** Return the logits of the last position. */
function readLast({ logits, predicted }: EnginePass): Float32Array {
  return logits.subarray(((predicted - 1) * logits.length) / predicted);
}

/** Describe what each position predicts; in the last prediction, each pass lists the candidates of the other one too. */
function describePredictions(model: EngineModel, clean: EnginePass, edited: EnginePass | null): Pick<Run, "clean" | "edited"> {
  const tokens = clean.input.target ?? clean.input.source;
  const first = tokens.length - clean.predicted;
  const names = new Map<number, string>();
  const describe = (logits: Float32Array, total: number, id: number): Candidate => {
    if (!names.has(id)) names.set(id, labelTokens(model.tokenizer!, [id])[0]);
    return { label: names.get(id)!, id, probability: Math.exp(logits[id] - total) };
  };
  const list = ({ logits, predicted }: EnginePass, others: Candidate[] = []) =>
    Array.from({ length: predicted }, (_, row): Prediction => {
      const width = logits.length / predicted;
      const own = logits.subarray(row * width, (row + 1) * width);
      const total = addExponentials(own);
      const largest = findLargest(own);
      if (row === predicted - 1) largest.push(...others.map(({ id }) => id).filter((id) => !largest.includes(id)));
      const follower = tokens[first + row + 1];
      return {
        position: first + row,
        candidates: largest.map((id) => describe(own, total, id)),
        actual: follower === undefined ? null : describe(own, total, follower),
      };
    });
  if (!edited) return { clean: list(clean), edited: null };
  const editedRows = list(edited);
  const cleanRows = list(clean, editedRows.at(-1)!.candidates);
  return { clean: cleanRows, edited: list(edited, cleanRows.at(-1)!.candidates) };
}

function findLargest(logits: Float32Array): number[] {
  const largest: number[] = [];
  logits.forEach((logit, id) => {
    if (largest.length === CANDIDATES && logit <= logits[largest[CANDIDATES - 1]]) return;
    let place = largest.length;
    while (place > 0 && logit > logits[largest[place - 1]]) place--;
    largest.splice(place, 0, id);
    largest.length = Math.min(largest.length, CANDIDATES);
  });
  return largest;
}

/** Return the head whose last row has the largest weight on a key other than the first one and the query itself: most
 * heads put most of their weight on these. Of a model that answers, a cross-attention is shown. */
function suggestSelection({ sites, input }: EnginePass, descriptions: Site[]): Selection | null {
  const wanted = input.target ? "target" : "source";
  let [best, largest]: [Selection | null, number] = [null, 0];
  descriptions.forEach(({ query_sequence, key_sequence, heads, queries, keys }, site) => {
    if (query_sequence !== wanted || key_sequence !== "source" || keys > MAX_SELECTED_KEYS) return;
    const row = new Float32Array(keys);
    for (let head = 0; head < heads; head++) {
      sites[site].open(head).readRow(queries - 1, row);
      if (query_sequence === key_sequence) row[0] = row[queries - 1] = 0;
      const key = row.reduce((most, weight, index) => (weight > row[most] ? index : most), 0);
      if (row[key] > largest) [best, largest] = [{ site, head, query: queries - 1, key }, row[key]];
    }
  });
  return best;
}
