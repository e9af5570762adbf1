/** The carrier of a notebook: the messages of an anywidget model. */

import type { Carrier } from "./client";

/** The part of an anywidget model that is used here. */
export interface WidgetModel {
  get(trait: "height"): number;
  send(content: unknown): void;
  on(event: "msg:custom", callback: (content: any, buffers: DataView[]) => void): void;
  off(event: "msg:custom", callback: (content: any, buffers: DataView[]) => void): void;
}

export function useWidgetModel(model: WidgetModel): { carrier: Carrier; detach(): void } {
  let listener: (content: any, buffers: DataView[]) => void = () => {};
  return {
    carrier: {
      send: (ask) => model.send(ask),
      receive(onMessage) {
        listener = (content, buffers) =>
          onMessage(
            content,
            buffers.map((view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength)),
          );
        model.on("msg:custom", listener);
      },
    },
    detach: () => model.off("msg:custom", listener),
  };
}
