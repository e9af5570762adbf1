/** Write Python code that reproduces a run of a live page. The same as web/answers/python_code.py. */

import { quotePython } from "../engine";
import type { Edit, Run, Selection } from "../protocol";
import type { RunParts } from "./live_run";

const LINE_LENGTH = 100; // a comment is cut to this
const SHORTEST_RANGE = 4; // adjacent positions that are written as a range
const MASKS = ["blocks", "causal", "edge", "global_at", "prefix", "window"];
// the fields of each edit in their order, with their defaults
const SHARED = { layer: null, head: null };
const FIELDS: Record<Edit["edit"], Record<string, unknown>> = {
  Ablate: { ...SHARED, part: "attention", by: "zero", seed: 0 },
  KnockOut: { ...SHARED, query: null, key: null, batch: null },
  Patch: { ...SHARED, positions: null, part: "attention", source_positions: null },
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
    return [`${name}=${name === "mask" ? content : writeField(content)}`];
  });
  return `${edit.edit}(${fields.join(", ")})`;
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
