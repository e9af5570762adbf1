"""The attention function that is registered with transformers: it passes every argument on to ``attend()``.

Arguments that ``attend()`` has no equivalent for raise an error; they are never ignored silently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from jumok.attention import bias as biases
from jumok.attention import mask as masks
from jumok.attention.attend import attend
from jumok.attention.bias import Bias
from jumok.attention.grid import Grid
from jumok.attention.mask import Mask
from jumok.attention.score import ScaledDot
from jumok.errors import ArgumentError, describe_type

from .mask_functions import MaskTensor

# arguments of transformers that do not change the result: the mask contains them, or they concern other layers
IGNORED_ARGUMENTS = frozenset(
    {
        "sliding_window", "position_ids", "cache_position", "use_cache", "output_attentions", "output_hidden_states",
        "return_dict", "num_items_in_batch", "layer_idx", "token_type_ids", "is_causal", "head_mask",
    }
)  # fmt: skip


class MaskArguments(NamedTuple):
    """The arguments of ``attend()`` that follow from an attention mask of transformers."""

    mask: Mask | None
    bias: Bias | None
    queries: range
    keys: range


@dataclass(frozen=True, eq=False)
class TableBias(biases.Bias):
    """A table of numbers added to the scores of a rectangle of positions.

    Attributes:
        table: The numbers, ``[batch or 1, head or 1, query, key]``.
        first_query: The position of the first row.
        first_key: The position of the first column.
    """

    table: Tensor
    first_query: int
    first_key: int

    def evaluate(self, grid: Grid) -> Tensor:
        """Return the numbers of the grid's cells.

        Args:
            grid: The cells to evaluate.
        """
        batch = grid.batch if self.table.shape[0] > 1 else torch.zeros_like(grid.batch)
        head = grid.head if self.table.shape[1] > 1 else torch.zeros_like(grid.head)
        return self.table[batch, head, grid.query - self.first_query, grid.key - self.first_key]

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        """Return the table."""
        return (self.table,)


def create_attention_function(sites: dict[int, str]) -> Callable[..., tuple[Tensor, None]]:
    """Create the attention function that is registered with transformers.

    Args:
        sites: The name of each module by its ``id``.
    """

    def compute_attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        position_bias: Tensor | None = None,
        **arguments: Any,
    ) -> tuple[Tensor, None]:
        site = sites[id(module)]
        unknown = sorted(
            name for name, argument in arguments.items() if argument is not None and name not in IGNORED_ARGUMENTS
        )
        if unknown:
            raise ArgumentError(
                f"{site} ({type(module).__name__}) passes {', '.join(unknown)}, which the lens does not support"
            )
        if arguments.get("sliding_window") is not None:  # a static cache with a window overwrites its keys in place
            key = key.clone()
        mask, bias, queries, keys = read_mask(module, query, key, attention_mask, is_causal)
        if position_bias is not None:
            # the table covers all keys of the cache; a decoding step needs the last rows and the keys so far
            table = position_bias[..., -query.shape[2] :, : key.shape[2]]
            position_table = TableBias(_clamp_to_finite(table), queries.start, keys.start)
            bias = position_table if bias is None else bias + position_table
        output = attend(
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            score=ScaledDot(scale=scaling, softcap=softcap, sink=s_aux),
            dropout=dropout if module.training else 0.0,
            site=site,
            query_positions=queries,
            key_positions=keys,
        )
        return output.transpose(1, 2).contiguous(), None

    return compute_attention


def read_mask(
    module: nn.Module, query: Tensor, key: Tensor, attention_mask: Any, is_causal: bool | None
) -> MaskArguments:
    """Convert an attention mask of transformers into a mask, a bias and positions.

    Args:
        module: The attention module.
        query: Queries ``[batch, head, query, head_width]``.
        key: Keys ``[batch, group, key, head_width]``.
        attention_mask: A MaskTensor, a table ``[batch, head, query, key]`` of booleans or of numbers to add, or None.
        is_causal: Whether the attention is causal if ``attention_mask`` is None; default: the module's ``is_causal``.

    Raises:
        ArgumentError: If the mask has an unsupported type or shape.
    """
    query_count, key_count = query.shape[2], key.shape[2]
    queries, keys = range(query_count), range(key_count)
    name = type(module).__name__
    if isinstance(attention_mask, MaskTensor):
        if attention_mask.positioned is None:
            raise ArgumentError(f"{name} modifies its attention mask, so the lens cannot read the mask")
        mask, queries, keys = attention_mask.positioned
        if len(queries) != query_count or len(keys) != key_count:
            raise ArgumentError(
                f"{name} passes a mask of {len(queries)} x {len(keys)} for {query_count} queries and {key_count} keys; "
                "the lens does not support this"
            )
        return MaskArguments(mask, None, queries, keys)
    if attention_mask is None:
        causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
        # as transformers does: a single query, as in a decoding step, is not masked
        return MaskArguments(masks.causal if causal and query_count > 1 else None, None, queries, keys)
    if isinstance(attention_mask, Tensor) and attention_mask.dim() == 4:
        if attention_mask.dtype == torch.bool:
            return MaskArguments(masks.given(attention_mask), None, queries, keys)
        return MaskArguments(None, TableBias(_clamp_to_finite(attention_mask), 0, 0), queries, keys)
    raise ArgumentError(f"{name} passes {describe_type(attention_mask)} as its mask, which the lens does not support")


def _clamp_to_finite(table: Tensor) -> Tensor:
    """Raise the smallest finite number, which marks forbidden cells, so that adding scores cannot overflow."""
    return table.clamp(min=torch.finfo(table.dtype).min / 2)
