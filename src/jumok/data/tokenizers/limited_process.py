"""Run untrusted templates and tokenizers in a child process with limits on time and memory; see `limited_child.py`.

A backtracking search for ``a*a*a*b`` takes n^4 steps on a text of n letters a, and nothing in this process could stop
it. The patterns of published models, which have been analysed, are searched in this process, at full speed.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import tokenizers

from jumok.data.tokenizers import limited_child
from jumok.data.tokenizers.byte_level import LLAMA3_PATTERN, QWEN2_PATTERN
from jumok.errors import ArgumentError

START_SECONDS = 60.0  # a loaded machine may need long to start a process
# The child ends itself after its limit of processor time, which takes longer on a loaded machine.
WALL_SECONDS = 30.0 if hasattr(signal, "setitimer") else 0.0
MODULES = {"jinja2": ("jinja2", "markupsafe"), "tokenizers": ("tokenizers",)}
# of processor time; ordinary tokenizers encode a million characters in a second
MIN_SECONDS = 2.0
CHARACTERS_PER_SECOND = 100_000
LOAD_SECONDS = 20.0  # a file of 50 MB takes 5 s
_PUBLISHED = tomllib.loads(Path(__file__).with_name("known_patterns.toml").read_text(encoding="utf-8"))
KNOWN_PATTERNS = {LLAMA3_PATTERN, QWEN2_PATTERN, *_PUBLISHED["patterns"]}


class LimitedProcess:
    """A child process that answers requests. It is started by the first one, and again after a limit ended it."""

    def __init__(
        self, kind: Literal["jinja2", "tokenizers"], purpose: str, setup: dict[str, Any] | None = None
    ) -> None:
        """``purpose`` is for error messages ("renders chat templates"); every new child gets the request ``setup``."""
        self._kind = kind
        self._purpose = purpose
        self._setup = setup
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._inherited: subprocess.Popen[bytes] | None = None
        _processes.add(self)

    def forget(self) -> None:
        """Give up the child without ending it: after a fork it is the parent's."""
        self._lock = threading.Lock()
        self._inherited, self._process = self._process, None

    def request(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Return the child's reply, see `limited_child.py`; ``seconds`` is the limit of its processor time."""
        message = {**message, "seconds": seconds}
        with self._lock:
            start = time.monotonic()
            try:
                process = self._process
                if process is None or process.poll() is not None:
                    process = self._start()
                    if self._setup is not None:
                        reply = _talk(process, self._setup, WALL_SECONDS + self._setup["seconds"])
                        if reply != {}:
                            self.stop()
                            return reply or {"limit": "needs too much time or memory"}
                reply = _talk(process, message, WALL_SECONDS + seconds)
            except BaseException:  # an interrupted exchange leaves half a message in the pipes
                self.stop()
                raise
            if reply is not None and "limit" not in reply:
                return reply
            code = self.stop()
        if reply is not None:
            return reply
        if code == -getattr(signal, "SIGPROF", 0) or time.monotonic() - start > WALL_SECONDS + seconds:
            return {"limit": f"runs longer than {seconds:.0f} seconds"}
        return {"failed": f"a crash of its process (exit code {code})"}

    def _start(self) -> subprocess.Popen[bytes]:
        self.stop()
        folders = []
        for name in MODULES[self._kind]:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:
                raise ArgumentError('chat templates need jinja2; install it with: pip install "jumok[chat]"')
            folders.append(str(Path(spec.origin).parent.parent))
        # -I and -S: no folder, variable or start-up file of the user changes what the child imports
        command = [sys.executable, "-I", "-S", limited_child.__file__, self._kind, *dict.fromkeys(folders)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise ArgumentError(f"the process that {self._purpose} cannot be started: {error}") from None
        if _talk(self._process, None, START_SECONDS) is None:
            raise ArgumentError(f"the process that {self._purpose} ended with code {self.stop()} before it was ready")
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

    def __del__(self) -> None:
        self.stop()


def _talk(process: subprocess.Popen[bytes], message: dict[str, Any] | None, seconds: float) -> dict[str, Any] | None:
    """Send a message, unless it is None, and return the reply; None if the child ended or took longer than that."""
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        if message is not None:
            limited_child.write_message(cast(BinaryIO, process.stdin), message)
        return limited_child.read_message(cast(BinaryIO, process.stdout))
    except (BrokenPipeError, ConnectionResetError):
        return None
    finally:
        timer.cancel()


_processes: weakref.WeakSet[LimitedProcess] = weakref.WeakSet()


def _forget_processes() -> None:
    for process in list(_processes):
        process.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_processes)


@atexit.register
def stop_processes() -> None:
    """End the children of this process."""
    for process in list(_processes):
        process.stop()


@dataclass(frozen=True)
class LimitedEncoding:
    """The token ids of a text, and the first and last character of each, as in the library's Encoding."""

    ids: list[int]
    offsets: list[list[int]]


class LimitedTokenizer:
    """A tokenizer of the library that encodes and decodes in a child process; it is otherwise the wrapped one."""

    def __init__(self, text: str) -> None:
        """Load a tokenizer.json: in the child first, as a pattern may also take forever to compile."""
        self._process = LimitedProcess("tokenizers", "runs tokenizers", {"load": text, "seconds": LOAD_SECONDS})
        self._request({"text": "", "add_special": False}, 0)
        self._inner = tokenizers.Tokenizer.from_str(text)

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # not loaded yet
            raise AttributeError(name)
        return getattr(self._inner, name)

    def encode(self, text: str, add_special_tokens: bool = True) -> LimitedEncoding:
        """Encode a text."""
        answer = self._request({"text": text, "add_special": add_special_tokens}, len(text))
        return LimitedEncoding(answer["ids"], answer["offsets"])

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decode token ids."""
        return str(self._request({"ids": list(ids), "skip_special": skip_special_tokens}, len(ids))["text"])

    def _request(self, message: dict[str, Any], length: int) -> dict[str, Any]:
        answer = self._process.request(message, MIN_SECONDS + length / CHARACTERS_PER_SECOND)
        if "limit" in answer:
            raise ArgumentError(f"a regular expression of this tokenizer {answer['limit']}, the limit")
        if "failed" in answer:
            raise ArgumentError(answer["failed"])
        return answer
