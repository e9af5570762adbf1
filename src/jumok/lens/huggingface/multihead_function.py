"""Write PyTorch's ``multi_head_attention_forward`` as projections and one attention, which can be recorded.

PyTorch computes it in one function, whose operations the recognizer does not see.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]  # query, key, value, numbers added to the scores

#: settings with which the function does something else; it is then computed by PyTorch
UNSUPPORTED = ("bias_k", "bias_v", "add_zero_attn", "static_k", "static_v", "is_causal")


def compute_multihead(args: Sequence[Any], kwargs: Mapping[str, Any], attend: Attend) -> tuple[Tensor, None] | None:
    """Compute ``torch.nn.functional.multi_head_attention_forward`` without its weights.

    Args:
        attend: Computes the attention of ``[batch, head, position, width]`` tensors.

    Returns:
        The output ``[query, batch, width]`` and None instead of weights; None where the arguments are unsupported.
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
