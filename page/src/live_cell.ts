/** Live models on any web page, without Python and without a network.
 *
 *     <link rel="stylesheet" href="jumok.css">
 *     <script src="jumok-live.js"></script>               sets the global `jumok`; works from disk too
 *     <div id="here"></div>
 *     <script>
 *       jumok.mountLive(document.getElementById("here"), pack, { model: "translator", text: "나는 매일 학교에 간다" });
 *     </script>
 *
 * `pack` is a model in base64, as `jumok.web.model_pack.pack_model` writes it. The element shows the whole page; its
 * height is 760 px unless the element sets the CSS variable --jumok-height. `mountLive` returns a function that removes it.
 *
 * A smaller cell asks the same session by itself, and draws what it likes:
 *
 *     const client = jumok.openLiveClient(pack, { model: "translator", text: "나는 매일 학교에 간다" });
 *     const { body: run } = await client.ask("run", { model: "translator", text, edits: [{ edit: "Ablate", layer: "decoder.1.cross", head: 2 }] });
 *     run.answer                                          // "I go to school every day"
 *     run.sites                                           // the attentions: site number, layer name, heads, queries, keys
 *     const { buffers } = await client.ask("values", { run: run.run, show: "edited", site, head, rows: [0, queries], columns: [0, keys] });
 *     new Float32Array(buffers[0].buffer)                 // exact weights [query, key], at most 4,096
 *
 * Asks, answers and edits are those of protocol.ts. The newest `run` replaces the earlier ones, whose asks then fail with
 * reason "outdated". `jumok.engine` has the forward pass itself (`openModel`, `forward`, `generate`, ...; engine/types.ts). */

import type { Hello } from "./protocol";
import { Client } from "./wire/client";
import { LIVE_ASKS } from "./wire/live";
import { openLive } from "./wire/live_carrier";

export type LiveOptions = Pick<Hello, "model" | "text"> & Partial<Pick<Hello, "edits" | "selection" | "language">>;

export function openLiveClient(pack: string, options: LiveOptions): Client {
  const hello: Hello = {
    version: "",
    carrier: "live",
    can: LIVE_ASKS,
    models: [{ name: options.model, title: options.model, reads: "text", checkpoints: [] }],
    edits: [],
    selection: null,
    language: null,
    max_text: 200_000,
    questions: null,
    ...options,
  };
  return new Client(openLive(pack, hello, startWorker));
}

const script = typeof document === "undefined" ? null : (document.currentScript as HTMLScriptElement | null);

/** Start a worker with the script of this page; null if it was loaded as a module, which does not know its text. */
export function startWorker(): Worker | null {
  if (!script) return null;
  return new Worker(script.src || URL.createObjectURL(new Blob([script.text], { type: "text/javascript" })));
}
