/** The weights of the selected token in the selected head: as a query (a row of the map) and as a key (a column). */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { App } from "../app";
import type { Line } from "../protocol";
import { asFloats, AskError } from "../wire/client";

/** Load the row of the selected query; empty before it is there. */
export function useRow(app: App): Signal<Float32Array> {
  return useLine(app, "query");
}

/** Load the column of the selected token; empty where a head's keys belong to another sequence. */
export function useColumn(app: App): Signal<Float32Array> {
  return useLine(app, "key");
}

function useLine(app: App, axis: "query" | "key"): Signal<Float32Array> {
  const weights = useSignal<Float32Array>(new Float32Array());
  const shownText = useRef<string | null>(null);
  const run = app.run.value;
  const { site, head, query } = app.selection.value;
  const pass = app.pass.value;
  useEffect(() => {
    const shape = run?.sites[site];
    const text = run && [run.model.name, site, ...run.source].join("\u0000");
    const isKnown = shape && (axis === "query" || (shape.query_sequence === shape.key_sequence && query! < shape.keys));
    if (!isKnown || query === null || text !== shownText.current) weights.value = new Float32Array(); // never those of another text
    shownText.current = text;
    if (!run || !isKnown || query === null) return;
    let isCurrent = true;
    app.client
      .ask<Line>("line", { run: run.run, show: pass, site, head, [axis]: query })
      .then(({ buffers }) => {
        if (isCurrent) weights.value = asFloats(buffers[0]);
      })
      .catch((error) => {
        if (!(error instanceof AskError)) throw error;
      });
    return () => {
      isCurrent = false;
    };
  }, [run, site, head, query, pass]);
  return weights;
}
