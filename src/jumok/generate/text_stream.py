"""Text as it comes: tokens may be parts of a character, but what is given out is always whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@runtime_checkable
class Decoder(Protocol):
    def decode(self, ids: list[int]) -> str: ...


def stream_text(tokens: Iterable[int], tokenizer: Decoder, stops: Sequence[str] = ()) -> Iterator[str]:
    """Pieces of text for tokens, as they arrive. A character that is not complete yet waits for its rest; so does
    what may be the beginning of a stop string. Ends before a stop string."""
    ids: list[int] = []
    given = 0
    text = ""
    for token in tokens:
        ids.append(token)
        text = tokenizer.decode(ids)
        found = min((place for stop in stops if (place := text.find(stop, max(0, given - len(stop)))) >= 0), default=-1)
        if found >= 0:
            if found > given:
                yield text[given:found]
            return
        ready = len(text) - _held(text, stops)
        if ready > given:
            yield text[given:ready]
            given = ready
    whole = text.removesuffix(REPLACEMENT)  # nothing more comes: what waited is given, but no part of a character
    if len(whole) > given:
        yield whole[given:]


def _held(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end must wait."""
    unfinished = len(text) - len(text.rstrip(REPLACEMENT))
    for stop in stops:
        for size in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:size]):
                unfinished = max(unfinished, size)
                break
    return unfinished
