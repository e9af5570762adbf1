/** The computation of one head for one query, with numbers, from a pass. The same as web/answers/head_steps.py. */

import type { StepName, Steps } from "../protocol";
import { computeSteps, type HeadVectors } from "../wire/steps";
import type { EnginePass, SitePass } from "./types";

/** The steps of a query; `texts` names the sentence of each step in lab/steps/formula_steps.toml. */
export type StepNumbers = Omit<Steps, "sentences"> & { texts: Record<StepName, string> };

export function describeSteps(pass: EnginePass, site: number, head: number, query: number): StepNumbers {
  return { ...computeSteps(readVectors(pass.sites[site], head), query), texts: nameSentences(pass.sites[site]) };
}

export function nameSentences({ info, mask }: SitePass): Record<StepName, string> {
  return {
    query: "one_query",
    key: "one_key",
    product: "one_product",
    scale: hasUsualScale(info) ? "scaled" : "model_scale",
    bias: info.hasBias ? "biased" : "no_bias",
    mask: mask ? "one_mask" : "no_mask",
    softmax: "one_softmax",
    value: "one_value",
    sum: "one_sum",
  };
}

function hasUsualScale({ scale, headWidth }: SitePass["info"]): boolean {
  return Math.abs(scale * Math.sqrt(headWidth) - 1) < 1e-6;
}

/** Return what a head of a pass computes with. */
export function readVectors(site: SitePass, head: number): HeadVectors {
  const { info, queries, keys } = site;
  const { scale, headWidth: width } = info;
  const group = Math.floor((head * info.groups) / info.heads);
  const cut = (vectors: Float32Array, index: number, rows: number) => vectors.subarray(index * rows * width, (index + 1) * rows * width);
  const output = cut(site.output, head, queries);
  // the edit that was applied last comes first
  const temperatures = site.temperatureEdits[head].map((temperature) => ` / ${writeGeneral(temperature)}`).reverse();
  return {
    keys,
    width,
    query: cut(site.query, head, queries),
    key: cut(site.key, group, keys),
    value: cut(site.value, group, keys),
    score: {
      text: (hasUsualScale(info) ? `/ sqrt(${width})` : `x ${writeGeneral(scale)}`) + temperatures.join(""),
      scale,
      softcap: null,
      factor: 1 / site.temperatures[head],
      sink: null,
    },
    biasAt: info.hasBias ? (query, key) => site.biasAt(head, query, key) : null,
    allows: (query, key) => site.allows(head, query, key),
    compare: (query, computed) => computed.reduce((most, number, index) => Math.max(most, Math.abs(number - output[query * width + index])), 0),
  };
}

/** Write a number as Python's format "g": six digits, and an exponent if it is very large or small. */
function writeGeneral(number: number): string {
  const exponent = Number(number.toExponential(5).split("e")[1]);
  if (number !== 0 && (exponent < -4 || exponent >= 6)) {
    const [digits, power] = number.toExponential(5).split("e");
    return `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  }
  return String(Number(number.toPrecision(6)));
}
