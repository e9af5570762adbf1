/** Edits: where each of them applies in a model, and what it changes there. The same as jumok.lens.
 *
 * An edit applies at taps, the points of a model at which its values can be changed. They are named as in Python:
 *
 *     blocks.0.input                      the residual stream that enters a block
 *     blocks.0.attention.mask, .score     before the softmax
 *     blocks.0.attention.output           the outputs of the heads
 *     blocks.0.attention.block_output     what the attention adds to the residual stream
 *     blocks.0.feedforward_output         what the MLP adds
 */

import type { Edit } from "../protocol";
import { EngineError } from "./errors";
import { and, edge, not, or, parseMask, type Mask } from "./mask";
import type { EngineModel } from "./model";
import { ablate, patch, readSource } from "./replacements";
import type { EnginePass, SiteInfo, SitePass } from "./types";

/** An edit whose indices are lists, counted from 0; null means all. */
export interface PlannedEdit {
  edit: Edit;
  tap: string;
  heads: number[] | null;
  positions: number[] | null;
  source: EnginePass | null;
  sourcePositions: number[] | null;
  mask: Mask | null; // of Remask
}

/** The vectors of one head, MLP or stream [row, width] at a tap, which an edit replaces in place. */
export interface EditedVectors {
  vectors: Float32Array;
  head: number; // 0 if the tap has no heads
  first: number; // the position of the first row
  rows: number;
  width: number;
  self: SitePass | null; // the self-attention of the block, which says what a position may attend to; null of a stream
}

/** The edits of a forward pass, by the taps at which they apply. */
export class EditPlan {
  private readonly edits = new Map<string, PlannedEdit[]>();
  private readonly rows = new Map<string, number>(); // by tap; generation calls a tap several times
  private readonly sizes = new Map<string, SitePass>();

  constructor(
    model: EngineModel,
    edits: readonly Edit[],
    sources: Readonly<Record<string, EnginePass>> = {},
  ) {
    edits.forEach((edit, index) => {
      try {
        check(edit);
      } catch (error) {
        throw new EngineError(`edit ${index + 1}: ${(error as Error).message}`);
      }
      const shared = {
        edit,
        positions: readIndices(edit, "positions"),
        source: findSource(edit, sources),
        sourcePositions: readIndices(edit, "source_positions"),
        mask: edit.edit === "Remask" && edit.mask ? parseMask(edit.mask) : null,
      };
      // a decoder's block has two attentions, but one MLP and one residual stream: each edit applies once
      const taps = new Map(findTaps(edit, model));
      for (const [tap, { name, heads }] of taps) {
        const planned = { ...shared, tap, heads: readHeads(edit, name, heads) };
        this.edits.set(tap, [...(this.edits.get(tap) ?? []), planned]);
      }
    });
  }

  /** Whether an edit changes something in a block. */
  changes(block: string): boolean {
    return Array.from(this.edits.keys()).some((tap) => tap.startsWith(`${block}.`));
  }

  /** Return the mask of an attention under the edits. */
  editMask(site: SiteInfo, mask: Mask | null): Mask | null {
    for (const { edit, heads, mask: remask } of this.list(`${site.name}.mask`)) {
      if (edit.edit === "KnockOut") {
        const others = not(edge(readIndices(edit, "query"), readIndices(edit, "key"), heads));
        mask = mask ? and(mask, others) : others;
      } else if (heads === null) mask = remask;
      else {
        const edited = edge(null, null, heads);
        mask = or(and(mask ?? edge(null, null), not(edited)), and(remask ?? edge(null, null), edited));
      }
    }
    return mask;
  }

  /** Return by head the temperatures that divide the scores of an attention. */
  listTemperatures({ name, heads: count }: SiteInfo): number[][] {
    const temperatures = Array.from({ length: count }, (): number[] => []);
    for (const { edit, heads } of this.list(`${name}.score`)) for (const head of heads ?? temperatures.keys()) temperatures[head].push(edit.temperature ?? 1);
    return temperatures;
  }

