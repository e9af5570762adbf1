"""Check the arguments of ``attend()``; a message says what is wrong and what to pass instead."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from jumok.errors import ArgumentError, ShapeError

from .bias import Bias
from .grid import Positions
from .mask import Mask
from .mask.notation import suggest_mask_for
from .score import Score

DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})

# What to pass instead of the arguments of scaled_dot_product_attention and nn.MultiheadAttention.
INSTEAD = {
    "is_causal": "write mask=mask.causal (from jumok.attention import mask)",
    "attn_mask": "write mask=mask.given(booleans), in which True = may attend, or bias=bias.given(numbers)",
    "key_padding_mask": "write mask=mask.padding(~key_padding_mask), in which True is a real token",
    "dropout_p": "write dropout=...",
    "enable_gqa": "leave it out: with fewer key heads than query heads, groups of heads share a key",
    "scale": "write score=score.ScaledDot(scale=...)",
    "need_weights": "write weights=True",
    "average_attn_weights": "write weights=True, which returns the weights of every head, and average them",
}
HIDDEN = ("positional", "unknown")


def check_tensors(query: Any, key: Any, value: Any) -> None:
    """Raise an error if query, key and value are not tensors that fit together."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not (
            isinstance(tensor, Tensor)
            and tensor.dtype in DTYPES
            and tensor.layout is torch.strided
            and tensor.dim() == 4
            and not tensor.is_nested
        ):
            raise _make_tensor_error(name, tensor)

    query_sizes, key_sizes, value_sizes = query.shape, key.shape, value.shape
    if not (query_sizes[3] and key_sizes[3]):
        raise ShapeError(
            f"query {list(query_sizes)} and key {list(key_sizes)} need a width of at least 1 to compute scores"
        )
    if key_sizes[:3] != value_sizes[:3]:
        raise ShapeError(
            f"key {list(key_sizes)} and value {list(value_sizes)} differ in batch, heads or length; "
            "every key needs a value"
        )
    if query_sizes[0] != key_sizes[0]:
        raise ShapeError(
            f"query {list(query_sizes)} and key {list(key_sizes)} differ in batch: {query_sizes[0]} and {key_sizes[0]}"
        )
    if key_sizes[1] == 0 or query_sizes[1] % key_sizes[1]:
        raise ShapeError(
            f"{query_sizes[1]} query heads cannot be split evenly into {key_sizes[1]} key/value heads "
            f"(query {list(query_sizes)}, key {list(key_sizes)})"
        )
    if not (query.dtype is key.dtype is value.dtype):
        raise ArgumentError(f"query, key and value differ in dtype: {query.dtype}, {key.dtype}, {value.dtype}")
    if not query.device == key.device == value.device:
        raise ArgumentError(
            f"query, key and value are on different devices: {query.device}, {key.device}, {value.device}"
        )


def check_settings(mask: object, bias: object, score: object, dropout: float) -> None:
    """Raise ArgumentError for a mask, bias, score or dropout of the wrong type or value."""
    if not isinstance(score, Score):
        raise ArgumentError(
            f"score must be a Score of jumok.attention.score, such as ScaledDot(), not {describe_argument(score)}"
        )
    if mask is not None and not isinstance(mask, Mask):
        if callable(mask) and (suggestion := suggest_mask_for(mask)):
            raise ArgumentError(suggestion)
        raise ArgumentError(
            f"mask must be a Mask of jumok.attention.mask, not {describe_argument(mask)}; for a boolean tensor use "
            "mask.given(tensor), True = may attend"
        )
    if bias is not None and not isinstance(bias, Bias):
        raise ArgumentError(
            f"bias must be a Bias of jumok.attention.bias, not {describe_argument(bias)}; for a tensor use "
            "bias.given(tensor)"
        )
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout must be at least 0 and below 1, not {dropout}")


def check_positions(positions: object, length: int, batch: int, axis: str) -> Positions:
    """Return the positions if they fit the tensors."""
    if isinstance(positions, range):
        if len(positions) != length:
            raise ShapeError(
                f"{axis}_positions has {len(positions)} entries, but there are {length} on the {axis} axis"
            )
        return positions

    if not isinstance(positions, Tensor) or positions.is_floating_point() or positions.dtype == torch.bool:
        raise ShapeError(f"{axis}_positions must be a range or an integer tensor, not {describe_argument(positions)}")

    is_line = positions.dim() == 1
    is_table = positions.dim() == 2 and positions.shape[0] in (1, batch)
    if not (is_line or is_table) or positions.shape[-1] != length:
        raise ShapeError(
            f"{axis}_positions has shape {list(positions.shape)}; it must be [{length}] or [{batch}, {length}] "
            f"(batch {batch}, {length} on the {axis} axis)"
        )
    return positions.long()  # narrower integers would overflow in the arithmetic of masks


def describe_argument(argument: object) -> str:
    """Return the type of an argument in the words of an error message."""
    return f"a tensor of {argument.dtype}" if isinstance(argument, Tensor) else type(argument).__name__


def _make_tensor_error(name: str, tensor: object) -> ArgumentError | ShapeError:
    if not isinstance(tensor, Tensor):
        return ArgumentError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if tensor.is_nested:
        return ArgumentError(
            f"{name} is a nested tensor; pad it by torch.nested.to_padded_tensor and pass mask=mask.padding(lengths)"
        )
    if tensor.layout is not torch.strided:
        return ArgumentError(
            f"{name} is sparse ({tensor.layout}); pass {name}.to_dense(), and say which cells to compute by a mask"
        )
    if tensor.dim() != 4:
        return ShapeError(f"{name} must be [batch, head, length, width]; it is {list(tensor.shape)}")
    if tensor.is_floating_point():  # float8 and narrower: storage formats without arithmetic
        return ArgumentError(
            f"{name} must be float16, bfloat16, float32 or float64, not {tensor.dtype}; pass {name}.to(torch.bfloat16)"
        )
    return ArgumentError(f"{name} must hold floating-point numbers, not {tensor.dtype}")


def make_unknown_argument_error(
    function: Callable[..., object], positional: Sequence[object], unknown: Mapping[str, object]
) -> ArgumentError:
    """Return an error that says what to pass instead of the arguments of PyTorch's attention functions."""
    if positional:
        return ArgumentError(
            f"{function.__name__}() takes query, key and value by position and the other arguments by name; "
            f"got {describe_argument(positional[0])} as the fourth one: for a mask, write mask=..."
        )
    name = next(iter(unknown))
    parameters = [parameter for parameter in inspect.signature(function).parameters if parameter not in HIDDEN]
    similar = difflib.get_close_matches(name, parameters, 1)
    hint = INSTEAD.get(name) or (f"did you mean {similar[0]}?" if similar else f"choose from {', '.join(parameters)}")
    return ArgumentError(f"{function.__name__}() has no argument {name[:80]!r}; {hint}")
