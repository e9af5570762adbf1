"""The form of the messages between the page and a session: a JSON head and binary buffers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from jumok.errors import ArgumentError

from . import messages

MAX_ASK_BYTES = 1_000_000
HEAD_LENGTH_BYTES = 4  # of the length that begins a frame


@dataclass(frozen=True)
class Message:
    """A JSON head and the bytes that follow it."""

    head: dict[str, Any]
    buffers: tuple[bytes, ...] = ()

    def to_frame(self) -> bytes:
        """Return the message as one WebSocket frame: the length of the head (4 bytes, little-endian), head, buffers.

        >>> Message({"answer": 1}, (b"ab",)).to_frame()
        b'\\x0c\\x00\\x00\\x00{"answer":1}ab'
        """
        head = encode_json(self.head)
        return b"".join([len(head).to_bytes(HEAD_LENGTH_BYTES, "little"), head, *self.buffers])


def encode_json(content: Any) -> bytes:
    """Return structures, dictionaries and lists as JSON, with null for numbers that are not finite.

    >>> encode_json({"a": [1.5, float("nan")], "b": "half \\ud83d"})
    b'{"a":[1.5,null],"b":"half ?"}'
    """
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:  # a label may hold a lone surrogate, which UTF-8 cannot encode
        return msgspec.json.encode(_replace_surrogates(msgspec.to_builtins(content)))


def _replace_surrogates(content: Any) -> Any:
    if isinstance(content, str):
        return content.encode("utf-8", "replace").decode()
    if isinstance(content, dict):
        return {name: _replace_surrogates(part) for name, part in content.items()}
    if isinstance(content, list | tuple):
        return [_replace_surrogates(part) for part in content]
    return content


def build_answer(ask_id: Any, body: Any, buffers: tuple[bytes, ...] = ()) -> Message:
    """Return the answer to an ask; its body becomes plain JSON, which a notebook can send too."""
    plain = msgspec.json.decode(encode_json(body))
    return Message({"answer": ask_id, "body": plain, "buffers": [len(buffer) for buffer in buffers]}, buffers)


def build_failure(ask_id: Any, message: str, reason: messages.Reason) -> Message:
    """Return the message that an ask failed, with a sentence for the user."""
    return Message(msgspec.to_builtins(messages.Failure(ask_id, message, reason)))


def build_progress(ask_id: Any, done: int, total: int, stage: str) -> Message:
    """Return the message that an ask makes progress."""
    return Message(msgspec.to_builtins(messages.Progress(ask_id, done, total, stage)))


def parse_ask(text: str | bytes) -> dict[str, Any]:
    """Parse the text of an ask, which is not trusted.

    Raises:
        ArgumentError: If it is too long, or not a JSON object.

    >>> parse_ask('{"ask": "hello", "id": 1}')
    {'ask': 'hello', 'id': 1}
    """
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
    if size > MAX_ASK_BYTES:
        raise ArgumentError(f"the message has {size:,} bytes; the limit is {MAX_ASK_BYTES:,}")
    try:
        # not msgspec: a lone surrogate in a text is a mistake of one ask, not of the connection
        fields = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ArgumentError("the message is nested too deeply") from None
    except ValueError:  # also bytes that are not UTF-8, and numbers of thousands of digits
        raise ArgumentError("the message is not JSON") from None
    if not isinstance(fields, dict):
        raise ArgumentError("a message must be a JSON object with the fields ask and id")
    return fields


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")
