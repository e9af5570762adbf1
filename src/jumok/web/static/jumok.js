// replaced by the bundle that is built from page/
const root = document.getElementById("jumok");
const token = new URLSearchParams(location.hash.slice(1)).get("token");
const socket = new WebSocket(location.origin.replace("http", "ws") + "/session");
socket.binaryType = "arraybuffer";
socket.onopen = () => {
  socket.send(JSON.stringify({ token }));
  socket.send(JSON.stringify({ id: 1, ask: "hello", language: "en" }));
};
socket.onmessage = (event) => {
  const length = new DataView(event.data).getUint32(0, true);
  root.textContent = new TextDecoder().decode(new Uint8Array(event.data, 4, length));
};
socket.onclose = (event) => { root.textContent += ` (closed: ${event.code} ${event.reason})`; };
