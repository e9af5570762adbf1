/** The carrier of a file with a model: it computes by itself, and saves itself. */

import type { Edit, Hello } from "../protocol";
import type { Buffers, Carrier } from "./client";
import { LIVE_ASKS } from "./live";
import { openLive } from "./live_carrier";

export function openLiveFile(document: Document, startWorker: () => Worker | null): Carrier {
  const hello: Hello = { ...JSON.parse(document.getElementById("jumok-index")!.textContent!), can: [...LIVE_ASKS, "save"] };
  const live = openLive(document.getElementById("jumok-blob")!.textContent!.trim(), hello, startWorker);
  let shown: Pick<Hello, "text" | "edits"> = hello;
  let send: (head: Record<string, any>, buffers: Buffers) => void = () => {};
  return {
    send(ask) {
      if (ask.ask === "run") shown = { text: (ask.text as string | null) ?? hello.text, edits: (ask.edits as Edit[] | null) ?? [] };
      if (ask.ask !== "save") return live.send(ask);
      const { selection, language } = ask as Pick<Hello, "selection" | "language">;
      const html = writeFile(document, { ...hello, ...shown, selection, language });
      send({ answer: ask.id, body: { name: `jumok-${hello.model.replace(/[^\p{L}\p{N}_.-]/gu, "-").replace(/^[-.]+|[-.]+$/g, "").slice(-40)}.html` } }, [new TextEncoder().encode(html)]);
    },
    receive(onMessage, onClose) {
      send = onMessage;
      live.receive(onMessage, onClose);
    },
  };
}

/** Return this document as a file that begins with other settings. */
function writeFile(document: Document, hello: Hello): string {
  const copy = document.documentElement.cloneNode(true) as HTMLElement;
  copy.querySelector("#jumok")!.replaceChildren();
  // inside a script element, "<" could begin its end
  copy.querySelector("#jumok-index")!.textContent = JSON.stringify(hello).replaceAll("<", "\\u003c");
  return `<!doctype html>\n${copy.outerHTML}\n`;
}
