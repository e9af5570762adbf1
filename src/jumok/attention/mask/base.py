"""The base class of masks, and the classes of blocks of cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from jaxtyping import Bool, Int8
from torch import Tensor

from jumok.attention.grid import BlockGrid, Grid, Positions
from jumok.axes import Allowed
from jumok.errors import ArgumentError, ShapeError

from .band import Band

# The class of a block of cells: all forbidden, not known (or mixed), all allowed. In this order, Kleene's three-valued
# logic is arithmetic: & is min, | is max, ~x is 2 - x.
EMPTY, PARTIAL, FULL = 0, 1, 2
BlockClasses = Int8[Tensor, "#batch #head #query_block #key_block"]


class Mask:
    """Base class of masks: True = the query may attend to the key.

    Subclasses define ``evaluate`` (every cell) and ``classify_blocks`` (blocks of cells at once).
    """

    #: Levels of other masks inside this one.
    nesting: int = 0

    @property
    def relative(self) -> bool:
        """Whether the mask depends on query position - key position alone, so that equal tiles are computed once."""
        return False

    @property
    def band(self) -> Band:
        """How far from the query the allowed keys may be; without bounds unless the mask is known to have them."""
        return Band()

    @property
    def conjuncts(self) -> tuple[Mask, ...]:
        """Return masks that allow a cell together if and only if this mask does: the parts of ``a & b & c``."""
        return (self,)

    @property
    def needs_check(self) -> bool:
        """Whether the mask may fail to cover a grid, so that ``check`` must be called before it is used."""
        return True

    def evaluate(self, grid: Grid) -> Allowed:
        """Return True for every cell that is allowed; broadcasts to ``[batch, head, query, key]``."""
        raise NotImplementedError

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        """Return EMPTY, PARTIAL or FULL for every block; EMPTY and FULL only where that holds for every cell."""
        raise NotImplementedError

    def allows_all(self, grid: Grid) -> bool:
        """Return whether every cell is known to be allowed, without reading a tensor."""
        return False

    @property
    def table_sizes(self) -> dict[str, int]:
        """Return the sizes of this mask's tables on the axes batch, head, query and key, without unlimited axes."""
        return {}

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """Return the tensors that this mask reads."""
        return ()

    def check(self, grid: Grid) -> None:
        """Raise ShapeError if a table of this mask does not cover the grid."""

        def get_name() -> str:  # only for an error: torch.compile cannot trace it
            return f"mask.{repr(self).partition('(')[0]}"

        for axis, size in self.table_sizes.items():
            if axis in ("query", "key"):
                grid.check_covered(axis, size, get_name)
                continue
            count = grid.shape[0] if axis == "batch" else grid.shape[1]
            if size not in (1, count):
                raise ShapeError(f"{get_name()} has size {size} on the {axis} axis, but the query has {count}")

    @property
    def drawing_size(self) -> int:
        """Return how many positions a drawing needs to show the pattern of this mask."""
        return 8

    def dense(
        self,
        queries: int | Sequence[int] | Tensor,
        keys: int | Sequence[int] | Tensor,
        heads: int = 1,
        batch: int = 1,
        device: torch.device | None = None,
    ) -> Bool[Tensor, "batch head query key"]:
        """Return the mask as a boolean tensor.

        Args:
            queries: Number of queries, or their positions.
            keys: Number of keys, or their positions.
            device: Device of the tensor; the default device if None.

        Returns:
            True = may attend, ``[batch, head, query, key]``.

        >>> from jumok.attention import mask
        >>> mask.causal.dense(queries=[1], keys=3)
        tensor([[[[ True,  True, False]]]])
        """
        grid = Grid(range(batch), range(heads), _make_positions(queries), _make_positions(keys), device)
        self.check(grid)
        return self.evaluate(grid).expand(grid.shape).clone()

    def __and__(self, other: Mask) -> Mask:
        from .composite_masks import And  # composite_masks imports this module

        if isinstance(other, Mask):
            return And.join(self, other)
        _check_operand(other)
        return NotImplemented

    def __or__(self, other: Mask) -> Mask:
        from .composite_masks import Or

        if isinstance(other, Mask):
            return Or.join(self, other)
        _check_operand(other)
        return NotImplemented

    # Called only if the left operand is not a mask.
    def __rand__(self, other: object) -> Mask:
        _check_operand(other)
        return NotImplemented

    def __ror__(self, other: object) -> Mask:
        _check_operand(other)
        return NotImplemented

    def __invert__(self) -> Mask:
        from .composite_masks import Not

        return Not(self)

    def __bool__(self) -> NoReturn:
        # Without this error, "causal and window(3)" would be window(3).
        raise TypeError("a mask has no truth value; compose masks with & | ~, not with and, or, not")

    def __str__(self) -> str:
        from .notation import draw  # notation imports this module

        return draw(self)

    def _repr_svg_(self) -> str:
        """Return the drawing that a notebook displays."""
        from .svg import render_svg  # svg imports notation

        return render_svg(self)


def _check_operand(operand: object) -> None:
    """Raise ArgumentError if an operand that is not a mask is a common mistake."""
    from .notation import suggest_mask_for  # notation imports this module

    suggestion = suggest_mask_for(operand)
    if suggestion is not None:
        raise ArgumentError(suggestion)


def _make_positions(positions: int | Sequence[int] | Tensor) -> Positions:
    if isinstance(positions, Tensor):
        return positions
    return range(positions) if isinstance(positions, int) else torch.tensor(list(positions), dtype=torch.long)


def classify(any_allowed: Tensor, all_allowed: Tensor) -> Tensor:
    """Return EMPTY, PARTIAL or FULL for blocks.

    Args:
        any_allowed: False for blocks that are known to be forbidden in every cell.
        all_allowed: True for blocks that are known to be allowed in every cell.
    """
    return any_allowed.to(torch.int8) + all_allowed.to(torch.int8)


def classify_equality(low: Tensor, high: Tensor, other_low: Tensor, other_high: Tensor) -> Tensor:
    """Classify blocks of the comparison ``a == b`` by the bounds of a and b.

    Returns:
        FULL where both are one equal number, EMPTY where the intervals do not overlap, PARTIAL otherwise.
    """
    overlap = (low <= other_high) & (other_low <= high)
    equal = (low == high) & (other_low == other_high) & (low == other_low)
    return classify(overlap, equal)
