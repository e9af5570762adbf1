"""Decide which examples are held out: a pure function of the example, independent of its position in a file."""

from __future__ import annotations

import hashlib
from typing import Literal

Split = Literal["train", "held-out"]
HELD_OUT_SHARE = 0.1


def normalize_text(text: str) -> str:
    """Return a text in lower case with single spaces, for comparison with other texts."""
    return " ".join(text.casefold().split())


def hash_to_fraction(key: str) -> float:
    """Return a number from 0 to 1 that depends only on the text: the first 48 bits of its SHA-256."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big") / 2**48


def assign_split(key: str, share: float = HELD_OUT_SHARE) -> Split:
    """Return the split of an example. Case and repeated spaces are ignored.

    >>> assign_split("Turn on the light"), assign_split("turn on  the LIGHT")
    ('train', 'train')
    """
    return "held-out" if hash_to_fraction(normalize_text(key)) < share else "train"