  /** Edit vectors [head, row, width] in place. */
  editVectors(tap: string, vectors: Float32Array, heads: number, rows: number, self: SitePass | null): void {
    const edits = this.list(tap);
    if (!edits.length) return;
    const first = this.rows.get(tap) ?? 0;
    this.rows.set(tap, first + rows);
    const size = vectors.length / heads;
    for (const planned of edits)
      for (const head of planned.heads ?? Array(heads).keys()) {
        const part = vectors.subarray(head * size, (head + 1) * size);
        const replace = planned.edit.edit === "Patch" ? patch : ablate;
        replace(planned, { vectors: part, head, first, rows, width: size / rows, self });
      }
  }

  /** Remember the size of an attention's last call. */
  count(call: SitePass & { first: number }): void {
    this.sizes.set(call.info.name, call);
  }

  /** Refuse edits whose positions the forward pass did not have: they changed nothing. */
  checkPositions(): void {
    for (const planned of Array.from(this.edits.values()).flat()) {
      const { edit, tap, positions } = planned;
      const count = this.rows.get(tap) ?? 0;
      if (edit.edit === "Patch") {
        if (positions && positions.at(-1)! >= count)
          throw new EngineError(`${tap} has ${count} positions, counted from 0; ${positions.at(-1)} is not one of them`);
        const { rows } = readSource(planned);
        if (!positions && rows !== count)
          throw new EngineError(
            `the source capture has ${rows} positions at ${tap}, but this text has ${count}, so they do not belong together; patch a text of the same length, or name the positions that are equal in both`,
          );
      }
      if (edit.edit !== "KnockOut") continue;
      const name = tap.slice(0, tap.lastIndexOf("."));
      const call = this.sizes.get(name) as SitePass & { first: number };
      const check = (axis: "query" | "key", length: number) => {
        const last = readIndices(edit, axis)?.at(-1) ?? 0;
        if (last >= length) throw new EngineError(`${name} has no ${axis} at ${last}; its positions are 0 to ${length - 1}`);
      };
      check("query", call.first + call.queries);
      check("key", call.keys);
    }
  }

  private list(tap: string): PlannedEdit[] {
    return this.edits.get(tap) ?? [];
  }
}

function findSource({ source }: Edit, sources: Readonly<Record<string, EnginePass>>): EnginePass | null {
  if (source === undefined || source === null) return null;
  if (!Object.hasOwn(sources, source)) throw new EngineError(`this edit needs the capture '${source}'`);
  return sources[source];
}

/** Return the taps at which an edit applies, each with its attention. */
function findTaps(edit: Edit, model: EngineModel): [string, SiteInfo][] {
  const { layer, part = "attention" } = edit;
  if (part === "residual") return findSitesOfBlock(layer, model).map((site) => [`${site.block}.input`, site]);
  const sites = findSites(layer, model);
  if (part === "mlp") return sites.map((site) => [`${site.block}.feedforward_output`, site]);
  let word = "output";
  if (edit.edit === "Ablate" && (edit.head ?? null) === null) word = "block_output";
  if (edit.edit === "Scale") word = "score";
  if (edit.edit === "KnockOut" || edit.edit === "Remask") word = "mask";
  return sites.map((site) => [`${site.name}.${word}`, site]);
}

/** Return the attentions of a layer: a number in a single stack, a name or words of it in order; null means all. */
function findSites(layer: Edit["layer"], { sites }: EngineModel): SiteInfo[] {
  if (layer === null) return sites;
  const examples = sites.slice(0, 6).map(({ name }) => name).join(", ") + (sites.length > 6 ? ", ..." : "");
  if (typeof layer === "number") {
    const stacks = new Set(sites.map(({ stack }) => stack)).size;
    if (stacks > 1) throw new EngineError(`this model has ${stacks} stacks of attentions, so a number is ambiguous; name a site: ${examples}`);
    const site = sites.at(layer);
    if (!site || layer >= sites.length)
      throw new EngineError(`layer ${layer} does not exist; there are ${sites.length} layers, counted from 0 (-1 is the last)`);
    return [site];
  }
  const matches = findMatches(layer, sites.map(({ name }) => name));
  if (matches.length !== 1) {
    const problem = matches.length ? `'${layer}' is ambiguous: ${matches.slice(0, 4).join(", ")}` : `there is no attention '${layer}'`;
    throw new EngineError(`${problem}; the sites are ${examples}`);
  }
  return sites.filter(({ name }) => name === matches[0]);
}

