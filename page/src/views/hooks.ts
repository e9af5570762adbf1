/** Hooks that several views share: answers of the session, weights of the selected token, the size of an element. */

import { type Signal, useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { App } from "../app";
import type { Asks } from "../protocol";
import { asFloats, AskError, type Reply } from "../wire/client";

/** Ask whenever the fields change; null asks nothing. Only the answer to the newest ask is passed on, and by default a
 * failure is ignored. */
export function useAnswer<Name extends keyof Asks>(
  app: App,
  name: Name,
  fields: Asks[Name]["fields"] | null,
  onAnswer: (reply: Reply<Name>) => void,
  onFailure: (error: AskError) => void = () => {},
): void {
  useEffect(() => {
    if (!fields) return;
    let isCurrent = true;
    app.client
      .ask(name, fields)
      .then((reply) => isCurrent && onAnswer(reply))
      .catch((error) => {
        if (!(error instanceof AskError)) throw error;
        if (isCurrent && !error.isSuperseded) onFailure(error);
      });
    return () => {
      isCurrent = false;
    };
  }, [JSON.stringify(fields), app.language.value]); // answers contain sentences
}

/** Load the weights of the selected token in the selected head: as a query the row of the map, as a key the column. They
 * are empty before they are there, and where a head's keys belong to another sequence. Of several tokens and heads, they
 * are the sum. */
export function useLine(app: App, axis: "query" | "key"): Signal<Float32Array> {
  const weights = useSignal<Float32Array>(new Float32Array());
  const shownText = useRef<string | null>(null);
  const run = app.run.current.value;
  const { site } = app.selection.current.value;
  const shape = run?.sites[site];
  const tokens = app.selection.listTokens().filter((token) => axis === "query" || (shape && token < shape.keys));
  const isKnown = tokens.length > 0 && shape && (axis === "query" || shape.query_sequence === shape.key_sequence);
  const lines = isKnown
    ? app.selection.listHeads().flatMap(({ site, head }) => tokens.map((token) => ({ run: run!.run, show: app.pass.value, site, head, [axis]: token })))
    : [];
  useEffect(() => {
    const text = run && [run.model.name, site, ...run.source].join("\u0000");
    if (!isKnown || text !== shownText.current) weights.value = new Float32Array(); // never those of another text
    shownText.current = text;
  }, [run, site, isKnown]);
  useEffect(() => {
    let isCurrent = lines.length > 0;
    Promise.all(lines.map((fields) => app.client.ask("line", fields)))
      .then((replies) => {
        if (isCurrent) weights.value = addUp(replies.map(({ buffers }) => asFloats(buffers[0])));
      })
      .catch((error) => {
        if (!(error instanceof AskError)) throw error; // what a file does not store, and what a newer run replaces
      });
    return () => {
      isCurrent = false;
    };
  }, [JSON.stringify(lines)]);
  return weights;
}

function addUp([first, ...others]: Float32Array[]): Float32Array {
  if (others.length === 0) return first;
  const sum = first.slice();
  for (const line of others) line.forEach((weight, index) => (sum[index] += weight));
  return sum;
}

/** Scroll to an element inside its panel while it is selected; the page itself does not move. `place` is another reason to
 * scroll, such as another order of the list; `margin` pixels at the edges of the panel are covered. */
export function useReveal<Target extends HTMLElement>(isSelected: boolean, place: unknown = null, margin = MARGIN): RefObject<Target | null> {
  const ref = useRef<Target>(null);
  useEffect(() => {
    if (isSelected && ref.current) revealIn(ref.current, margin);
  }, [isSelected, place]);
  return ref;
}

const MARGIN = 4; // pixels between a revealed element and the edge of its panel

/** Scroll the panel of an element so that the element is visible. */
export function revealIn(element: HTMLElement, margin = MARGIN): void {
  const panel = findPanel(element);
  if (!panel) return;
  const [inner, outer] = [element.getBoundingClientRect(), panel.getBoundingClientRect()];
  const bottom = outer.top + panel.clientHeight;
  if (inner.top < outer.top + margin) panel.scrollTop -= outer.top + margin - inner.top;
  else if (inner.bottom > bottom - margin) panel.scrollTop += inner.bottom - bottom + margin;
}

/** Return the nearest ancestor inside of the page that scrolls. */
function findPanel(element: HTMLElement): HTMLElement | null {
  for (let panel = element.parentElement; panel && !panel.classList.contains("jumok"); panel = panel.parentElement)
    if (panel.scrollHeight > panel.clientHeight && getComputedStyle(panel).overflowY !== "visible") return panel;
  return null;
}

/** Follow the size of an element; it stays when the element is hidden. */
export function useSize(ref: RefObject<HTMLElement | null>): Signal<{ width: number; height: number }> {
  const size = useSignal({ width: 0, height: 0 });
  useEffect(() => {
    const observer = new ResizeObserver(([{ contentRect }]) => {
      const { width, height } = contentRect;
      if (width > 0 && height > 0) size.value = { width, height };
    });
    observer.observe(ref.current!);
    return () => observer.disconnect();
  }, []);
  return size;
}

/** Say for a moment that something was copied. */
export function useCopied(app: App): { isCopied: Signal<boolean>; say(copied: Promise<void>): void } {
  const isCopied = useSignal(false);
  const say = (copied: Promise<void>) => {
    copied
      .then(() => {
        isCopied.value = true;
        app.announcement.value = app.words.value.copied;
        setTimeout(() => (isCopied.value = false), 1500);
      })
      .catch((error) => app.fail(error));
  };
  return { isCopied, say };
}
