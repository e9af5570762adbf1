/** Write Python code that reproduces a run of a live page, or patches one input into another. The same as
 * web/answers/python_code.py and contrast_code.py. */

import type { Partners } from "../contrast/align";
import { encodeToken, EngineError, type EngineModel, type PassInput, quotePython } from "../engine";
import type { Edit, PatchPart, Run, Selection, Sequence } from "../protocol";
import type { RunParts } from "./live_run";

const LINE_LENGTH = 100; // a comment is cut to this
const SHORTEST_RANGE = 4; // adjacent positions that are written as a range
const SOURCE_NAME = "source"; // the variable of a capture that an edit reads
const KEPT_WORDS: Record<PatchPart, string> = { attention: "output", mlp: "feedforward_output", residual: "input" };
const MASKS = ["blocks", "causal", "edge", "global_at", "prefix", "window"];
// the fields of each edit in their order, with their defaults
const SHARED = { layer: null, head: null };
const FIELDS: Record<Edit["edit"], Record<string, unknown>> = {
  Ablate: { ...SHARED, part: "attention", by: "zero", seed: 0 },
  KnockOut: { ...SHARED, query: null, key: null, batch: null },
  Patch: { ...SHARED, positions: null, part: "attention", source: null, source_positions: null },
  Scale: { ...SHARED, temperature: 1 },
  Remask: { ...SHARED, mask: null },
};

export function writeCode(run: Run, { clean, edits, text }: RunParts, selection: Selection | null): string {
  const { source, target } = clean.input;
  const parts = [writeImports(edits, target !== undefined)];
  if (edits.length) parts.push(["edits = [", ...edits.map((edit) => `    ${writeEdit(edit)},`), "]"].join("\n"));

  const model = quotePython(run.model.name);
  const lines = [`text = ${quotePython(text)}`];
  if (target) lines.push(`target = torch.tensor([[${target.join(", ")}]])  # ${makePrintable(run.target.join(" ").slice(0, LINE_LENGTH))}`);
  lines.push(`with jumok.Lens(${model}) as lens:`);
  const argument = edits.length ? ", edits=edits" : "";
  const newTokens = target ? 0 : source.length - run.generated;
  if (newTokens > 0) {
    lines.push(`    generation = lens.generate(text${argument}, limit=${newTokens})`);
    lines.push("    tokens = [*lens.tokenizer.encode(text), *generation.token_ids]");
  }
  const inputs = target ? "text, target" : newTokens > 0 ? "tokens" : "text";
  const settings = `, logits=True${clean.predicted < (target ?? source).length ? ", last=1" : ""}`;
  lines.push(`    clean = lens.run(${inputs}${settings})`);
  if (edits.length) lines.push(`    edited = lens.run(${inputs}, edits=edits${settings})`);
  parts.push(lines.join("\n"));

  const names = edits.length ? ["clean", "edited"] : ["clean"];
  parts.push(
    [
      `for name, capture in {${names.map((name) => `"${name}": ${name}`).join(", ")}}.items():`,
      "    probabilities = capture.logits[0, -1].softmax(-1)",
      "    for probability, token in zip(*probabilities.topk(5), strict=True):",
      '        print(f"{name}: {float(probability):.6f} {lens.tokenizer.decode([int(token)])!r}")',
    ].join("\n"),
  );
  if (selection && selection.query !== null) parts.push(writeWeight(run, selection, names));
  return `${parts.join("\n\n")}\n`;
}

function writeImports(edits: Edit[], hasTarget: boolean): string {
  const lines = hasTarget ? ["import torch\n", "import jumok"] : ["import jumok"];
  const words = new Set(edits.flatMap(({ mask }) => mask?.match(/[a-z_]+/g) ?? []));
  const masks = MASKS.filter((name) => words.has(name));
  if (masks.length) lines.push(`from jumok.attention.mask import ${masks.join(", ")}`);
  const kinds = [...new Set(edits.map(({ edit }) => edit))].sort();
  if (kinds.length) lines.push(`from jumok.lens import ${kinds.join(", ")}`);
  return lines.join("\n");
}

function writeEdit(edit: Edit): string {
  const fields = Object.entries(FIELDS[edit.edit]).flatMap(([name, usual]) => {
    const content = edit[name as keyof Edit];
    if (content === undefined || content === usual) return [];
    return [`${name}=${name === "source" ? SOURCE_NAME : name === "mask" ? content : writeField(content)}`];
  });
  return `${edit.edit}(${fields.join(", ")})`;
}

/** Two inputs, and the tokens whose logits are compared. */
export interface TwoInputs {
  clean: WrittenInput;
  corrupted: WrittenInput;
  right: number;
  wrong: number;
  position: number; // as in Python: -1 is the last
  partners: Record<Sequence, Partners>;
}

interface WrittenInput {
  text: string;
  input: PassInput;
  model: EngineModel;
  name: string; // of the model
}

