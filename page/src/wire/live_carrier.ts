/** The carrier of a page that computes by itself: the session runs in a worker where the browser starts one, so that the
 * page never waits for it; otherwise in the page, in slices. */

import type { Hello } from "../protocol";
import type { Buffers, Carrier } from "./client";
import { decodeBase64 } from "./gzip";
import { LiveSession } from "./live";
import { unpackModel } from "./model_pack";
import type { Ask } from "./run_answers";

type Send = (head: Record<string, any>, buffers: Buffers) => void;

/** What the page sends to the worker first: the models in base64, and what the page shows first. */
interface WorkerStart {
  packed: string; // separated by spaces, in the order of `hello.models`
  hello: Hello;
}

export function openLive(packed: string, hello: Hello, startWorker: () => Worker | null): Carrier {
  let send: Send = () => {};
  const receive: Send = (head, buffers) => send(head, buffers);
  const serve = openWorker(startWorker, { packed, hello }, receive).then((ask) => ask ?? openSession({ packed, hello }, receive));
  return {
    send: (ask) => void serve.then((handle) => handle(ask as Ask)),
    receive(onMessage) {
      send = onMessage;
    },
  };
}

/** Return a function that answers asks in a worker; null if none starts, as beside some pages that are opened from disk. */
function openWorker(startWorker: () => Worker | null, start: WorkerStart, send: Send): Promise<((ask: Ask) => void) | null> {
  return new Promise((resolve) => {
    let worker: Worker | null = null;
    try {
      worker = startWorker();
    } catch {
      // the page's origin, or its content security policy, forbids it
    }
    if (!worker) return resolve(null);
    worker.onerror = () => resolve(null);
    worker.onmessage = () => {
      worker.onmessage = ({ data: [head, buffers] }) => send(head, buffers);
      worker.postMessage(start);
      resolve((ask) => worker.postMessage(ask));
    };
  });
}

/** The global object inside a worker. */
interface WorkerScope {
  onmessage: ((event: MessageEvent) => void) | null;
  postMessage(message: unknown): void;
}

/** Answer the page from inside a worker: the first message is the model, the others are asks. */
export function serveWorker(scope: WorkerScope): void {
  scope.onmessage = ({ data }: MessageEvent<WorkerStart>) => {
    const handle = openSession(data, (head, buffers) => scope.postMessage([head, buffers]));
    scope.onmessage = (event: MessageEvent<Ask>) => handle(event.data);
  };
  scope.postMessage("ready");
}

function openSession({ packed, hello }: WorkerStart, send: Send): (ask: Ask) => void {
  const packs = packed.split(/\s+/).map((pack) => unpackModel(decodeBase64(pack)));
  const session = Promise.all(packs).then((unpacked) => new LiveSession(unpacked, hello, send));
  return (ask) =>
    void session.then(
      (opened) => opened.handle(ask),
      (error) => send({ failed: ask.id, message: String(error?.message ?? error), reason: "invalid" }, []),
    );
}
