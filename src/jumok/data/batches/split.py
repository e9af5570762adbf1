"""Which examples are held out: a pure function of the example, never of the order that a file happens to have."""

from __future__ import annotations

import hashlib
from typing import Literal

Split = Literal["train", "held-out"]
SHARE = 0.1  # of the examples, held out


def normalize_text(text: str) -> str:
    """A text as it is compared with others: small letters, single spaces."""
    return " ".join(text.casefold().split())


def hash_to_fraction(key: str) -> float:
    """A number from 0 to 1 that belongs to this text for ever: from its SHA-256."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big") / 2**48


def assign_split(key: str, share: float = SHARE) -> Split:
    """On which side an example stands that is known by this text. Equal but for spaces and capitals is equal.

    >>> side_of("Turn on the light"), side_of("turn on  the LIGHT")
    ('train', 'train')
    """
    return "held-out" if hash_to_fraction(normalize_text(key)) < share else "train"