/** Return a program that patches every part of the first input, one at a time. */
export function writeSweep(inputs: TwoInputs, part: PatchPart): string {
  const { partners, clean, corrupted } = inputs;
  const sides = (corrupted.input.target ? ["source", "target"] : ["source"]) as Sequence[];
  const isEqual = sides.every((side) => partners[side].every((partner, position) => partner === position));
  const settings = [...(part === "residual" ? [] : [`part="${part}"`]), "metric=metric"];
  if (clean.model !== corrupted.model) settings.push(`source_model=${quotePython(clean.name)}`);
  if (!isEqual) settings.push("partners=partners");
  const lines = writeInputs(inputs, "sweep_patches");
  if (!isEqual) {
    const list = (side: Sequence) => `[${partners[side].map((partner) => partner ?? "None").join(", ")}]`;
    lines.push("partners = {", ...sides.map((side) => `    "${side}": ${list(side)},  # by position of corrupted: that of clean`), "}");
  }
  const column = part === "attention" ? "head" : "position";
  lines.push(
    `sweep = sweep_patches(${[quotePython(corrupted.name), "clean", "corrupted", ...settings].join(", ")})`,
    'print(f"clean {sweep.clean:.4f}, corrupted {sweep.corrupted:.4f}")',
    "restored = sweep.recovered.nan_to_num()",
    "for index in restored.flatten().argsort(descending=True)[:10].tolist():",
    "    layer, column = divmod(index, restored.shape[1])",
    `    print(f"{sweep.blocks[layer]} ${column} {column}: restores {float(restored[layer, column]):.1%}")`,
  );
  return `${lines.join("\n")}\n`;
}

/** Return a program that measures both inputs, and the second one with patches. */
export function writePatches(inputs: TwoInputs, patches: Edit[]): string {
  const kept = [...new Set(patches.map(({ part }) => quotePython(KEPT_WORDS[(part ?? "attention") as PatchPart])))].sort();
  const keep = kept.length > 1 ? `, keep=(${kept.join(", ")})` : kept.length ? `, keep=${kept[0]}` : "";
  const { clean, corrupted } = inputs;
  const spread = clean.input.target ? "*" : "";
  const isSame = clean.model === corrupted.model;
  const lenses = [...(isSame ? [] : [`jumok.Lens(${quotePython(clean.name)}) as source_lens`]), `jumok.Lens(${quotePython(corrupted.name)}) as lens`];
  const lines = writeInputs(inputs, patches.length ? "Patch" : "");
  lines.push(
    `with ${lenses.join(", ")}:`,
    "    metric = metric.resolve_tokens(lens.tokenizer)",
    `    source = ${isSame ? "lens" : "source_lens"}.run(${spread}clean${keep}, logits=True)`,
    `    captures = {"clean": source, "corrupted": lens.run(${spread}corrupted, logits=True)}`,
  );
  if (patches.length) {
    lines.push("    patches = [", ...patches.map((patch) => `        ${writeEdit(patch)},`), "    ]");
    lines.push(`    captures["patched"] = lens.run(${spread}corrupted, edits=patches, logits=True)`);
  }
  lines.push("for name, capture in captures.items():", '    print(f"{name}: {float(metric(capture.logits, capture.logits)[0]):.4f}")');
  return `${lines.join("\n")}\n`;
}

function writeInputs({ clean, corrupted, right, wrong, position }: TwoInputs, imported: string): string[] {
  const lines = clean.input.target ? ["import torch\n", "import jumok"] : ["import jumok"];
  if (imported) lines.push(`from jumok.lens import ${imported}`);
  lines.push("from jumok.lens.effects.metrics import LogitDifference\n");
  lines.push(`clean = ${writeInput(clean)}`, `corrupted = ${writeInput(corrupted)}`);
  const at = position === -1 ? "" : `, position=${position}`;
  lines.push(`metric = LogitDifference(${writeToken(corrupted.model, right)}, ${writeToken(corrupted.model, wrong)}${at})`);
  return lines;
}

/** Return a text, its tokens where generated ones follow it, or the text with what the decoder reads. */
function writeInput({ text, input: { source, target }, model: { tokenizer } }: WrittenInput): string {
  if (target) return `(${quotePython(text)}, torch.tensor([[${target.join(", ")}]]))`;
  return String(tokenizer!.encode(text)) === String(source) ? quotePython(text) : `[${source.join(", ")}]`;
}

/** Return a token as its text, where that is this token alone, else as its id. */
function writeToken(model: EngineModel, token: number): string {
  const text = model.tokenizer!.decode([token]);
  try {
    return encodeToken(model, text) === token ? quotePython(text) : String(token);
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    return String(token);
  }
}

/** Return a field as Python; adjacent positions as a range. */
function writeField(content: unknown): string {
  if (typeof content === "string") return quotePython(content);
  if (!Array.isArray(content)) return content === null ? "None" : String(content);
  const isRange = content.every((position, index) => position === content[0] + index);
  if (isRange && content.length >= SHORTEST_RANGE) return `range(${content[0]}, ${content.at(-1) + 1})`;
  return content.length === 1 ? `(${content[0]},)` : `(${content.join(", ")})`;
}

function writeWeight(run: Run, { site, head, query, key }: Selection, names: string[]): string {
  const { layer, query_sequence, key_sequence } = run.sites[site];
  const lines: string[] = [];
  const [label, keyLabel] = [run[query_sequence][query!], key === null ? undefined : run[key_sequence][key]];
  if (label !== undefined && keyLabel !== undefined) lines.push(`# ${makePrintable(`${label} attends to ${keyLabel}`.slice(0, LINE_LENGTH))}`);
  for (const name of names) {
    const row = `${name}.row(layer=${writeField(layer)}, head=${head}, query=${query})`;
    lines.push(`print("${name} weight:", ${key === null ? row : `float(${row}[${key}])`})`);
  }
  return lines.join("\n");
}

/** Return a text that stays inside one comment. */
function makePrintable(text: string): string {
  return text.replace(/[\p{C}\p{Z}]/gu, " ");
}
