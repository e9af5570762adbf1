/** Ask a session and receive its answers, whatever carries the messages. */

import type { Asks, Failure, Language, Progress, State } from "../protocol";

export type Buffers = Uint8Array[];

/** Carries messages between the page and a session: a WebSocket, a notebook widget, or a saved file. */
export interface Carrier {
  send(ask: Record<string, unknown>): void;
  /** Called once, before the first `send`. */
  receive(onMessage: (head: Record<string, any>, buffers: Buffers) => void, onClose: (reason: string) => void): void;
}

export interface Reply<Name extends keyof Asks> {
  body: Asks[Name]["body"];
  buffers: Buffers;
}

/** An ask that the session did not answer. */
export class AskError extends Error {
  constructor(
    message: string,
    readonly reason: Failure["reason"] | "closed",
  ) {
    super(message);
  }

  /** Whether a newer ask replaced this one, so that the user need not hear of it. */
  get isSuperseded(): boolean {
    return this.reason === "outdated" || this.reason === "cancelled";
  }
}

interface Pending {
  resolve(reply: Reply<any>): void;
  reject(error: AskError): void;
  onProgress?: (report: Progress, buffers: Buffers) => void;
}

export class Client {
  private pending = new Map<number, Pending>();
  private lastId = 0;
  private closedBecause: string | null = null;

  /** Of the sentences in the answers. */
  language: Language | null = null;

  /** Called with what the session sends without an ask. */
  onState: (state: State) => void = () => {};
  onClose: (reason: string) => void = () => {};

  constructor(private carrier: Carrier) {
    carrier.receive(
      (head, buffers) => this.dispatch(head, buffers),
      (reason) => this.close(reason),
    );
  }

  /** Send an ask. The id of the ask is passed to `onId`, for `cancel`. */
  ask<Name extends keyof Asks>(
    name: Name,
    fields: Asks[Name]["fields"],
    onProgress?: (report: Progress, buffers: Buffers) => void,
    onId?: (id: number) => void,
  ): Promise<Reply<Name>> {
    const id = ++this.lastId;
    onId?.(id);
    return new Promise((resolve, reject) => {
      if (this.closedBecause !== null) {
        reject(new AskError(this.closedBecause, "closed"));
        return;
      }
      this.pending.set(id, { resolve, reject, onProgress });
      this.carrier.send({ ask: name, id, language: this.language, ...fields });
    });
  }

  cancel(id: number): void {
    this.ask("cancel", { cancel: id }).catch(() => {});
  }

  private dispatch(head: Record<string, any>, buffers: Buffers): void {
    if (head.state) {
      this.onState(head.state);
      return;
    }
    const id: number = head.answer ?? head.failed ?? head.progress;
    const pending = this.pending.get(id);
    if (!pending) return;
    if (head.progress !== undefined) {
      pending.onProgress?.(head as Progress, buffers);
      return;
    }
    this.pending.delete(id);
    if (head.answer !== undefined) pending.resolve({ body: head.body, buffers });
    else pending.reject(new AskError(head.message, head.reason));
  }

  private close(reason: string): void {
    if (this.closedBecause !== null) return;
    this.closedBecause = reason;
    for (const { reject } of this.pending.values()) reject(new AskError(reason, "closed"));
    this.pending.clear();
    this.onClose(reason);
  }
}

/** Split the bytes behind a head into buffers of the given lengths. */
export function splitBuffers(bytes: Uint8Array, lengths: number[]): Buffers {
  let begin = 0;
  return lengths.map((length) => bytes.subarray(begin, (begin += length)));
}

/** View a buffer as float32; it is copied if it is not aligned. */
export function asFloats(buffer: Uint8Array): Float32Array {
  const aligned = buffer.byteOffset % 4 === 0 ? buffer : buffer.slice();
  return new Float32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 4);
}
