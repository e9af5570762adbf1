"""Translate the mask functions of transformers into Jumok's mask expressions.

transformers builds masks from functions of (batch, head, query, key). The mask function registered here returns a
tensor that carries a mask expression instead of a table of n x n numbers; the attention function reads the expression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jumok.attention import mask as masks
from jumok.attention.grid import BlockGrid, Grid
from jumok.attention.mask import Mask
from jumok.attention.mask.base import PARTIAL

MaskFunction = Callable[..., Any]  # (batch, head, query, key) -> may attend


class PositionedMask(NamedTuple):
    """A mask expression and the positions it is evaluated at.

    Attributes:
        mask: The expression; None allows everything.
        queries: The positions of the queries.
        keys: The positions of the keys.
    """

    mask: Mask | None
    queries: range
    keys: range


class MaskTensor(Tensor):
    """The mask that models of transformers pass to their attention: ``[1, 1, query, key]``, without own memory.

    Attributes:
        positioned: The mask expression. An operation on the tensor loses it, and the attention function then raises an
            error.
    """

    positioned: PositionedMask | None = None

    @staticmethod
    def create(positioned: PositionedMask, device: torch.device | str) -> MaskTensor:
        """Create a mask tensor.

        Args:
            positioned: The expression and its positions.
            device: The device that the model expects the mask on.
        """
        zero = torch.zeros((), dtype=torch.bool, device=device)
        tensor = zero.expand(1, 1, len(positioned.queries), len(positioned.keys)).as_subclass(MaskTensor)
        tensor.positioned = positioned
        return tensor

    def contiguous(self, *_: Any, **__: Any) -> MaskTensor:
        """Return this tensor; generation with a static cache calls this method."""
        return self

    def to(self, *_: Any, **__: Any) -> MaskTensor:
        """Return this tensor; models move masks to their device."""
        return self


@dataclass(frozen=True, eq=False, repr=False)
class PredicateMask(Mask):
    """A mask function that has no equivalent among Jumok's masks; evaluated cell by cell.

    Attributes:
        function: The mask function of transformers.
    """

    function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    needs_check = False

    def evaluate(self, grid: Grid) -> Tensor:
        """Call the function on every cell of the grid.

        Args:
            grid: The cells to evaluate.
        """
        coordinates = torch.broadcast_tensors(grid.batch, grid.head, grid.query, grid.key)
        return self.function(*coordinates).to(torch.bool)

    def classify_blocks(self, blocks: BlockGrid) -> Tensor:
        """Classify every block as partially allowed.

        Args:
            blocks: The blocks of the grid.
        """
        return torch.full((1, 1, 1, 1), PARTIAL, dtype=torch.int8, device=blocks.keys.device)

    def __repr__(self) -> str:
        return get_factory_name(self.function) or "predicate"


def create_mask_function(masking: ModuleType) -> Callable[..., MaskTensor]:
    """Create the mask function that is registered with transformers.

    Args:
        masking: The module ``transformers.masking_utils``.
    """

    def build_mask(
        batch_size: int,
        q_length: int,
        kv_length: int,
        q_offset: int | Tensor = 0,
        kv_offset: int | Tensor = 0,
        mask_function: MaskFunction | None = None,
        attention_mask: Tensor | None = None,
        device: torch.device | str = "cpu",
        **_: Any,
    ) -> MaskTensor:
        function = masking.causal_mask_function if mask_function is None else mask_function
        mask = translate_mask_function(function, masking)
        token_mask = masking.prepare_padding_mask(attention_mask, kv_length, int(kv_offset))
        if token_mask is not None and not bool(token_mask.all()):
            padding = masks.padding(token_mask.to(torch.bool))
            mask = padding if mask is None else mask & padding
        queries = range(int(q_offset), int(q_offset) + q_length)
        keys = range(int(kv_offset), int(kv_offset) + kv_length)
        return MaskTensor.create(PositionedMask(mask, queries, keys), device)

    return build_mask


def translate_mask_function(function: MaskFunction, masking: ModuleType) -> Mask | None:
    """Translate a mask function of transformers into a mask expression; None where it allows everything.

    Args:
        function: The mask function.
        masking: The module ``transformers.masking_utils``.
    """
    if function is masking.causal_mask_function:
        return masks.causal
    if function is masking.bidirectional_mask_function:
        return None
    name = get_factory_name(function)
    if name == "and_masks":
        return _combine_restrictions(_get_closure_value(function), masking)
    if name == "sliding_window_bidirectional_overlay":
        return masks.window(int(_get_closure_value(function)) + 1)
    return PredicateMask(function)


def _combine_restrictions(functions: tuple[MaskFunction, ...], masking: ModuleType) -> Mask | None:
    """Translate mask functions that must all allow a cell; None if none of them forbids anything."""
    conjunction: Mask | None = None
    is_causal = masking.causal_mask_function in functions
    for function in functions:
        if is_causal and get_factory_name(function) == "sliding_window_overlay":
            # this overlay limits how far back a query looks; combined with causality, that is a window
            mask: Mask | None = masks.window(int(_get_closure_value(function)))
        else:
            mask = translate_mask_function(function, masking)
        if mask is not None:
            conjunction = mask if conjunction is None else conjunction & mask
    return conjunction


def get_factory_name(function: MaskFunction) -> str:
    """Return the name of the function of transformers that created a mask function; "" where there is none.

    Args:
        function: A mask function, usually an inner function such as ``and_masks.<locals>.and_mask``.
    """
    return function.__qualname__.partition(".")[0] if isinstance(function, FunctionType) else ""


def _get_closure_value(function: MaskFunction) -> Any:
    """Return the first variable that an inner function captured, for example the size of a window."""
    assert isinstance(function, FunctionType) and function.__closure__
    return function.__closure__[0].cell_contents
