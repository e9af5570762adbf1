"""The form of the messages between the page and a session: a JSON head and binary buffers. page/src/protocol.ts lists
them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from jumok.errors import ArgumentError

MAX_ASK_BYTES = 1_000_000
HEAD_LENGTH_BYTES = 4  # of the length that begins a frame

AskId = int | str | None


@dataclass(frozen=True)
class Message:
    """A JSON head and its binary buffers.

    Attributes:
        head: The head, which can be written as JSON; it contains no NaN and no infinity.
        buffers: The bytes that follow the head.
    """

    head: dict[str, Any]
    buffers: tuple[bytes, ...] = ()

    def to_frame(self) -> bytes:
        """Return the message as one WebSocket frame: the length of the head (4 bytes, little-endian), head, buffers.

        >>> Message({"answer": 1}, (b"ab",)).to_frame()
        b'\\x0c\\x00\\x00\\x00{"answer":1}ab'
        """
        text = json.dumps(self.head, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        head = text.encode("utf-8", "replace")  # a label may hold a lone surrogate, which UTF-8 cannot encode
        return b"".join([len(head).to_bytes(HEAD_LENGTH_BYTES, "little"), head, *self.buffers])


def build_answer(ask_id: AskId, body: Any, buffers: tuple[bytes, ...] = ()) -> Message:
    """Return the answer to an ask.

    Args:
        body: The answer, as JSON; numbers that are not finite become null.
    """
    return Message(
        {"answer": ask_id, "body": replace_infinite(body), "buffers": [len(buffer) for buffer in buffers]}, buffers
    )


def replace_infinite(content: Any) -> Any:
    """Return JSON content with None in place of NaN and infinity, which JSON cannot express.

    Args:
        content: Dictionaries, lists, texts and numbers.

    >>> replace_infinite({"a": [1.5, float("nan")], "b": (float("inf"), "c")})
    {'a': [1.5, None], 'b': [None, 'c']}
    """
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {name: replace_infinite(part) for name, part in content.items()}
    if isinstance(content, list | tuple):
        return [replace_infinite(part) for part in content]
    return content


def build_failure(ask_id: AskId, message: str, reason: str) -> Message:
    """Return the message that an ask failed.

    Args:
        message: A sentence for the user.
        reason: "busy", "cancelled", "outdated", "invalid" or "internal".
    """
    return Message({"failed": ask_id, "message": message, "reason": reason})


def build_progress(ask_id: AskId, done: int, total: int, stage: str) -> Message:
    """Return the message that an ask makes progress.

    Args:
        total: The number of all steps; 0 if it is not known.
        stage: What is done now, such as "loading".
    """
    return Message({"progress": ask_id, "done": done, "total": total, "stage": stage})


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
        ask = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ArgumentError("the message is nested too deeply") from None
    except ValueError:  # also bytes that are not UTF-8, and numbers of thousands of digits
        raise ArgumentError("the message is not JSON") from None
    if not isinstance(ask, dict):
        raise ArgumentError("a message must be a JSON object with the fields ask and id")
    return ask


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")
