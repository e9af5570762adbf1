"""Generated data: small rules to be learned, as pure functions of a seed, with nothing on both sides of the split.

Each function gives (source, target) pairs of numbers. Where all examples can be written down (`sort`, `add`), they are,
and an exact number is held out; elsewhere an example's side depends on the example alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Literal

from jumok.data.batches.split import Split, assign_split, hash_to_fraction
from jumok.errors import ArgumentError

Numbers = list[int]
Example = tuple[Numbers, Numbers]
Part = Literal["train", "dev", "test"]


def make_plus_two_examples(count: int, side: Split = "train", seed: int = 0, length: int = 5) -> list[Example]:
    """Whole numbers from 0 to 100, and each of them plus 2: [10, 20, 30, 40, 50] -> [12, 22, 32, 42, 52]."""
    _at_least_one(count, length)
    chance = random.Random(f"plus two {seed} {side}")

    def drawn() -> Iterator[Numbers]:
        while True:
            yield [chance.randint(0, 100) for _ in range(length)]

    found = _different(drawn(), count, lambda numbers: assign_split(_key(numbers)) == side)
    return [(numbers, [number + 2 for number in numbers]) for numbers in found]


def make_copy_examples(part: Part = "train", count: int | None = None, seed: int = 0) -> list[Example]:
    """Numbers from 0 to 49, and the same again; sizes and lengths as in `reverse`."""
    return [(numbers, list(numbers)) for numbers in _sequences(part, count, seed)]


def make_reverse_examples(part: Part = "train", count: int | None = None, seed: int = 0) -> list[Example]:
    """Numbers from 0 to 49, and the same from the end: the task of JoeyNMT (Kreutzer et al. 2019).

    50,000 of 1 to 25 numbers to train on, 1,000 and 1,000 of 1 to 30 to look at; no example is in two parts.
    """
    return [(numbers, numbers[::-1]) for numbers in _sequences(part, count, seed)]


def _sequences(part: Part, count: int | None, seed: int) -> list[Numbers]:
    longest, usual = (25, 50_000) if part == "train" else (30, 1_000)
    _at_least_one(usual if count is None else count)
    chance = random.Random(f"sequences {seed} {part}")

    def drawn() -> Iterator[Numbers]:
        while True:
            yield [chance.randrange(50) for _ in range(chance.randint(1, longest))]

    def fits(numbers: Numbers) -> bool:
        share = hash_to_fraction(_key(numbers))
        return part == ("dev" if share < 0.1 else "test" if share < 0.2 else "train")

    return _different(drawn(), usual if count is None else count, fits, again=True)


def make_sort_examples(side: Split = "train", seed: int = 0, length: int = 6, kinds: int = 3) -> list[Example]:
    """Digits, and the same sorted: all 729 rows of 6 digits from 0 to 2, a quarter of them held out (minGPT's task)."""
    _at_least_one(length, kinds)
    if kinds**length > 10**6:
        raise ArgumentError(f"{kinds} to the power of {length} rows are too many to write down; take at most a million")
    rows = [list(row) for row in product(range(kinds), repeat=length)]
    return [(row, sorted(row)) for row in _dealt(rows, len(rows) // 4, side, f"sort {seed}")]


def make_addition_examples(
    side: Split = "train", seed: int = 0, digits: int = 2, backwards: bool = True
) -> list[Example]:
    """Two numbers as digits, and the digits of their sum: all 10,000 sums of two digits, 1,000 of them held out.

    85 + 50 = 135 is [8, 5, 5, 0] -> [5, 3, 1] with `backwards`, as people carry (minGPT's task), else [1, 3, 5].
    """
    if not 1 <= digits <= 3:
        raise ArgumentError(f"sums of {digits} digits: give 1, 2 or 3")
    pairs = [[a, b] for a in range(10**digits) for b in range(10**digits)]
    made = []
    for a, b in _dealt(pairs, len(pairs) // 10, side, f"add {seed}"):
        total = _digits(a + b, digits + 1)
        made.append((_digits(a, digits) + _digits(b, digits), total[::-1] if backwards else total))
    return made


def make_induction_examples(
    count: int, length: int, side: Split = "train", seed: int = 0, kinds: int = 256
) -> list[Example]:
    """Random numbers and the same once more: the second half can be known from the first (Olsson et al. 2022)."""
    _at_least_one(count, length, kinds)
    chance = random.Random(f"induction {seed} {side}")

    def drawn() -> Iterator[Numbers]:
        while True:
            yield [chance.randrange(kinds) for _ in range(length)]

    found = _different(drawn(), count, lambda numbers: assign_split(_key(numbers)) == side)
    return [(numbers, list(numbers)) for numbers in found]


def _digits(number: int, many: int) -> Numbers:
    return [int(digit) for digit in f"{number:0{many}}"]


def _key(numbers: Numbers) -> str:
    return " ".join(map(str, numbers))


def _dealt(rows: list[Numbers], held: int, side: Split, salt: str) -> list[Numbers]:
    """Exactly `held` of the rows are held out, by the order of their hashes; the rest is to train on."""
    order = sorted(rows, key=lambda row: hash_to_fraction(f"{salt}: {_key(row)}"))
    return order[:held] if side == "held-out" else order[held:]


def _different(
    drawn: Iterator[Numbers], count: int, fits: Callable[[Numbers], bool], again: bool = False
) -> list[Numbers]:
    """The first `count` that fit, each once unless `again`; there may be fewer in the world than were asked for."""
    found: list[Numbers] = []
    seen: set[tuple[int, ...]] = set()
    for tries, numbers in enumerate(drawn):
        if len(found) == count:
            break
        if tries > 100 * count + 10_000:
            raise ArgumentError(f"there are not {count} different examples of that kind; ask for fewer")
        if fits(numbers) and (again or tuple(numbers) not in seen):
            seen.add(tuple(numbers))
            found.append(numbers)
    return found


def _at_least_one(*numbers: int) -> None:
    if min(numbers) < 1:
        raise ArgumentError(f"{min(numbers)} examples, numbers or kinds cannot be made; give at least 1")
