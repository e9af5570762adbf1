"""Which examples make a batch: a pure function of (seed, step), so that a run goes on exactly where it stopped.

Nothing is remembered between steps. Several processes ask for the same step and take their `share` of the answer, so
the examples of a step are the same at any number of processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jumok.errors import ArgumentError

_ROUNDS = 8


@runtime_checkable
class BatchOrder(Protocol):
    """What chooses the examples of a step."""

    def batch_indices(self, step: int, size: int) -> list[int]:
        """The `size` examples of a step, counted from 0."""


@dataclass(frozen=True)
class ShuffledEpochs:
    """Shuffled epochs over `count` examples: each epoch has its own order and each example once.

    The examples of an epoch that do not fill a batch begin the next one. The order is a Feistel network over the
    numbers below a power of two (Luby and Rackoff 1988), asked again where it leads past `count` (Black and Rogaway
    2002): any place of any epoch is computed alone, so ten examples and a hundred million take the same memory.

    >>> order = Order(5, seed=0)
    >>> sorted(order.at(0, 5)), order.at(0, 3) + order.at(1, 3) == order.at(0, 6)
    ([0, 1, 2, 3, 4], True)
    """

    count: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.count < 2**62:
            raise ArgumentError(f"an order needs examples, at least one; {self.count} were given")

    def batch_indices(self, step: int, size: int) -> list[int]:
        _check(step, size)
        chosen: list[int] = []
        place = step * size
        while len(chosen) < size:
            epoch, first = divmod(place, self.count)
            many = min(size - len(chosen), self.count - first)
            chosen += self._shuffled(epoch, first, many)
            place += many
        return chosen

    def epoch(self, step: int, size: int) -> float:
        """How often all examples have been seen when a step begins."""
        return step * size / self.count

    def _shuffled(self, epoch: int, first: int, many: int) -> list[int]:
        bits = max(2, (self.count - 1).bit_length())
        keys = _keys(self.seed, epoch)
        places = _feistel(numpy.arange(first, first + many, dtype=numpy.uint64), bits, keys)
        # less than half of the numbers lie past the count; following them further inside keeps it one to one
        while (outside := places >= self.count).any():
            places[outside] = _feistel(places[outside], bits, keys)
        return [int(place) for place in places]


def _keys(seed: int, epoch: int) -> tuple[int, ...]:
    digest = hashlib.shake_256(f"order {seed} {epoch}".encode()).digest(8 * _ROUNDS)
    return tuple(int.from_bytes(digest[8 * turn : 8 * turn + 8], "little") for turn in range(_ROUNDS))


def _feistel(places: numpy.ndarray, bits: int, keys: tuple[int, ...]) -> numpy.ndarray:
    low_bits = numpy.uint64(bits // 2)
    low_mask, high_mask = numpy.uint64(2 ** (bits // 2) - 1), numpy.uint64(2 ** (bits - bits // 2) - 1)
    low, high = places & low_mask, places >> low_bits
    for turn, key in enumerate(keys):
        if turn % 2:
            low = low ^ (_mixed(high, key) & low_mask)
        else:
            high = high ^ (_mixed(low, key) & high_mask)
    return (high << low_bits) | low


def _mixed(half: numpy.ndarray, key: int) -> numpy.ndarray:
    """SplitMix64's last step (Steele et al. 2014) on the half with its key added; arrays wrap around silently."""
    mixed = half + numpy.uint64(key)
    mixed = (mixed ^ (mixed >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> numpy.uint64(31))


@dataclass(frozen=True)
class RandomWindows:
    """Random windows of `length` tokens in a text of `count`: `at` gives where they begin.

    A language model that guesses the next token of each of n needs windows of n + 1.
    """

    count: int
    length: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.length <= self.count:
            raise ArgumentError(
                f"windows of {self.length} tokens do not fit into a text of {self.count}; "
                "give more text or a shorter window"
            )

    def batch_indices(self, step: int, size: int) -> list[int]:
        _check(step, size)
        digest = hashlib.sha256(f"windows {self.seed} {step}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        return [int(start) for start in torch.randint(self.count - self.length + 1, (size,), generator=generator)]


@dataclass(frozen=True)
class LengthGroups:
    """Another choice's examples, those of similar length together, so that little is padded.

    The examples of `pool` steps are sorted by length and dealt out again, the batches in random order: over those steps
    the examples are the same as without.
    """

    choice: ShuffledEpochs
    length_of: Callable[[int], int]
    pool: int = 32

    def __post_init__(self) -> None:
        if self.pool < 1:
            raise ArgumentError(f"a pool of {self.pool} steps: give at least 1")

    def batch_indices(self, step: int, size: int) -> list[int]:
        _check(step, size)
        number, place = divmod(step, self.pool)
        return list(_dealt(self.choice, self.length_of, self.pool, number, size)[place])


@lru_cache(maxsize=4)  # a pool is asked for `pool` times in a row
def _dealt(
    choice: ShuffledEpochs, length_of: Callable[[int], int], pool: int, number: int, size: int
) -> tuple[tuple[int, ...], ...]:
    examples = sorted(choice.batch_indices(number, pool * size), key=length_of)
    batches = [tuple(examples[start : start + size]) for start in range(0, pool * size, size)]
    turns = ShuffledEpochs(pool, choice.seed).batch_indices(number, pool)
    return tuple(batches[turn] for turn in turns)


def share(batch: Sequence[int], rank: int, ranks: int) -> list[int]:
    """What one of several processes takes of a batch; together they take all of it, once."""
    if not 0 <= rank < ranks:
        raise ArgumentError(f"process {rank} of {ranks}: processes are counted from 0")
    return list(batch[rank::ranks])


def pad_sequences(
    lists: Sequence[Sequence[int]], value: int
) -> tuple[Int[Tensor, "batch length"], Bool[Tensor, "batch length"]]:
    """Lists of ids as one tensor, filled up on the right with `value`, and where it is real (True).

    >>> padded([[7, 8], [9]], 0)
    (tensor([[7, 8],
            [9, 0]]), tensor([[ True,  True],
            [ True, False]]))
    """
    if not lists:
        raise ArgumentError("a batch needs at least one list")
    longest = max(map(len, lists))
    ids = torch.full((len(lists), longest), value, dtype=torch.long)
    for row, numbers in enumerate(lists):
        ids[row, : len(numbers)] = torch.as_tensor(numbers, dtype=torch.long)
    lengths = torch.tensor([len(numbers) for numbers in lists])
    return ids, torch.arange(longest)[None, :] < lengths[:, None]


def _check(step: int, size: int) -> None:
    if step < 0 or size < 1:
        raise ArgumentError(
            f"step {step} of batches of {size}: steps count from 0, and a batch has at least one example"
        )
