/** A small question mark beside the terms of a panel: each term in one sentence, and where the handbook explains it. */

import { useApp } from "../app";
import type { View } from "../app";
import type { Words } from "../words";
import { usePopover } from "./popover";

export type Term = keyof Words["terms"];

/** The terms of the views of the centre. */
export const TERMS: Record<View, Term[]> = {
  map: ["query", "key", "weight", "mask", "crossAttention", "difference"],
  lines: ["query", "key", "weight"],
  computation: ["query", "key", "score", "scale", "bias", "mask", "softmax", "value"],
  effect: ["effect", "metric", "edge", "weight", "control"],
  image: ["patch", "query", "weight"],
  contrast: ["logitDifference", "patching", "head", "mlp", "residual", "weight"],
  generation: ["generation", "prediction", "token"],
};

export function Help({ of, label, kinds = [] }: { of: Term[]; label: string; kinds?: string[] }) {
  const app = useApp();
  const words = app.words.value;
  const { button, panel, isOpen, close } = usePopover();
  return (
    <>
      <button ref={button} class="jk-help" type="button" aria-label={words.help(label)} title={words.help(label)} aria-expanded={isOpen.value}>
        ?
      </button>
      <div ref={panel} class="jk-popover" popover="auto" role="dialog" aria-label={words.help(label)} tabIndex={-1}>
        {isOpen.value && (
          <>
            <button class="jk-quiet jk-close" aria-label={words.close} onClick={close}>
              ✕
            </button>
            <dl>
              {of.map((term) => (
                <div key={term} data-term={term}>
                  <dt>{words.terms[term].name}</dt>
                  <dd>
                    {words.terms[term].text} <Reference see={words.terms[term].see} />
                    {term === "kind" && kinds.length > 0 && (
                      <ul>
                        {kinds.map((kind) => (
                          <li key={kind}>
                            <b>{words.kinds[kind] ?? kind}</b>: {words.kindHints[kind]}
                          </li>
                        ))}
                      </ul>
                    )}
                  </dd>
                </div>
              ))}
            </dl>
          </>
        )}
      </div>
    </>
  );
}

/** The place in the handbook. It is text: the page must work without a network, and a copy of the handbook is not beside it. */
function Reference({ see: [page, section] }: { see: string[] }) {
  const app = useApp();
  return (
    <cite class="jk-reference" data-page={page} data-section={section}>
      {app.words.value.handbook(`docs/${app.language.value}/${page}`, section)}
    </cite>
  );
}
