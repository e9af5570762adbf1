"""A notebook without a browser: a real kernel, cells, and the messages that a widget's page sends and receives."""

from __future__ import annotations

import time
from typing import Any

from jupyter_client import BlockingKernelClient, KernelManager

SECONDS = 120  # how long a message may take on a busy machine


class Kernel:
    """A running kernel, and the comms of its widgets.

    Attributes:
        received: The custom messages of widgets, in order: head and buffers.
        replies: The replies to cells that have ended, by the id of the request.
    """

    def __init__(self) -> None:
        self._manager = KernelManager(kernel_name="python3")
        self._manager.start_kernel()
        self._client: BlockingKernelClient = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=SECONDS)
        self.received: list[tuple[dict[str, Any], list[bytes]]] = []
        self.replies: dict[str, dict[str, Any]] = {}
        self.comms: dict[str, dict[str, Any]] = {}
        self.printed = ""
        self.errors: list[str] = []

    def close(self) -> None:
        """Stop the kernel."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def begin(self, code: str) -> str:
        """Send a cell, and return the id of the request."""
        return str(self._client.execute(code))

    def run(self, code: str) -> str:
        """Run a cell, and return what it printed."""
        self.printed = ""
        request = self.begin(code)
        self.wait(lambda: request in self.replies)
        reply = self.replies[request]
        assert reply["status"] == "ok", "\n".join(reply.get("traceback", []))
        self.drain()
        return self.printed.strip()

    def create_subshell(self) -> str:
        """Ask for a thread that handles messages while a cell runs, as JupyterLab does for widgets."""
        message = self._client.session.msg("create_subshell_request")
        self._client.control_channel.send(message)
        reply = self._client.control_channel.get_msg(timeout=SECONDS)
        assert reply["content"]["status"] == "ok", reply
        return str(reply["content"]["subshell_id"])

    def send(self, comm_id: str, ask: dict[str, Any], subshell: str | None = None) -> None:
        """Send a custom message of a widget's page."""
        content = {"comm_id": comm_id, "data": {"method": "custom", "content": ask}}
        message = self._client.session.msg("comm_msg", content)
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self._client.shell_channel.send(message)

    def find_answer(self, ask_id: int) -> tuple[dict[str, Any], list[bytes]] | None:
        """Return the answer to an ask, if it has arrived; a failure counts as an answer."""
        for head, buffers in self.received:
            if ask_id in (head.get("answer"), head.get("failed")):
                return head, buffers
        return None

    def ask(
        self, comm_id: str, ask_id: int, kind: str, subshell: str | None = None, **fields: Any
    ) -> tuple[Any, list[bytes]]:
        """Send an ask, and wait for its answer."""
        self.send(comm_id, {"ask": kind, "id": ask_id, **fields}, subshell)
        self.wait(lambda: self.find_answer(ask_id) is not None)
        answer = self.find_answer(ask_id)
        assert answer is not None and "answer" in answer[0], answer
        return answer[0]["body"], answer[1]

    def wait(self, is_finished: Any) -> None:
        """Read messages until a condition holds."""
        deadline = time.monotonic() + SECONDS
        while not is_finished():
            assert time.monotonic() < deadline, ([list(head) for head, _ in self.received], self.errors)
            self.drain()
            time.sleep(0.01)

    def drain(self) -> None:
        """Read the messages that have arrived."""
        while self._client.shell_channel.msg_ready():
            reply = self._client.shell_channel.get_msg(timeout=SECONDS)
            self.replies[reply["parent_header"].get("msg_id", "")] = reply["content"]
        while self._client.iopub_channel.msg_ready():
            message = self._client.iopub_channel.get_msg(timeout=SECONDS)
            content, kind = message["content"], message["msg_type"]
            if kind == "comm_open":
                self.comms[content["comm_id"]] = content["data"]["state"]
            elif kind == "comm_msg" and content["data"].get("method") == "custom":
                self.received.append((content["data"]["content"], [bytes(part) for part in message["buffers"]]))
            elif kind == "stream":
                self.printed += content["text"]
            elif kind == "error":
                self.errors += content["traceback"]
