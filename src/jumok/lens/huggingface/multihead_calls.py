"""Einsums and calls of ``multi_head_attention_forward`` in which ``recognizer.py`` finds an attention."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]  # query, key, value, numbers added to the scores

#: settings with which the multi-head function does something else; it is then computed by PyTorch
UNSUPPORTED = ("bias_k", "bias_v", "add_zero_attn", "static_k", "static_v", "is_causal")


@dataclass(frozen=True)
class BatchedProduct:
    """An einsum of two tensors that is a batched product ``left @ right``."""

    operand: Tensor  # the first tensor as it was passed
    left: Tensor  # the first tensor, rearranged to [batch, head, row, inner]
    right: Tensor  # the second tensor, rearranged to [batch, head, inner, column]
    keeps_left_order: bool  # the first tensor had this order already
    keeps_output_order: bool  # the einsum returns [batch, head, row, column]
    output_order: tuple[int, ...]  # for each axis of the einsum's output, its index in [batch, head, row, column]


def parse_batched_product(args: Sequence[Any]) -> BatchedProduct | None:
    """Return an einsum, by its equation and two tensors, as a batched product; None if it is something else.

    >>> import torch
    >>> product = parse_batched_product(("ibnd,jbnd->bnij", torch.ones(5, 2, 3, 4), torch.ones(7, 2, 3, 4)))
    >>> product.left.shape, product.right.shape, product.keeps_output_order
    (torch.Size([2, 3, 5, 4]), torch.Size([2, 3, 4, 7]), True)
    """
    if len(args) == 2 and isinstance(args[1], list | tuple):
        args = (args[0], *args[1])
    if len(args) != 3 or not isinstance(args[0], str) or not all(isinstance(tensor, Tensor) for tensor in args[1:]):
        return None
    inputs, arrow, output = args[0].replace(" ", "").partition("->")
    operands = inputs.split(",")
    if not arrow or "." in args[0] or len(operands) != 2:
        return None
    left, right = operands
    if any(len(letters) != 4 or len(set(letters)) != 4 for letters in (left, right, output)):
        return None
    shared = [letter for letter in output if letter in left and letter in right]
    inner = [letter for letter in left if letter in right and letter not in output]
    rows = [letter for letter in output if letter in left and letter not in right]
    columns = [letter for letter in output if letter in right and letter not in left]
    if (len(shared), len(inner), len(rows), len(columns)) != (2, 1, 1, 1):
        return None
    # the batch axis stands before the head axis in every equation of transformers
    product_order = [*shared, *rows, *columns]
    left_order, right_order = [*shared, *rows, *inner], [*shared, *inner, *columns]
    return BatchedProduct(
        args[1],
        args[1].permute([left.index(letter) for letter in left_order]),
        args[2].permute([right.index(letter) for letter in right_order]),
        left_order == list(left),
        product_order == list(output),
        tuple(product_order.index(letter) for letter in output),
    )


def compute_multihead(args: Sequence[Any], kwargs: Mapping[str, Any], attend: Attend) -> tuple[Tensor, None] | None:
    """Compute ``multi_head_attention_forward`` of torch: [query, batch, width] and None in place of weights.

    None alone means that the arguments are unsupported.
    """
    bound = inspect.signature(functional.multi_head_attention_forward).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    query, key, value, heads = arguments["query"], arguments["key"], arguments["value"], arguments["num_heads"]
    is_changed = any(arguments[name] is not None and arguments[name] is not False for name in UNSUPPORTED)
    has_dropout = arguments["training"] and arguments["dropout_p"]
    if is_changed or has_dropout or query.dim() != 3:
        return None
    if arguments["use_separate_proj_weight"]:
        matrices = [arguments[f"{name}_proj_weight"] for name in ("q", "k", "v")]
    else:
        matrices = list(arguments["in_proj_weight"].chunk(3))
    biases = [None] * 3 if arguments["in_proj_bias"] is None else list(arguments["in_proj_bias"].chunk(3))
    projected = [
        functional.linear(tensor, matrix, bias).unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
        for tensor, matrix, bias in zip((query, key, value), matrices, biases, strict=True)
    ]
    added = _add_masks(arguments["attn_mask"], arguments["key_padding_mask"], query.shape[1], heads, query.dtype)
    query, key, value = projected
    output = attend(query, key, value, added).permute(2, 0, 1, 3).flatten(2)
    return functional.linear(output, arguments["out_proj_weight"], arguments["out_proj_bias"]), None


def _add_masks(
    mask: Tensor | None, padding: Tensor | None, batch: int, heads: int, dtype: torch.dtype
) -> Tensor | None:
    """Return the numbers that are added to the scores, ``[batch or 1, head or 1, query or 1, key]``."""
    added = None if mask is None else _convert_to_numbers(mask, dtype)
    if added is not None and added.dim() == 3:
        added = added.unflatten(0, (batch, heads))
    elif added is not None:
        added = added[None, None]
    if padding is None:
        return added
    forbidden = _convert_to_numbers(padding, dtype)[:, None, None, :]
    return forbidden if added is None else added + forbidden


def _convert_to_numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert booleans of this function, where True forbids, to numbers to add."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -torch.inf)
