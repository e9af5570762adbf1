"""Select the examples of each batch as a pure function of (seed, step), so that an interrupted run continues exactly.

There is no state between steps: every process computes the same batch for a step, at any number of processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jumok.errors import ArgumentError

_FEISTEL_ROUNDS = 8


@dataclass(frozen=True)
class ShuffledEpochs:
    """Shuffled epochs: every epoch has a different order and contains each example once.

    If an epoch ends inside a batch, the batch is filled from the next epoch. The order is a Feistel network on the
    integers below a power of two (Luby and Rackoff 1988), applied again while the result is not below `count` (Black
    and Rogaway 2002). Any position of any epoch is computed directly, so memory does not grow with the number of
    examples.

    >>> order = ShuffledEpochs(5, seed=0)
    >>> sorted(order.select_indices(0, 5))
    [0, 1, 2, 3, 4]
    >>> order.select_indices(0, 3) + order.select_indices(1, 3) == order.select_indices(0, 6)
    True
    """

    count: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.count < 2**62:
            raise ArgumentError(f"the number of examples must be at least 1, not {self.count}")

    def select_indices(self, step: int, size: int) -> list[int]:
        """Return the indices of the examples of a step, counted from 0."""
        _check_step_and_size(step, size)
        indices: list[int] = []
        position = step * size
        while len(indices) < size:
            epoch, first = divmod(position, self.count)
            length = min(size - len(indices), self.count - first)
            indices += self._get_shuffled_slice(epoch, first, length)
            position += length
        return indices

    def _get_shuffled_slice(self, epoch: int, first: int, length: int) -> list[int]:
        """Return the examples at positions `first` to `first + length` of an epoch."""
        bits = max(2, (self.count - 1).bit_length())
        digest = hashlib.shake_256(f"order {self.seed} {epoch}".encode()).digest(8 * _FEISTEL_ROUNDS)
        keys = [int.from_bytes(digest[8 * turn : 8 * turn + 8], "little") for turn in range(_FEISTEL_ROUNDS)]
        indices = _apply_feistel(numpy.arange(first, first + length, dtype=numpy.uint64), bits, keys)
        # cycle walking: permute again while the result is not below count, which preserves the bijection
        while (outside := indices >= self.count).any():
            indices[outside] = _apply_feistel(indices[outside], bits, keys)
        return [int(index) for index in indices]


def _apply_feistel(numbers: numpy.ndarray, bits: int, keys: list[int]) -> numpy.ndarray:
    """Permute the integers below 2**bits."""
    low_bits = numpy.uint64(bits // 2)
    low_mask = numpy.uint64(2 ** (bits // 2) - 1)
    high_mask = numpy.uint64(2 ** (bits - bits // 2) - 1)
    low = numbers & low_mask
    high = numbers >> low_bits
    for turn, key in enumerate(keys):
        if turn % 2:
            low = low ^ (_mix(high, key) & low_mask)
        else:
            high = high ^ (_mix(low, key) & high_mask)
    return (high << low_bits) | low


def _mix(half: numpy.ndarray, key: int) -> numpy.ndarray:
    """Add a key and apply the finalizer of SplitMix64 (Steele et al. 2014); arrays wrap around silently."""
    mixed = half + numpy.uint64(key)
    mixed = (mixed ^ (mixed >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> numpy.uint64(31))


@dataclass(frozen=True)
class RandomWindows:
    """Random windows in a long text; `select_starts` returns where they begin.

    A language model that predicts the next token at n positions needs windows of n + 1 tokens.
    """

    count: int
    length: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.length <= self.count:
            raise ArgumentError(
                f"a window of {self.length} tokens does not fit into a text of {self.count} tokens; "
                "give more text or a shorter window"
            )

    def select_starts(self, step: int, size: int) -> list[int]:
        """Return the first positions of the windows of a step."""
        _check_step_and_size(step, size)
        generator = create_generator(f"windows {self.seed} {step}")
        return [int(start) for start in torch.randint(self.count - self.length + 1, (size,), generator=generator)]


@dataclass(frozen=True)
class LengthGroups:
    """Batches of examples of similar length, which need little padding.

    The examples of `pool` steps are sorted by length and divided into batches in random order: over these steps, the
    examples are the same as without grouping.
    """

    order: ShuffledEpochs
    length_of: Callable[[int], int]
    pool: int = 32

    def __post_init__(self) -> None:
        if self.pool < 1:
            raise ArgumentError(f"pool must be at least 1 step, not {self.pool}")

    def select_indices(self, step: int, size: int) -> list[int]:
        """Return the indices of the examples of a step, counted from 0."""
        _check_step_and_size(step, size)
        pool_index, batch_index = divmod(step, self.pool)
        return list(_group_by_length(self.order, self.length_of, self.pool, pool_index, size)[batch_index])


@lru_cache(maxsize=4)  # each pool is used for `pool` consecutive steps
def _group_by_length(
    order: ShuffledEpochs, length_of: Callable[[int], int], pool: int, pool_index: int, size: int
) -> tuple[tuple[int, ...], ...]:
    examples = sorted(order.select_indices(pool_index, pool * size), key=length_of)
    batches = [tuple(examples[start : start + size]) for start in range(0, pool * size, size)]
    batch_order = ShuffledEpochs(pool, order.seed).select_indices(pool_index, pool)
    return tuple(batches[index] for index in batch_order)


def pad_sequences(
    lists: Sequence[Sequence[int]], pad_token: int, *, left: bool = False
) -> tuple[Int[Tensor, "batch length"], Bool[Tensor, "batch length"]]:
    """Pad lists of token ids on the right or left; return one tensor and its token mask, True for real tokens.

    >>> pad_sequences([[7, 8], [9]], 0)
    (tensor([[7, 8],
            [9, 0]]), tensor([[ True,  True],
            [ True, False]]))
    """
    if not lists:
        raise ArgumentError("a batch needs at least one list")
    longest = max(map(len, lists))
    padded = torch.full((len(lists), longest), pad_token, dtype=torch.long)
    token_mask = torch.zeros(len(lists), longest, dtype=torch.bool)
    for row, token_ids in enumerate(lists):
        start = longest - len(token_ids) if left else 0
        padded[row, start : start + len(token_ids)] = torch.as_tensor(token_ids, dtype=torch.long)
        token_mask[row, start : start + len(token_ids)] = True
    return padded, token_mask


def create_generator(name: str) -> torch.Generator:
    """Return a random generator whose numbers are a pure function of a name."""
    digest = hashlib.sha256(name.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def _check_step_and_size(step: int, size: int) -> None:
    if step < 0 or size < 1:
        raise ArgumentError(f"step must be at least 0 and the batch size at least 1, not {step} and {size}")
