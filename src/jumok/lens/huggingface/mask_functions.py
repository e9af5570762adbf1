"""Translate the masks of transformers: functions into mask expressions, tables of numbers into masks and biases.

transformers builds masks from functions of (batch, head, query, key). The mask function registered here returns a
tensor that carries a mask expression instead of a table of n x n numbers; the attention function reads the expression.
A model that calculates with its mask gets the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from jumok.attention import mask as masks
from jumok.attention.bias import Bias
from jumok.attention.grid import Grid, read_cells
from jumok.attention.mask import Mask

MaskPredicate = Callable[..., Any]  # (batch, head, query, key) -> may attend
Device = torch.device | str


class PositionedMask(NamedTuple):
    """A mask expression and the positions it is evaluated at."""

    mask: Mask | None  # None allows everything
    queries: range
    keys: range


#: attributes and methods of a tensor that do not read its numbers
METADATA_FUNCTIONS = frozenset(
    {"__get__", "dim", "ndimension", "size", "numel", "stride", "__len__", "is_floating_point"}
)


class MaskTensor(Tensor):
    """The mask that models of transformers pass to their attention: ``[batch, 1, query, key]``, without own memory.

    A model may also calculate with its mask. The numbers are then computed, as the model's own implementation of
    attention would have received them, and the result is an ordinary tensor.
    """

    positioned: PositionedMask
    build_table: Callable[[], Tensor]
    _has_empty_rows: bool | None = None

    @staticmethod
    def create(
        positioned: PositionedMask, build_table: Callable[[], Tensor], batch: int, dtype: torch.dtype, device: Device
    ) -> MaskTensor:
        """Create a mask tensor; ``build_table`` computes its numbers, ``[batch, 1, query, key]``."""
        zero = torch.zeros((), dtype=dtype, device=device)
        shape = (batch, 1, len(positioned.queries), len(positioned.keys))
        tensor = zero.expand(shape).as_subclass(MaskTensor)
        tensor.positioned, tensor.build_table = positioned, build_table
        return tensor

    def has_empty_rows(self) -> bool:
        """Return whether a query may attend to nothing, in a mask of numbers; computed once."""
        if self._has_empty_rows is None:
            table = self.build_table()
            self._has_empty_rows = bool((table <= torch.finfo(table.dtype).min / 2).all(-1).any())
        return self._has_empty_rows

    def contiguous(self, *_: object, **__: object) -> MaskTensor:
        """Return this tensor; generation with a static cache calls this method."""
        return self

    def to(self, *arguments: Any, **settings: Any) -> Tensor:
        """Return this tensor, also where a model moves it to a device; a change of the dtype computes the numbers."""
        dtype = next(
            (argument for argument in (*arguments, *settings.values()) if isinstance(argument, torch.dtype)), None
        )
        if dtype is None or dtype == self.dtype:
            return self
        return self.build_table().to(*arguments, **settings)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.__name__ in METADATA_FUNCTIONS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        tables: dict[int, Tensor] = {}
        args, kwargs = tree_map_only(MaskTensor, lambda mask: _get_table(mask, tables), (tuple(args), dict(kwargs)))
        return func(*args, **kwargs)


def _get_table(mask: MaskTensor, tables: dict[int, Tensor]) -> Tensor:
    """Compute the numbers of a mask once for each call of a function."""
    if id(mask) not in tables:
        tables[id(mask)] = mask.build_table()
    return tables[id(mask)]


@dataclass(frozen=True, eq=False, repr=False)
class PredicateMask(Mask):
    """A mask function that has no equivalent among Jumok's masks; evaluated cell by cell."""

    function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    needs_check = False

    def evaluate(self, grid: Grid) -> Tensor:
        coordinates = torch.broadcast_tensors(grid.batch, grid.head, grid.query, grid.key)
        return self.function(*coordinates).to(torch.bool)

    def __repr__(self) -> str:
        return get_factory_name(self.function) or "predicate"


def create_mask_function(masking: ModuleType, implementation: str) -> Callable[..., MaskTensor]:
    """Create the mask function that is registered with transformers.

    A model that calculates with its mask receives that of its own implementation of attention ("sdpa", "eager").
    """
    builds_numbers = implementation == "eager"  # 0 and the smallest number; all others have booleans
    build_own_mask = masking.eager_mask if builds_numbers else masking.sdpa_mask

    def build_mask(
        batch_size: int,
        q_length: int,
        kv_length: int,
        q_offset: int | Tensor = 0,
        kv_offset: int | Tensor = 0,
        mask_function: MaskPredicate | None = None,
        attention_mask: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
        device: Device = "cpu",
        **settings: Any,
    ) -> MaskTensor:
        function = masking.causal_mask_function if mask_function is None else mask_function
        mask = translate_mask_function(function, masking)
        token_mask = masking.prepare_padding_mask(attention_mask, kv_length, int(kv_offset))
        if token_mask is not None and not bool(token_mask.all()):
            padding = masks.padding(token_mask.to(torch.bool))
            mask = padding if mask is None else mask & padding
        queries = range(int(q_offset), int(q_offset) + q_length)
        keys = range(int(kv_offset), int(kv_offset) + kv_length)

        def build_table() -> Tensor:
            no_skip = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
            table: Tensor = build_own_mask(
                batch_size=batch_size,
                q_length=q_length,
                kv_length=kv_length,
                q_offset=q_offset,
                kv_offset=kv_offset,
                mask_function=function,
                attention_mask=attention_mask,
                dtype=dtype,
                device=device,
                **(settings | no_skip),
            )
            return table

        positioned = PositionedMask(mask, queries, keys)
        return MaskTensor.create(positioned, build_table, batch_size, dtype if builds_numbers else torch.bool, device)

    return build_mask


