"""Bytes that come again: every row is a pure function of its name, and every piece in it is drawn anew."""

from __future__ import annotations

import random
from collections.abc import Iterator

BYTES = 256
LETTERS = "abcdefghijklmnopqrstuvwxyz"
GAPS = (" ",) * 27 + (", ", ". ", "\n")  # what stands between words
SHARES = {"bytes": 6, "words": 3, "hangul": 3, "text": 6}  # how often a piece is of that kind
Row = tuple[list[int], int]  # the bytes, and from which of them on they are to be learned


def rows(name: str, count: int, size: int, plain: bool, own: bytes = b"") -> Iterator[Row]:
    """``count`` rows of ``size`` bytes. plain: random bytes with one period, to be learned from the second time on;
    else pieces of any kind that come two to four times, some with others between, all of it to be learned."""
    chance = random.Random(f"repeats {name}")
    for _ in range(count):
        yield _periodic(chance, size) if plain else (_repeated(chance, size, own), 0)


def piece(name: str, kind: str, size: int, own: bytes = b"") -> list[int]:
    """``size`` bytes of a kind, by themselves."""
    return _piece(random.Random(f"piece {name}"), kind, size, own)


def _periodic(chance: random.Random, size: int) -> Row:
    period = chance.randint(max(2, size // 8), size // 2)
    once = chance.choices(range(BYTES), k=period)
    return (once * (size // period + 1))[:size], period


def _repeated(chance: random.Random, size: int, own: bytes) -> list[int]:
    made: list[int] = []
    while len(made) < size:
        # short pieces as often as long ones, in the sense of doubling
        longest = max(3, int(2 ** chance.uniform(2, (size // 2).bit_length())))
        once = _any(chance, min(longest, size // 2), own)
        between = chance.randint(1, 12) if chance.random() < 0.4 else 0
        for _ in range(chance.randint(2, 4)):
            made += once
            made += _any(chance, between, own) if between else []
    return made[:size]


def _any(chance: random.Random, size: int, own: bytes) -> list[int]:
    kinds = [kind for kind in SHARES if kind != "text" or len(own) > size]
    return _piece(chance, chance.choices(kinds, [SHARES[kind] for kind in kinds])[0], size, own)


def _piece(chance: random.Random, kind: str, size: int, own: bytes) -> list[int]:
    if kind == "bytes":  # of all kinds, or of few, which come again by chance too: then more than one byte must fit
        kinds = BYTES if chance.random() < 0.5 else int(2 ** chance.uniform(3, 8))
        return chance.choices(chance.sample(range(BYTES), kinds), k=size)
    if kind == "text":
        first = chance.randrange(len(own) - size + 1)
        return list(own[first : first + size])
    made = b""
    while len(made) < size:
        made += (_word(chance, kind) + chance.choice(GAPS)).encode()
    return list(made[:size])


def _word(chance: random.Random, kind: str) -> str:
    if kind == "hangul":
        return "".join(chr(chance.randrange(0xAC00, 0xD7A4)) for _ in range(chance.randint(1, 4)))
    word = "".join(chance.choices(LETTERS, k=chance.randint(2, 9)))
    return word.capitalize() if chance.random() < 0.2 else word
