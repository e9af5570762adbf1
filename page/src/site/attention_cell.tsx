/** The attention of a lesson: change its mask, temperature, heads and positions, and see every number. */

import { useRef, useState } from "preact/hooks";
import { cssColour, inkOn, weightColour } from "../colour";
import { add, computeProducts, cutHead, multiply, softmax, type Matrix } from "./arithmetic";
import { ColumnLabel } from "./column_label";
import { useTheme } from "./theme";
import { words } from "./words";

export type Control = "mask" | "draw" | "temperature" | "heads" | "positions" | "steps";

/** Either scores, or words as vectors with their projections. */
export interface AttentionData {
  queries: string[];
  keys: string[];
  controls: Control[];
  isCausal: boolean;
  scores?: Matrix;
  vectors?: Matrix;
  positions?: Matrix;
  toQuery?: Matrix;
  toKey?: Matrix;
}

type MaskName = "none" | "causal" | "drawn";

export function AttentionCell({ data }: { data: AttentionData }) {
  const theme = useTheme();
  const has = (control: Control) => data.controls.includes(control);
  const [maskName, setMaskName] = useState<MaskName>(data.isCausal ? "causal" : "none");
  const [drawn, setDrawn] = useState<boolean[][]>(() => createMask(data, data.isCausal));
  const [temperature, setTemperature] = useState(1);
  const [heads, setHeads] = useState(1);
  const [hasPositions, setPositions] = useState(false);
  const [row, setRow] = useState(data.queries.length - 1);
  const brush = useRef<boolean | null>(null); // what the pointer writes while it is down

  const { queries, keys } = project(data, hasPositions);
  const allowed = maskName === "drawn" ? drawn : createMask(data, maskName === "causal");
  const parts = Array.from({ length: heads }, (_, head) => {
    const width = queries ? queries[0].length / heads : 1;
    const products = queries ? computeProducts(cutHead(queries, head, heads), cutHead(keys!, head, heads)) : data.scores!;
    const scores = products.map((values) => values.map((value) => value / Math.sqrt(width) / temperature));
    return { products, scores, weights: scores.map((values, index) => softmax(values, allowed[index])) };
  });
  const draw = (query: number, key: number, isAllowed: boolean) => {
    const next = allowed.map((values) => [...values]);
    next[query][key] = isAllowed;
    setDrawn(next);
    setMaskName("drawn");
  };
  const reset = () => {
    setMaskName(data.isCausal ? "causal" : "none");
    setTemperature(1);
    setHeads(1);
    setPositions(false);
  };
  const width = queries?.[0].length ?? 1;
  const headChoices = [1, 2, 4, 8].filter((count) => width % count === 0 && count <= width);
  const [first] = parts;
  return (
    <div class="attention" onPointerUp={() => (brush.current = null)} onPointerLeave={() => (brush.current = null)}>
      <div class="controls">
        {has("mask") && (
          <Choice label={words.mask} options={maskName === "drawn" ? ["none", "causal", "drawn"] : ["none", "causal"]} value={maskName} name={(name) => words.masks[name]} onChange={setMaskName} />
        )}
        {has("temperature") && (
          <label>
            {words.temperature}{" "}
            <input type="range" min={-2} max={6} step={0.25} value={Math.log2(temperature)} onInput={(event) => setTemperature(2 ** Number(event.currentTarget.value))} />{" "}
            <output>{temperature.toFixed(2)}</output>
          </label>
        )}
        {has("heads") && <Choice label={words.heads} options={headChoices} value={heads} name={String} onChange={setHeads} />}
        {has("positions") && (
          <label>
            <input type="checkbox" checked={hasPositions} onChange={(event) => setPositions(event.currentTarget.checked)} /> {words.positions}
          </label>
        )}
        <button type="button" onClick={reset}>
          {words.reset}
        </button>
      </div>
      <div class="maps" data-count={heads}>
        {parts.map(({ weights }, head) => (
          <figure key={head}>
            {heads > 1 && <figcaption>{words.headNumber(head)}</figcaption>}
            <table class="weights" data-small={heads > 1 || data.keys.length > 8}>
              <thead>
                <tr>
                  <td />
                  {data.keys.map((label, key) => (
                    <th key={key} scope="col">
                      <ColumnLabel label={label} />
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {weights.map((values, query) => (
                  <tr key={query} aria-selected={has("steps") && query === row}>
                    <th scope="row">{has("steps") ? <button type="button" onClick={() => setRow(query)}>{data.queries[query]}</button> : data.queries[query]}</th>
                    {values.map((weight, key) => {
                      const colour = weightColour(weight, "sqrt", 1, theme);
                      return (
                        <td
                          key={key}
                          title={words.cell(data.queries[query], data.keys[key], weight.toFixed(3))}
                          data-forbidden={!allowed[query][key]}
                          style={{ background: cssColour(colour), color: inkOn(colour) }}
                          onPointerDown={(event) => {
                            if (event.pointerType === "touch" || !has("draw")) return; // a finger scrolls the page
                            event.preventDefault();
                            brush.current = !allowed[query][key];
                            draw(query, key, brush.current);
                          }}
                          onPointerEnter={() => brush.current !== null && brush.current !== allowed[query][key] && draw(query, key, brush.current)}
                          onClick={(event) => {
                            if (has("steps")) setRow(query);
                            if (has("draw") && (event as unknown as PointerEvent).pointerType === "touch") draw(query, key, !allowed[query][key]);
                          }}
                        >
                          {weight.toFixed(2).replace("0.", ".").replace("1.00", "1")}
                        </td>
                      );
                    })}
                  </tr>
                ))}
              </tbody>
            </table>
          </figure>
        ))}
      </div>
      <p class="hint">
        {has("draw") && (has("steps") ? words.rowHint : words.drawHint)} {queries && words.randomHint}
      </p>
      {has("steps") && <Steps label={data.queries[row]} keys={data.keys} products={queries && first.products[row]} scores={first.scores[row]} weights={first.weights[row]} allowed={allowed[row]} />}
    </div>
  );
}

interface StepsProps {
  label: string;
  keys: string[];
  products: number[] | null;
  scores: number[];
  weights: number[];
  allowed: boolean[];
}

function Steps({ label, keys, products, scores, weights, allowed }: StepsProps) {
  const exponentials = scores.map((score, key) => (allowed[key] ? Math.exp(score) : 0));
  const total = exponentials.reduce((sum, value) => sum + value, 0);
  return (
    <div class="steps">
      <h3>{words.rowOf(label)}</h3>
      {total === 0 && <p class="hint">{words.emptyRow}</p>}
      <div class="table-scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">{words.key}</th>
              {products && <th scope="col">{words.product}</th>}
              <th scope="col">{words.score}</th>
              <th scope="col">{words.exponential}</th>
              <th scope="col">{words.weight}</th>
            </tr>
          </thead>
          <tbody>
            {keys.map((name, key) => (
              <tr key={key} data-forbidden={!allowed[key]}>
                <th scope="row">{name}</th>
                {products && <td>{products[key].toFixed(3)}</td>}
                <td>{allowed[key] ? scores[key].toFixed(3) : words.forbidden}</td>
                <td>{exponentials[key].toFixed(3)}</td>
                <td>
                  <i style={{ width: `${60 * weights[key]}px` }} /> {weights[key].toFixed(3)}
                </td>
              </tr>
            ))}
            <tr>
              <th scope="row">{words.sum}</th>
              {products && <td />}
              <td />
              <td>{total.toFixed(3)}</td>
              <td>{total ? "1.000" : "0.000"}</td>
            </tr>
          </tbody>
        </table>
      </div>
    </div>
  );
}

interface ChoiceProps<Value> {
  label: string;
  options: readonly Value[];
  value: Value;
  name: (value: Value) => string;
  onChange: (value: Value) => void;
}

function Choice<Value extends string | number>({ label, options, value, name, onChange }: ChoiceProps<Value>) {
  return (
    <span class="choice" role="group" aria-label={label}>
      {label}{" "}
      {options.map((option) => (
        <button type="button" key={option} aria-pressed={option === value} onClick={() => onChange(option)}>
          {name(option)}
        </button>
      ))}
    </span>
  );
}

function createMask({ queries, keys }: AttentionData, isCausal: boolean): boolean[][] {
  return queries.map((_, query) => keys.map((_, key) => !isCausal || key <= query));
}

function project({ vectors, positions, toQuery, toKey }: AttentionData, hasPositions: boolean): { queries: Matrix | null; keys: Matrix | null } {
  if (!vectors) return { queries: null, keys: null };
  const inputs = hasPositions && positions ? add(vectors, positions) : vectors;
  return { queries: multiply(inputs, toQuery!), keys: multiply(inputs, toKey!) };
}
