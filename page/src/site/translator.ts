/** The translator on the first screen: its model comes with the first touch, and edits are computed here. */

import type * as Engine from "../engine";
import type { Edit } from "../protocol";
import { loadScript, locate } from "./search";
import { getLanguage } from "./words";

/** A translation with its cross-attention. */
export interface Translation {
  source: string[]; // tokens of the Korean sentence; "##" marks the second part of a word
  target: string[]; // English words, and at the end ""
  probabilities: number[]; // of each English word, before it was written
  maps: number[][][][]; // [layer][head][English word][Korean token]
}

export interface Removed {
  heads: string[]; // "layer.head"
  tokens: number[]; // positions of the source
}

const LIMIT = 24;

interface EngineScript {
  engine: typeof Engine;
  openPack: (pack: string) => Promise<Engine.EngineModel>;
  pack: string; // as web/model_pack.py writes it
}

let translator: Promise<(text: string, removed: Removed) => Translation> | null = null;

/** Load the engine and the model once. */
export function loadTranslator(): Promise<(text: string, removed: Removed) => Translation> {
  translator ??= Promise.all(["engine", "translator"].map((name) => loadScript(locate(`assets/${name}.js`)))).then(async () => {
    const { engine, openPack, pack } = (globalThis as any).jumokLive as EngineScript;
    const model = await openPack(pack);
    return (text, removed) => translate(engine, model, text, removed);
  });
  return translator;
}

function translate(engine: typeof Engine, model: Engine.EngineModel, text: string, removed: Removed): Translation {
  const { tokens } = engine.prepareText(model, text, getLanguage());
  const tokenizer = model.tokenizer!;
  const sites = model.sites.map((site, index) => ({ ...site, index })).filter(({ name }) => name.endsWith(".cross"));
  const hidden = removed.tokens.filter((position) => position < tokens.length);
  const edits: Edit[] = removed.heads.map((name) => {
    const [layer, head] = name.split(".").map(Number);
    return { edit: "Ablate", layer: sites[layer].layer, head, part: "attention", by: "zero" };
  });
  if (hidden.length) edits.push(...sites.map(({ layer }): Edit => ({ edit: "KnockOut", layer, head: null, query: null, key: hidden })));

  const target = [model.startToken!];
  const probabilities: number[] = [];
  for (const { token, isEnd, logits } of engine.generate(model, { source: tokens }, { edits, limit: LIMIT })) {
    probabilities.push(readProbability(logits, token));
    if (isEnd) break;
    target.push(token);
  }
  const pass = engine.forward(model, { source: tokens, target }, { edits });
  const maps = sites.map(({ index, heads }) =>
    Array.from({ length: heads }, (_, head) => {
      const map = pass.sites[index].open(head);
      return Array.from({ length: map.queries }, (_, query) => {
        const row = new Float32Array(map.keys);
        map.readRow(query, row);
        return Array.from(row);
      });
    }),
  );
  return {
    source: tokens.map((id) => (id === tokenizer.end ? "" : tokenizer.idToToken(id))),
    target: [...target.slice(1).map((id) => tokenizer.decode([id]).trim()), ""].slice(0, target.length),
    probabilities,
    maps,
  };
}

function readProbability(logits: Float32Array, token: number): number {
  let total = 0;
  for (const logit of logits) total += Math.exp(logit - logits[token]);
  return 1 / total;
}
