"""Align the tokens of two texts, so that a position of one can be patched from its partner in the other."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

MAX_COMPARED = 2**22  # pairs of tokens, after what both texts begin and end with


def align_tokens(clean: Sequence[object], corrupted: Sequence[object]) -> list[int | None]:
    """Return for each position of the corrupted text its partner in the clean one; None where it has none.

    Texts of the same length are aligned position by position. Otherwise equal tokens are paired in their order; the
    tokens between them are paired from the last one on, because the last token of a word is where a causal model has
    read all of it.

    >>> align_tokens(["Tom", "saw", "Ann"], ["Tom", "met", "Ann"])
    [0, 1, 2]
    >>> align_tokens(["Tom", "saw", "Ann"], ["Ma", "ry", "saw", "Ann", "!"])
    [None, 0, 1, 2, None]
    """
    if len(clean) == len(corrupted):
        return list(range(len(clean)))
    shortest = min(len(clean), len(corrupted))
    first = next((index for index in range(shortest) if clean[index] != corrupted[index]), shortest)
    last = next((index for index in range(shortest - first) if clean[-1 - index] != corrupted[-1 - index]), None)
    last = shortest - first if last is None else last
    middle, corrupted_middle = clean[first : len(clean) - last], corrupted[first : len(corrupted) - last]

    partners: list[int | None] = [*range(first), *[None] * len(corrupted_middle)]
    blocks = [(len(middle), len(corrupted_middle), 0)]
    if len(middle) * len(corrupted_middle) <= MAX_COMPARED:
        matcher = SequenceMatcher(None, middle, corrupted_middle, autojunk=False)
        blocks = [(block.a, block.b, block.size) for block in matcher.get_matching_blocks()]  # the last one is empty
    gap, corrupted_gap = 0, 0  # where the tokens between two blocks begin
    for begin, corrupted_begin, size in blocks:
        for index in range(1, 1 + min(begin - gap, corrupted_begin - corrupted_gap)):
            partners[first + corrupted_begin - index] = first + begin - index
        for index in range(size):
            partners[first + corrupted_begin + index] = first + begin + index
        gap, corrupted_gap = begin + size, corrupted_begin + size
    return partners + list(range(len(clean) - last, len(clean)))
