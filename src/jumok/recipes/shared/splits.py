"""Split examples into three parts: training, validation (to choose the best checkpoint) and held out (for the report).

The validation score of the chosen checkpoint is biased upwards, because it is the best of many. The report therefore
uses examples that were used neither for training nor for choosing the checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor

from jumok.data.batches.split import hash_to_fraction
from jumok.errors import ArgumentError

PARTS = ("training", "validation", "held-out")  # their names in files and messages


class SplitIndices(NamedTuple):
    """The indices of the examples of each part."""

    train: list[int]
    validation: list[int]
    held_out: list[int]


def split_by_key(keys: Sequence[str], held_out_share: float, validation_share: float) -> SplitIndices:
    """Return the indices of the training, validation and held-out examples.

    The split of an example depends on its key alone, so examples with equal keys are in the same split. If a
    share is so small that its split would be empty, the key with the smallest hash is assigned to it. The validation
    share is a share of the keys that are not held out.

    >>> split_by_key(["a", "b", "b", "c", "d"], 0.2, 0.2)
    SplitIndices(train=[0], validation=[1, 2], held_out=[3, 4])
    """
    held_out_keys = _select_share(set(keys), held_out_share, "")
    validation_keys = _select_share(set(keys) - held_out_keys, validation_share, "choosing ")
    parts = SplitIndices([], [], [])
    for index, key in enumerate(keys):
        if key in held_out_keys:
            parts.held_out.append(index)
        elif key in validation_keys:
            parts.validation.append(index)
        else:
            parts.train.append(index)
    if not parts.train:
        raise ArgumentError(
            f"the data has {len(set(keys))} different examples, and after the validation and held-out examples none is "
            "left for training; give more data"
        )
    return parts


def _select_share(keys: set[str], share: float, prefix: str) -> set[str]:
    if not share or not keys:
        return set()
    fractions = {key: hash_to_fraction(prefix + key) for key in keys}
    return {key for key in keys if fractions[key] < share} or {min(keys, key=lambda key: fractions[key])}


def hash_tensors(tensors: Iterable[Tensor]) -> list[str]:
    """Return the SHA-256 of each image or clip, a key for ``split_by_key`` whatever its file is called."""
    return [hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest() for tensor in tensors]


def fingerprint(texts: Iterable[str]) -> str:
    """Return a short hash of these texts in their order."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