function findSitesOfBlock(layer: Edit["layer"], model: EngineModel): SiteInfo[] {
  if (typeof layer === "string") {
    const matches = findMatches(layer, [...new Set(model.sites.map(({ block }) => block))]);
    if (matches.length === 1) return model.sites.filter(({ block }) => block === matches[0]);
  }
  return findSites(layer, model);
}

function findMatches(layer: string, names: string[]): string[] {
  if (names.includes(layer)) return [layer];
  return names.filter((name) => {
    const words = name.split(".");
    // the words of the layer, in the same order
    return layer.split(".").every((word) => {
      const index = words.indexOf(word);
      words.splice(0, index < 0 ? Infinity : index + 1);
      return index >= 0;
    });
  });
}

type IndexField = "head" | "query" | "key" | "batch" | "positions" | "source_positions";

/** Return the indices of a field, each once and in order; null means all. */
function readIndices(edit: Edit, field: IndexField): number[] | null {
  const indices = edit[field] ?? null;
  if (indices === null) return null;
  const numbers = [...new Set(Array.isArray(indices) ? indices : [indices])].sort((a, b) => a - b);
  if (!numbers.length) throw new EngineError(`${field} is empty; omit it to mean all`);
  for (const number of numbers) {
    if (!Number.isInteger(number)) throw new EngineError(`${field} must be an integer, several integers, or null for all; not ${JSON.stringify(number)}`);
    if (number < 0 && field !== "head") throw new EngineError(`${field} is counted from 0, so it cannot be ${number}`);
  }
  return numbers;
}

function readHeads(edit: Edit, name: string, count: number): number[] | null {
  const heads = readIndices(edit, "head");
  return heads && heads.map((head) => {
    if (head < -count || head >= count) throw new EngineError(`${name} has ${count} heads, counted from 0 (-1 is the last); ${head} is not one of them`);
    return (head + count) % count;
  });
}

const LEAST_TEMPERATURE = 1e-6; // the largest score has all the weight already; scores divided by less would overflow
const KINDS = ["Ablate", "KnockOut", "Patch", "Scale", "Remask"];

/** Refuse an edit that means nothing; it may come from a link. */
function check(edit: Edit): void {
  const { edit: kind, part = "attention", by = "zero", temperature = 1 } = edit;
  const require = (name: string, content: string, options: string[]) => {
    if (!options.includes(content)) throw new EngineError(`${name} must be one of ${options.join(", ")}, not ${content}`);
  };
  require("edit", kind, KINDS);
  require("part", part, kind === "Ablate" ? ["attention", "mlp"] : ["attention", "mlp", "residual"]);
  require("by", by, ["zero", "mean", "resample"]);
  if (part !== "attention" && (edit.head ?? null) !== null) throw new EngineError(`the part ${part} has no heads; omit head`);
  if (typeof temperature !== "number" || !(temperature >= LEAST_TEMPERATURE && temperature < 1e30))
    throw new EngineError(`temperature must be a finite number of at least 1e-06, not ${temperature}`);
  if ((readIndices(edit, "batch")?.at(-1) ?? 0) > 0) throw new EngineError("there is one text, so batch can only be 0");
  if (kind !== "Patch") return;
  if ((edit.source ?? null) === null) throw new EngineError("a Patch needs another capture to read from: source");
  const [positions, others] = [readIndices(edit, "positions"), readIndices(edit, "source_positions")];
  if (others && others.length !== positions?.length)
    throw new EngineError(
      `positions and source_positions must be equally many, not ${positions?.length ?? 0} and ${others.length}; each position is replaced by one of the source`,
    );
}
