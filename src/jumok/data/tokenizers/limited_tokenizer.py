"""Tokenizers whose regular expressions are not known: texts are encoded in a child process with limits.

A backtracking search for ``a*a*a*b`` takes n^4 steps on a text of n letters a, and nothing in this process could stop
it. The patterns of published models, which have been analysed, are searched in this process, at full speed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from jumok.data.tokenizers.byte_level import LLAMA3_PATTERN, QWEN2_PATTERN
from jumok.data.tokenizers.limited_process import LimitedProcess
from jumok.errors import ArgumentError

# of processor time; ordinary tokenizers encode a million characters in a second
MIN_SECONDS = 2.0
CHARACTERS_PER_SECOND = 100_000
LOAD_SECONDS = 20.0  # a file of 50 MB takes 5 s

_PATTERN_FILE = Path(__file__).with_name("known_patterns.toml")
KNOWN_PATTERNS = {
    LLAMA3_PATTERN,
    QWEN2_PATTERN,
    *tomllib.loads(_PATTERN_FILE.read_text(encoding="utf-8"))["patterns"],
}


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
