/** The carrier of the local server: one WebSocket. The token of the address is its first message. */

import { type Carrier, splitBuffers } from "./client";

export function openSocket(token: string): Carrier {
  const address = new URL("/session", location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  address.hash = "";
  const socket = new WebSocket(address);
  socket.binaryType = "arraybuffer";
  const waiting: string[] = [JSON.stringify({ token })];
  const decoder = new TextDecoder();

  return {
    send(ask) {
      const text = JSON.stringify(ask);
      if (socket.readyState === WebSocket.OPEN) socket.send(text);
      else if (socket.readyState === WebSocket.CONNECTING) waiting.push(text);
    },
    receive(onMessage, onClose) {
      socket.onopen = () => {
        for (const text of waiting.splice(0)) socket.send(text);
      };
      socket.onmessage = ({ data }) => {
        const bytes = new Uint8Array(data as ArrayBuffer);
        const headLength = new DataView(bytes.buffer).getUint32(0, true);
        const head = JSON.parse(decoder.decode(bytes.subarray(4, 4 + headLength)));
        onMessage(head, splitBuffers(bytes.subarray(4 + headLength), head.buffers ?? []));
      };
      socket.onclose = ({ code }) => onClose(code === 4401 ? "token" : "gone");
    },
  };
}
