"""Compare the outputs of two forward passes of one model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def list_float_tensors(output: Any, path: str = "output") -> Iterator[tuple[str, Tensor]]:
    """Yield every floating-point tensor of a model's output with its name; caches are left out.

    Args:
        output: What the model returned: a tensor, or nested dictionaries, lists and dataclasses.
        path: The name of the output.
    """
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield path, output
    elif isinstance(output, Mapping):
        for name, part in output.items():
            if name.endswith("attentions"):  # weights, which the lens computes itself
                continue
            yield from list_float_tensors(part, f"{path}.{name}")
    elif isinstance(output, list | tuple):
        for index, part in enumerate(output):
            yield from list_float_tensors(part, f"{path}[{index}]")
    elif dataclasses.is_dataclass(output):
        for field in dataclasses.fields(output):
            yield from list_float_tensors(getattr(output, field.name), f"{path}.{field.name}")


@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest difference between two outputs.

    Attributes:
        name: The tensor with the largest difference in proportion to its size.
        size: The difference divided by max(1, largest absolute number of that tensor).
        tensors: How many tensors were compared.
    """

    name: str
    size: float
    tensors: int


def compare_outputs(expected: Any, output: Any, token_mask: Tensor | None) -> Difference:
    """Compare all floating-point numbers of two outputs at real tokens.

    Args:
        expected: The output of the plain forward pass.
        output: The output to compare.
        token_mask: True at real tokens ``[batch, length]``; it applies to tensors that begin with these axes.
    """
    tensors, candidates = dict(list_float_tensors(expected)), dict(list_float_tensors(output))
    if tensors.keys() != candidates.keys():
        missing = sorted(tensors.keys() ^ candidates.keys())
        return Difference(f"only one output has {missing[0]}", float("inf"), len(tensors))
    worst = Difference("", 0.0, len(tensors))
    for name, tensor in tensors.items():
        size = _measure_difference(tensor, candidates[name], token_mask)
        if not size <= worst.size:
            worst = Difference(name, size, len(tensors))
    return worst


def _measure_difference(expected: Tensor, output: Tensor, token_mask: Tensor | None) -> float:
    """Return the largest difference, in proportion to the largest number if that is more than 1."""
    if expected.shape != output.shape:
        return float("inf")
    if token_mask is not None and expected.shape[: token_mask.dim()] == token_mask.shape:
        expected, output = expected[token_mask], output[token_mask]
    if not expected.numel():
        return 0.0
    is_finite = expected.isfinite()
    if not torch.equal(expected[~is_finite], output[~is_finite]):
        return float("inf")  # an infinity in one output only
    difference = (expected[is_finite] - output[is_finite]).abs()
    if not difference.numel():
        return 0.0
    if bool(difference.isnan().any()):
        return float("inf")
    return float(difference.max()) / max(1.0, float(expected[is_finite].abs().max()))


def contains_nan(output: Any) -> bool:
    """Say whether a floating-point number of an output is NaN.

    Args:
        output: The output of a model.
    """
    return any(bool(tensor.isnan().any()) for _, tensor in list_float_tensors(output))
