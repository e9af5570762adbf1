"""Render a conversation with a model's chat template.

Templates come with models and are untrusted programs: they run in jinja2's sandbox, in a child process with limits on
time, memory and output.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from jumok.data.tokenizers import template_child
from jumok.errors import ArgumentError

START_SECONDS = 60.0  # a loaded machine may need long to start a process
# The child ends itself after MAX_SECONDS of processor time, which takes longer on a loaded machine.
WALL_SECONDS = 30.0 if hasattr(signal, "setitimer") else template_child.MAX_SECONDS


def render_chat(
    template: str, messages: Sequence[Mapping[str, Any]], tokens: Mapping[str, str], *, reply: bool = True
) -> str:
    """Render a conversation as text.

    Args:
        messages: The conversation, such as [{"role": "user", "content": "Hi"}].
        tokens: Special tokens by the names that templates use, such as "bos_token".
        reply: End the text where the model's answer begins.

    Raises:
        ArgumentError: If a message has no role or content, the template rejects the conversation or fails, or it
            exceeds a limit: 2 seconds of processor time, 256 MB of memory, 1 MB of text.
    """
    _check_messages(messages)
    # templates check whether tools and documents are none, so they must be defined
    variables = {
        "messages": [dict(message) for message in messages],
        "add_generation_prompt": reply,
        "tools": None,
        "documents": None,
        **tokens,
    }
    answer = _processes.setdefault(os.getpid(), _TemplateProcess()).request(template, variables)
    if "text" in answer:
        return answer["text"]
    if "rejected" in answer:
        raise ArgumentError(f"the chat template rejects this conversation: {answer['rejected']}")
    if "limit" in answer:
        raise ArgumentError(
            f"the chat template {answer['limit']}, the limit for a template; use the model without its template"
        )
    raise ArgumentError(f"the chat template fails with {answer['failed']}")


def _check_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    for index, message in enumerate(messages):
        if not {"role", "content"} <= message.keys():
            names = ", ".join(map(str, message))[:200]
            raise ArgumentError(f"message {index} needs the keys role and content; it has {names or 'no keys'}")
        try:
            json.dumps(dict(message))
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(
                f"message {index} must consist of text, numbers, lists and dictionaries: {str(error)[:200]}"
            ) from None


class _TemplateProcess:
    """A child process that renders templates. It is started by the first request, and again after a limit ended it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def request(self, template: str, variables: dict[str, Any]) -> dict[str, str]:
        """Return the child's reply, see `template_child.render`."""
        with self._lock:
            start = time.monotonic()
            try:
                answer = _talk(self._start(), {"template": template, "variables": variables}, WALL_SECONDS)
            except BaseException:  # an interrupted exchange leaves half a message in the pipes
                self.stop()
                raise
            if answer is not None and "limit" not in answer:
                return answer
            code = self.stop()
        if answer is not None:
            return answer
        if code == -getattr(signal, "SIGPROF", 0) or time.monotonic() - start > WALL_SECONDS:
            return {"limit": f"runs longer than {template_child.MAX_SECONDS:.0f} seconds"}
        return {"failed": f"a crash of its process (exit code {code})"}

    def _start(self) -> subprocess.Popen[bytes]:
        """Return the running child, or a new one."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.stop()
        folders = []
        for name in ("jinja2", "markupsafe"):
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:
                raise ArgumentError('chat templates need jinja2; install it with: pip install "jumok[chat]"')
            folders.append(str(Path(spec.origin).parent.parent))
        # -I and -S: no folder, variable or start-up file of the user changes what the child imports
        command = [sys.executable, "-I", "-S", template_child.__file__, *dict.fromkeys(folders)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise ArgumentError(f"the process that renders chat templates cannot be started: {error}") from None
        if _talk(self._process, None, START_SECONDS) is None:
            raise ArgumentError(
                f"the process that renders chat templates ended with code {self.stop()} before it was ready"
            )
        return self._process

    def stop(self) -> int | None:
        """End the child and return its exit code, or minus the signal that ended it; None if it was not running."""
        process, self._process = self._process, None
        if process is None:
            return None
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # the child is gone, and part of a request was not written
                cast(BinaryIO, stream).close()
        try:
            return process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _talk(process: subprocess.Popen[bytes], message: dict[str, Any] | None, seconds: float) -> dict[str, Any] | None:
    """Send a message, unless it is None, and return the reply; None if the child ended or took longer than that."""
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        if message is not None:
            template_child.write_message(cast(BinaryIO, process.stdin), message)
        return template_child.read_message(cast(BinaryIO, process.stdout))
    except (BrokenPipeError, ConnectionResetError):
        return None
    finally:
        timer.cancel()


# By process id: a forked process must not talk to the child of its parent.
_processes: dict[int, _TemplateProcess] = {}


@atexit.register
def _stop_process() -> None:
    process = _processes.get(os.getpid())
    if process is not None:
        process.stop()
