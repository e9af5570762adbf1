"""Generate toy tasks: small rules to learn, as pure functions of a seed, without overlap between splits.

Each function returns (source, target) pairs of integers. If all examples can be enumerated (sort, addition), an exact
share of them is held out; otherwise a hash of the example decides its split.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Literal

from jumok.data.batches.split import Split, assign_split, hash_to_fraction
from jumok.errors import ArgumentError

Numbers = list[int]
Example = tuple[Numbers, Numbers]
Part = Literal["train", "dev", "test"]


def make_plus_two_examples(count: int, split: Split = "train", seed: int = 0, length: int = 5) -> list[Example]:
    """Make examples whose target is the source plus 2: [10, 20, 30, 40, 50] -> [12, 22, 32, 42, 52]."""
    _require_positive(count, length)
    generator = random.Random(f"plus two {seed} {split}")

    def draw() -> Numbers:
        return [generator.randint(0, 100) for _ in range(length)]

    sources = _take_matching(draw, count, lambda source: assign_split(_make_key(source)) == split)
    return [(source, [number + 2 for number in source]) for source in sources]


def make_copy_examples(part: Part = "train", count: int | None = None, seed: int = 0) -> list[Example]:
    """Make examples whose target is the source; sizes and lengths as in `make_reverse_examples`."""
    return [(source, list(source)) for source in _sample_sequences(part, count, seed)]


def make_reverse_examples(part: Part = "train", count: int | None = None, seed: int = 0) -> list[Example]:
    """Make examples whose target is the reversed source: the task of JoeyNMT (Kreutzer et al. 2019).

    By default 50,000 examples of 1 to 25 integers from 0 to 49 for training, and 1,000 each of 1 to 30 integers for
    development and test. No example is in two parts.
    """
    return [(source, source[::-1]) for source in _sample_sequences(part, count, seed)]


def _sample_sequences(part: Part, count: int | None, seed: int) -> list[Numbers]:
    longest, default_count = (25, 50_000) if part == "train" else (30, 1_000)
    required = default_count if count is None else count
    _require_positive(required)
    generator = random.Random(f"sequences {seed} {part}")

    def draw() -> Numbers:
        return [generator.randrange(50) for _ in range(generator.randint(1, longest))]

    def is_in_part(source: Numbers) -> bool:
        fraction = hash_to_fraction(_make_key(source))
        return part == ("dev" if fraction < 0.1 else "test" if fraction < 0.2 else "train")

    return _take_matching(draw, required, is_in_part, allow_duplicates=True)


def make_sort_examples(split: Split = "train", seed: int = 0, length: int = 6, kinds: int = 3) -> list[Example]:
    """Make examples whose target is the sorted source (minGPT's task); a quarter of all rows is held out."""
    _require_positive(length, kinds)
    if kinds**length > 10**6:
        raise ArgumentError(
            f"{kinds} kinds of digits and a length of {length} give {kinds**length:,} rows; the limit is a million"
        )
    rows = [list(row) for row in product(range(kinds), repeat=length)]
    return [(row, sorted(row)) for row in _select_split(rows, len(rows) // 4, split, f"sort {seed}")]


def make_addition_examples(
    split: Split = "train", seed: int = 0, digits: int = 2, backwards: bool = True
) -> list[Example]:
    """Make all sums of two numbers, digit by digit (minGPT's task); a tenth is held out.

    85 + 50 = 135 is [8, 5, 5, 0] -> [5, 3, 1], in the order of carries, or [1, 3, 5] if not ``backwards``.
    """
    if not 1 <= digits <= 3:
        raise ArgumentError(f"digits must be 1, 2 or 3, not {digits}")
    pairs = [[a, b] for a in range(10**digits) for b in range(10**digits)]
    examples: list[Example] = []
    for a, b in _select_split(pairs, len(pairs) // 10, split, f"add {seed}"):
        source = _split_digits(a, digits) + _split_digits(b, digits)
        total = _split_digits(a + b, digits + 1)
        examples.append((source, total[::-1] if backwards else total))
    return examples


def make_repetition_examples(
    count: int, length: int, split: Split = "train", seed: int = 0, kinds: int = 256
) -> list[Example]:
    """Make random sequences that repeat: the target can be predicted from the source (Olsson et al. 2022)."""
    _require_positive(count, length, kinds)
    generator = random.Random(f"induction {seed} {split}")

    def draw() -> Numbers:
        return [generator.randrange(kinds) for _ in range(length)]

    sources = _take_matching(draw, count, lambda source: assign_split(_make_key(source)) == split)
    return [(source, list(source)) for source in sources]


def _split_digits(number: int, digits: int) -> Numbers:
    return [int(digit) for digit in f"{number:0{digits}}"]


def _make_key(numbers: Numbers) -> str:
    return " ".join(map(str, numbers))


def _select_split(rows: list[Numbers], held_out: int, split: Split, salt: str) -> list[Numbers]:
    """Hold out exactly `held_out` rows, by the order of their hashes."""
    ordered = sorted(rows, key=lambda row: hash_to_fraction(f"{salt}: {_make_key(row)}"))
    return ordered[:held_out] if split == "held-out" else ordered[held_out:]


def _take_matching(
    draw: Callable[[], Numbers], count: int, matches: Callable[[Numbers], bool], allow_duplicates: bool = False
) -> list[Numbers]:
    """Return the first `count` matching sources; raise ArgumentError after 100 times as many draws."""
    selected: list[Numbers] = []
    used: set[tuple[int, ...]] = set()
    for _ in range(100 * count + 10_001):
        source = draw()
        if matches(source) and (allow_duplicates or tuple(source) not in used):
            used.add(tuple(source))
            selected.append(source)
            if len(selected) == count:
                return selected
    raise ArgumentError(f"there are fewer than {count} different examples with these settings")


def _require_positive(*numbers: int) -> None:
    if min(numbers) < 1:
        raise ArgumentError(f"counts, lengths and kinds must be at least 1, not {min(numbers)}")
