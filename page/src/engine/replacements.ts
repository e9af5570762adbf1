/** What edits put in the place of outputs: zeros, a mean, those of randomly chosen positions, or those of another pass.
 *
 * A mean or a sample without a source: a position reads only the positions of its own text that its self-attention may
 * attend to. With a source, it reads all positions of the source that some query may attend to. */

import type { EditedVectors, PlannedEdit } from "./edits";
import { EngineError } from "./errors";
import { Random } from "./random";
import type { SitePass } from "./types";

/** Replace the vectors of one head, attention or MLP in place. */
export function ablate(planned: PlannedEdit, edited: EditedVectors): void {
  const { by = "zero" } = planned.edit;
  if (by === "zero") edited.vectors.fill(0);
  else if (planned.source) readPositionsOfSource(planned, edited);
  else readVisiblePositions(planned, edited);
}

function readPositionsOfSource(planned: PlannedEdit, { vectors, head, first, rows, width }: EditedVectors): void {
  const source = readSource(planned, width);
  const { self } = source;
  const positions = Array.from({ length: source.rows }, (_, position) => position);
  const isSeen = (key: number) => positions.some((query) => self.allows(0, query, key));
  const outputs = source.vectors.subarray(head * source.rows * width, (head + 1) * source.rows * width);
  const real = positions.filter(isSeen);
  if (planned.edit.by === "mean") {
    const mean = average(outputs, real, width);
    for (let row = 0; row < rows; row++) vectors.set(mean, row * width);
    return;
  }
  const random = new Random(planned.edit.seed ?? 0);
  for (let row = 0; row < first; row++) random.drawBits(); // the same draws, whether a text is read at once or in steps
  for (let row = 0; row < rows; row++) {
    const chosen = real[random.drawBits() % real.length];
    vectors.set(outputs.subarray(chosen * width, (chosen + 1) * width), row * width);
  }
}

function readVisiblePositions({ edit, tap }: PlannedEdit, { vectors, head, rows, width, self }: EditedVectors): void {
  if (rows === 1) {
    const [name, word] = [tap.slice(0, tap.lastIndexOf(".")), tap.slice(tap.lastIndexOf(".") + 1)];
    // the mean of a single position is itself, and there is nothing else to resample: the edit would do nothing
    throw new EngineError(`${name} processes one position at a time, but '${word}' needs several; choose another text as the source, or by "zero"`);
  }
  const random = new Random(edit.seed ?? 0);
  const outputs = vectors.slice();
  for (let row = 0; row < rows; row++) {
    const share = random.draw();
    const visible: number[] = [];
    for (let key = 0; key < rows; key++) if (self!.allows(head, row, key)) visible.push(key);
    if (edit.by === "mean") {
      vectors.set(average(outputs, visible, width), row * width);
      continue;
    }
    const others = visible.filter((key) => key !== row);
    const chosen = others.length ? others[Math.floor(share * others.length)] : row; // a row that sees only itself keeps its output
    vectors.set(outputs.subarray(chosen * width, (chosen + 1) * width), row * width);
  }
}

/** Return the mean of rows [row, width]; zeros for none. */
function average(vectors: Float32Array, rows: number[], width: number): Float32Array {
  const mean = new Float64Array(width);
  for (const row of rows) for (let index = 0; index < width; index++) mean[index] += vectors[row * width + index];
  return Float32Array.from(mean, (sum) => sum / Math.max(1, rows.length));
}

/** Replace rows by those of another pass. */
export function patch(planned: PlannedEdit, { vectors, head, first, rows, width }: EditedVectors): void {
  const source = readSource(planned, width);
  const requested = planned.positions ?? Array.from({ length: rows }, (_, row) => first + row);
  const partners = planned.sourcePositions ?? requested;
  requested.forEach((position, index) => {
    if (position < first || position >= first + rows) return;
    const row = partners[index];
    if (row >= source.rows)
      throw new EngineError(`the source capture has ${source.rows} positions, counted from 0; ${row} is not one of them`);
    const from = (head * source.rows + row) * width;
    vectors.set(source.vectors.subarray(from, from + width), (position - first) * width);
  });
}

/** Return what the source of an edit computed at its tap: vectors [head, row, width]. */
export function readSource({ source, tap }: PlannedEdit, width?: number): { vectors: Float32Array; rows: number; self: SitePass } {
  const cut = tap.lastIndexOf(".");
  const [owner, word] = [tap.slice(0, cut), tap.slice(cut + 1)];
  const site = source?.sites.find(({ info }) => info.name === owner);
  const block = source?.blocks.find(({ name }) => name === owner);
  const self = source?.sites.find(({ info }) => info.block === (site?.info.block ?? owner) && info.querySequence === info.keySequence);
  const found = { output: site?.output, block_output: site?.blockOutput, feedforward_output: block?.feedforwardOutput, input: block?.input }[word];
  if (!found || !self) throw new EngineError(`the source capture did not record ${tap}; capture the same model`);
  const rows = site ? site.queries : block!.positions;
  const sourceWidth = found.length / rows / (word === "output" ? site!.info.heads : 1);
  if (width !== undefined && width !== sourceWidth)
    throw new EngineError(`the source capture has vectors of width ${sourceWidth} at ${tap}, but this forward pass has width ${width}; capture the same model`);
  return { vectors: found, rows, self };
}
