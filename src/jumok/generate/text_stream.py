"""Decode a stream of tokens into a stream of text that never splits a character."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@runtime_checkable
class TokenDecoder(Protocol):
    """Converts token ids into text; every tokenizer does."""

    def decode(self, ids: list[int]) -> str:
        """Return the text of these token ids."""
        ...


def stream_text(tokens: Iterable[int], tokenizer: TokenDecoder, stops: Sequence[str] = ()) -> Iterator[str]:
    """Yield the text of tokens as they arrive.

    An incomplete character is held back until its remaining bytes arrive, and so is text that may be the beginning of
    a stop string.

    Args:
        stops: Strings that end the text. The text ends before the first of them.
    """
    token_ids: list[int] = []
    text = ""
    sent = 0  # characters yielded so far

    for token in tokens:
        token_ids.append(token)
        text = tokenizer.decode(token_ids)

        stop_index = _find_stop(text, stops, sent)
        if stop_index is not None:
            if stop_index > sent:
                yield text[sent:stop_index]
            return

        ready = len(text) - _count_held_back(text, stops)
        if ready > sent:
            yield text[sent:ready]
            sent = ready

    # No more tokens: yield the text held back, but not an incomplete character.
    complete = text.removesuffix(REPLACEMENT)
    if len(complete) > sent:
        yield complete[sent:]


def _find_stop(text: str, stops: Sequence[str], sent: int) -> int | None:
    """Return the index where the first stop string begins; None if the text contains none."""
    indices = [text.find(stop, max(0, sent - len(stop))) for stop in stops]
    return min((index for index in indices if index >= 0), default=None)


def _count_held_back(text: str, stops: Sequence[str]) -> int:
    """Return the number of characters at the end that may still change or belong to a stop string."""
    count = len(text) - len(text.rstrip(REPLACEMENT))
    for stop in stops:
        for size in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:size]):
                count = max(count, size)
                break
    return count