def translate_mask_function(function: MaskPredicate, masking: ModuleType) -> Mask | None:
    """Translate a mask function of transformers into a mask expression; None where it allows everything."""
    if function is masking.causal_mask_function:
        return masks.causal
    if function is masking.bidirectional_mask_function:
        return None
    name = get_factory_name(function)
    if name == "and_masks":
        return _combine_restrictions(_get_closure_value(function), masking)
    if name == "sliding_window_bidirectional_overlay":
        return _translate_window(function, int(_get_closure_value(function)) + 1)
    return PredicateMask(function)


def _combine_restrictions(functions: tuple[MaskPredicate, ...], masking: ModuleType) -> Mask | None:
    """Translate mask functions that must all allow a cell; None if none of them forbids anything."""
    conjunction: Mask | None = None
    is_causal = masking.causal_mask_function in functions
    for function in functions:
        if is_causal and get_factory_name(function) == "sliding_window_overlay":
            # this overlay limits how far back a query looks; combined with causality, that is a window
            mask: Mask | None = _translate_window(function, int(_get_closure_value(function)))
        else:
            mask = translate_mask_function(function, masking)
        if mask is not None:
            conjunction = mask if conjunction is None else conjunction & mask
    return conjunction


def _translate_window(function: MaskPredicate, size: int) -> Mask:
    """Return a window; a window of 0, which allows nothing, keeps its function."""
    return masks.window(size) if size > 0 else PredicateMask(function)


def get_factory_name(function: MaskPredicate) -> str:
    """Return the name of the function of transformers that created a mask function; "" where there is none."""
    return function.__qualname__.partition(".")[0] if isinstance(function, FunctionType) else ""


def _get_closure_value(function: MaskPredicate) -> Any:
    """Return the first variable that an inner function captured, for example the size of a window."""
    assert isinstance(function, FunctionType) and function.__closure__
    return function.__closure__[0].cell_contents


#: A score that is lower than the largest score of its row by this much has weight 0 in every dtype. Models mark
#: forbidden cells by adding -10,000, -1e9 or the smallest number.
FORBIDDEN_GAP = 1000.0
SMALLEST_BIAS = 2e-6  # differences below this share of the largest score are rounding errors, not a bias

#: what ``attend()`` needs of a table of numbers that are added to the scores; None allows all, or adds nothing
TableArguments = tuple[Mask | None, Bias | None]


@dataclass(frozen=True, eq=False)
class TableBias(Bias):
    """A table of numbers added to the scores of a rectangle of positions."""

    table: Tensor  # [batch or 1, head or 1, query or 1, key]
    first_query: int
    first_key: int

    def evaluate(self, grid: Grid) -> Tensor:
        return read_cells(self.table, grid, self.first_query, self.first_key)

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)


@dataclass(frozen=True, eq=False, repr=False)
class TableMask(Mask):
    """A table of allowed cells in a rectangle of positions."""

    table: Tensor  # [batch or 1, head or 1, query or 1, key]
    first_query: int
    first_key: int
    needs_check = False

    def evaluate(self, grid: Grid) -> Tensor:
        return read_cells(self.table, grid, self.first_query, self.first_key)

    def __repr__(self) -> str:
        return f"given(bool{list(self.table.shape)})"


def read_table(table: Tensor, queries: range, keys: range) -> TableArguments:
    """Convert a table ``[batch or 1, head or 1, query or 1, key or 1]``: booleans (True = may attend), or numbers that
    are added to the scores, of which very low ones forbid a cell and others are a bias."""
    table = table.expand(-1, -1, -1, len(keys))
    if table.dtype == torch.bool:
        return _build_mask(table, queries, keys), None
    highest = table.amax(-1, keepdim=True)
    # In a row without an allowed cell all numbers are equally low, and the model attends to all of them. A number that
    # is so low that it absorbs the scores must stay low: the weights of such a row are equal.
    allowed = (table >= highest - FORBIDDEN_GAP) & (table > -torch.inf)
    absorbing = torch.finfo(table.dtype).min / 2
    numbers = torch.where(allowed, table.clamp(min=absorbing), 0.0)
    mask = _build_mask(allowed, queries, keys)
    if not bool(numbers.any()):
        return mask, None
    return mask, TableBias(_merge_equal(numbers), queries.start, keys.start)


def _build_mask(allowed: Tensor, queries: range, keys: range) -> TableMask | None:
    """Return the mask of a table of allowed cells; None if all are."""
    return None if bool(allowed.all()) else TableMask(_merge_equal(allowed), queries.start, keys.start)


def split_scores(scores: Tensor, product: Tensor, queries: range, keys: range) -> TableArguments:
    """Find the mask and the bias that a model added to its scaled dot products, from its scores before the softmax."""
    added = scores - product
    largest = max(1.0, float(product.abs().max())) if product.numel() else 1.0
    return read_table(torch.where(added.abs() <= SMALLEST_BIAS * largest, 0.0, added), queries, keys)


def _merge_equal(table: Tensor) -> Tensor:
    """Keep one index of each of the first three axes along which the table does not change."""
    for axis in range(3):
        first = table.narrow(axis, 0, 1)
        if table.shape[axis] > 1 and bool((table == first).all()):
            table = first
    return table.clone() if table.untyped_storage().nbytes() > table.nbytes else table
