"""Compare the outputs of a transformers model under the lens with those of the same model without it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

BOUND = 1e-5  # the largest difference in float32, as a share of the largest number, which counts as at least 1
EPSILONS = 16  # in lower precision the bound is this many steps of the dtype around 1


class OutputDifference(NamedTuple):
    """The largest difference between two outputs, relative to what is allowed.

    Attributes:
        name: The output, such as "logits".
    """

    name: str
    size: float
    bound: float

    @property
    def is_allowed(self) -> bool:
        """Whether the outputs count as equal."""
        return self.size <= self.bound


def compare_outputs(expected: Any, actual: Any, token_masks: Mapping[int, Tensor]) -> OutputDifference:
    """Compare all floating-point tensors of two outputs on real tokens.

    Args:
        expected: The output of the model without the lens.
        token_masks: By length, which tokens ``[batch, length]`` are real. Tensors ``[batch, length, ...]`` are compared
            only there.

    Returns:
        The difference that exceeds its bound by most.
    """
    actual_tensors = dict(list_tensors(actual))
    worst = OutputDifference("output", 0.0, BOUND)
    for name, tensor in list_tensors(expected):
        other = actual_tensors.get(name)
        if other is None:
            continue  # weights, which the lens computes itself
        difference = _compare_tensors(name, tensor, other, token_masks)
        if difference.size / difference.bound > worst.size / worst.bound:
            worst = difference
    return worst


def list_tensors(output: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the floating-point tensors of a model's output with their names; caches are left out.

    Args:
        output: A tensor, or tuples, lists and dictionaries of tensors.
    """
    if isinstance(output, Tensor):
        if output.is_floating_point() or output.is_complex():
            yield name or "output", output
    elif isinstance(output, Mapping):
        for key, part in output.items():
            if key != "past_key_values":
                yield from list_tensors(part, f"{name}.{key}" if name else str(key))
    elif isinstance(output, list | tuple):
        for index, part in enumerate(output):
            yield from list_tensors(part, f"{name}[{index}]")


def _compare_tensors(
    name: str, expected: Tensor, actual: Tensor, token_masks: Mapping[int, Tensor]
) -> OutputDifference:
    """Compare two tensors; infinities and NaN must stand at the same positions."""
    if expected.shape != actual.shape:
        return OutputDifference(f"{name} {list(actual.shape)}, not {list(expected.shape)},", float("inf"), BOUND)
    token_mask = token_masks.get(expected.shape[1]) if expected.dim() > 1 else None
    if token_mask is not None and token_mask.shape == expected.shape[:2]:
        expected, actual = expected[token_mask], actual[token_mask]
    if not expected.numel():
        return OutputDifference(name, 0.0, BOUND)
    precision = max(BOUND, EPSILONS * torch.finfo(expected.dtype).eps)
    if expected.dtype in (torch.float32, torch.float64, torch.complex64):
        precision = BOUND
    size, largest = float((expected - actual).abs().max()), float(expected.abs().max())
    if not math.isfinite(size):  # rarely, so that logits of a large vocabulary are read as few times as possible
        is_finite = expected.isfinite()
        largest = float(expected[is_finite].abs().max()) if bool(is_finite.any()) else 0.0
        same = (expected == actual) | (expected.isnan() & actual.isnan())
        size = float((expected - actual).abs().masked_fill(same, 0.0).nan_to_num(float("inf")).max())
    return OutputDifference(name, size, precision * max(1.0, largest))
