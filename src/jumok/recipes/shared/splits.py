"""Three parts of a set of examples: to learn from, to choose the best checkpoint by, and held out for the report.

What a checkpoint was chosen by cannot tell how good it is: of many tries the luckiest wins. So the report is about
examples that neither taught nor chose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from jumok.data.batches.split import hash_to_fraction
from jumok.errors import ArgumentError


def split_by_key(keys: Sequence[str], held_out: float, choosing: float) -> tuple[list[int], list[int], list[int]]:
    """Which examples, counted from 0, are learned from, choose, and are held out. Equal keys stay together, and each
    key's part follows from the key; where a share is so small that it is empty, it takes the nearest key.

    >>> parted(["a", "b", "b", "c", "d"], 0.2, 0.2)
    ([0], [1, 2], [3, 4])
    """
    held = _aside(set(keys), held_out, "")
    chosen = _aside(set(keys) - held, choosing, "choosing ")
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for place, key in enumerate(keys):
        parts[2 if key in held else 1 if key in chosen else 0].append(place)
    if not parts[0]:
        raise ArgumentError(
            f"there are {len(set(keys))} different examples: some choose the best checkpoint, some are held out, and "
            "none is left to learn from; give more"
        )
    return parts


def _aside(keys: set[str], share: float, word: str) -> set[str]:
    if not share or not keys:
        return set()
    far = {key: hash_to_fraction(word + key) for key in keys}
    return {key for key in keys if far[key] < share} or {min(keys, key=lambda key: far[key])}


def fingerprint(found: Iterable[str]) -> str:
    """One short text that stands for all of these, in their order."""
    return hashlib.sha256("\0".join(found).encode()).hexdigest()[:16]
