"""The base class of masks, and the masks that ``&``, ``|`` and ``~`` make."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, NoReturn, SupportsIndex, TypeVar

import torch
from jaxtyping import Bool, Int8
from torch import Tensor

from jumok.attention.grid import BlockGrid, Grid, Positions
from jumok.axes import Allowed
from jumok.errors import ArgumentError, ShapeError

MAX_INTEGER = 2**62  # positions are 64-bit integers, which masks add and multiply
# Levels of & inside | inside ~ and so on; a chain such as a & b & c is one level. Every method of a mask calls itself
# once per level, and Python limits the depth of calls.
MAX_NESTING = 100

# The class of a block of cells: all forbidden, not known (or mixed), all allowed. In this order, Kleene's three-valued
# logic is arithmetic: & is min, | is max, ~x is 2 - x.
EMPTY, PARTIAL, FULL = 0, 1, 2
BlockClasses = Int8[Tensor, "#batch #head #query_block #key_block"]


class Band(NamedTuple):
    """Bounds of ``query position - key position`` over all allowed cells: ``-ahead <= distance <= behind``.

    Cells inside the bounds may be forbidden too. None is no bound.
    """

    behind: int | None = None
    ahead: int | None = None

    def intersect(self, other: Band) -> Band:
        """Return the band of the cells that are in this band and in the other one."""
        return Band(_min_bound(self.behind, other.behind), _min_bound(self.ahead, other.ahead))

    def unite(self, other: Band) -> Band:
        """Return the smallest band that contains this band and the other one."""
        return Band(_max_bound(self.behind, other.behind), _max_bound(self.ahead, other.ahead))


def _min_bound(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def _max_bound(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else max(left, right)


class Mask:
    """Base class of masks: True = the query may attend to the key.

    A subclass defines ``evaluate`` and ``__repr__``, and overrides what it knows better than the defaults here. The
    masks of this package have a function beside their class, registered by ``mask_function``, that checks arguments.
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
        """Return EMPTY, PARTIAL or FULL for every block; EMPTY and FULL only where that holds for every cell. PARTIAL,
        the default, is always right, but the ``blocked`` backend skips only what is EMPTY."""
        return torch.full((1, 1, 1, 1), PARTIAL, dtype=torch.int8, device=blocks.keys.device)

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

    @property
    def is_traceable(self) -> bool:
        """Whether a compiler can trace ``evaluate``, as the backend "flex" needs."""
        return True

    def make_traceable(self, keys: int) -> Mask:
        """Return an equal mask for a compiler: it creates no tensors when it is evaluated at positions 0 to keys - 1,
        and its tables are separate objects on the same memory."""
        return self

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
        return max((size for axis, size in self.table_sizes.items() if axis in ("query", "key")), default=8)

    def dense(
        self,
        queries: int | Sequence[int] | Tensor,
        keys: int | Sequence[int] | Tensor,
        heads: int = 1,
        batch: int = 1,
        device: torch.device | None = None,
    ) -> Bool[Tensor, "batch head query key"]:
        """Return the mask as a boolean tensor, True = may attend.

        Args:
            queries: Number of queries, or their positions.
            keys: Number of keys, or their positions.

        >>> from jumok.attention import mask
        >>> mask.causal.dense(queries=[1], keys=3)
        tensor([[[[ True,  True, False]]]])
        """
        grid = Grid(range(batch), range(heads), _make_positions(queries), _make_positions(keys), device)
        self.check(grid)
        return self.evaluate(grid).expand(grid.shape).clone()

    def __and__(self, other: Mask) -> Mask:
        _check_operand(other)
        return And.join(self, other) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: Mask) -> Mask:
        _check_operand(other)
        return Or.join(self, other) if isinstance(other, Mask) else NotImplemented

    def __rand__(self, other: object) -> Mask:  # called only if the left operand is not a mask
        _check_operand(other)
        return NotImplemented

    __ror__ = __rand__

    def __invert__(self) -> Mask:
        return Not((self,))

    def __bool__(self) -> NoReturn:
        # Without this error, "causal and window(3)" would be window(3).
        raise TypeError("a mask has no truth value; compose masks with & | ~, not with and, or, not")

    def __str__(self) -> str:
        from .notation import draw  # notation imports this module

        return draw(self)

    def _repr_svg_(self) -> str:
        """Return the drawing that a notebook displays."""
        from .notation import render_svg

        return render_svg(self)


def _check_operand(operand: object) -> None:
    """Raise ArgumentError if an operand that is not a mask is a common mistake."""
    from .notation import suggest_mask_for  # notation imports this module

    suggestion = None if isinstance(operand, Mask) else suggest_mask_for(operand)
    if suggestion is not None:
        raise ArgumentError(suggestion)


def _make_positions(positions: int | Sequence[int] | Tensor) -> Positions:
    if isinstance(positions, Tensor):
        return positions
    return range(positions) if isinstance(positions, int) else torch.tensor(list(positions), dtype=torch.long)


def classify(any_allowed: Tensor, all_allowed: Tensor) -> Tensor:
    """Return EMPTY for blocks in which no cell can be allowed, FULL if all are known to be allowed, else PARTIAL."""
    return any_allowed.to(torch.int8) + all_allowed.to(torch.int8)


def classify_equality(low: Tensor, high: Tensor, other_low: Tensor, other_high: Tensor) -> Tensor:
    """Classify blocks of the comparison ``a == b`` by the bounds of a and b."""
    overlap = (low <= other_high) & (other_low <= high)
    equal = (low == high) & (other_low == other_high) & (low == other_low)
    return classify(overlap, equal)


@dataclass(frozen=True, repr=False)
class CompositeMask(Mask):
    """Masks joined by an operator: the common part of ``And``, ``Or`` and ``Not``."""

    parts: tuple[Mask, ...]

    def __post_init__(self) -> None:
        nesting = 1 + max(part.nesting for part in self.parts)
        if nesting > MAX_NESTING:
            raise ArgumentError(
                f"the mask expression is nested more than {MAX_NESTING} levels deep; simplify it, or pass the cells as "
                "mask.given(tensor)"
            )
        object.__setattr__(self, "nesting", nesting)  # the dataclass is frozen

    @classmethod
    def join(cls, *masks: Mask) -> Mask:
        """Join masks; a chain of one operator becomes one mask with many parts, not a nested mask."""
        return cls(tuple(part for mask in masks for part in (mask.parts if isinstance(mask, cls) else (mask,))))

    @property
    def relative(self) -> bool:
        return all(part.relative for part in self.parts)

    @property
    def needs_check(self) -> bool:
        return any(part.needs_check for part in self.parts)

    @property
    def table_sizes(self) -> dict[str, int]:
        smallest: dict[str, int] = {}
        for part in self.parts:
            for axis, size in part.table_sizes.items():
                smallest[axis] = min(size, smallest.get(axis, size))
        return smallest

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return tuple(table for part in self.parts for table in part.tables)

    @property
    def is_traceable(self) -> bool:
        return all(part.is_traceable for part in self.parts)

    def make_traceable(self, keys: int) -> Mask:
        return type(self)(tuple(part.make_traceable(keys) for part in self.parts))

    def check(self, grid: Grid) -> None:
        for part in self.parts:
            part.check(grid)

    @property
    def drawing_size(self) -> int:
        return max(part.drawing_size for part in self.parts)


@dataclass(frozen=True, repr=False)
class And(CompositeMask):
    """``a & b & c``: allowed where all parts allow."""

    @property
    def band(self) -> Band:
        return reduce(Band.intersect, (part.band for part in self.parts))

    @property
    def conjuncts(self) -> tuple[Mask, ...]:
        return self.parts

    def evaluate(self, grid: Grid) -> Allowed:
        return reduce(torch.logical_and, (part.evaluate(grid) for part in self.parts))

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return reduce(torch.minimum, (part.classify_blocks(blocks) for part in self.parts))

    def allows_all(self, grid: Grid) -> bool:
        return all(part.allows_all(grid) for part in self.parts)

    def __repr__(self) -> str:
        return " & ".join(f"({part!r})" if isinstance(part, Or) else repr(part) for part in self.parts)


@dataclass(frozen=True, repr=False)
class Or(CompositeMask):
    """``a | b | c``: allowed where at least one part allows."""

    @property
    def band(self) -> Band:
        return reduce(Band.unite, (part.band for part in self.parts))

    def evaluate(self, grid: Grid) -> Allowed:
        return reduce(torch.logical_or, (part.evaluate(grid) for part in self.parts))

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return reduce(torch.maximum, (part.classify_blocks(blocks) for part in self.parts))

    def allows_all(self, grid: Grid) -> bool:
        return any(part.allows_all(grid) for part in self.parts)

    def __repr__(self) -> str:
        return " | ".join(repr(part) for part in self.parts)


@dataclass(frozen=True, repr=False)
class Not(CompositeMask):
    """``~part``: allowed where the only part forbids."""

    def __invert__(self) -> Mask:
        return self.parts[0]

    def evaluate(self, grid: Grid) -> Allowed:
        return ~self.parts[0].evaluate(grid)

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return FULL - self.parts[0].classify_blocks(blocks)

    def __repr__(self) -> str:
        part = self.parts[0]
        return f"~({part!r})" if isinstance(part, And | Or) else f"~{part!r}"


class MaskFunction(NamedTuple):
    """A function that makes masks, and an example of a call, such as ``"window(64)"``."""

    function: Callable[..., Mask]
    example: str


MASK_FUNCTIONS: dict[str, MaskFunction] = {}  # by name; ``parse`` and error messages read it
FunctionType = TypeVar("FunctionType", bound=Callable[..., Mask])


def mask_function(example: str) -> Callable[[FunctionType], FunctionType]:
    """Register a function that makes masks, as a decorator."""

    def register(function: FunctionType) -> FunctionType:
        MASK_FUNCTIONS[function.__name__] = MaskFunction(function, example)
        return function

    return register


def check_integer(name: str, number: object, smallest: int, largest: int = MAX_INTEGER) -> int:
    """Return an integer, or raise ArgumentError if it is none or out of range."""
    try:
        integer = operator.index(number) if isinstance(number, SupportsIndex) else None
    except TypeError:  # a tensor of floating-point numbers
        integer = None

    if integer is None:
        raise ArgumentError(f"{name} takes integers, not {number!r}")
    if integer < smallest or isinstance(number, bool):
        raise ArgumentError(f"{name} takes integers of at least {smallest}, not {number!r}")
    if integer > largest:
        raise ArgumentError(f"{name} takes integers of at most {largest}, not {number!r}")
    return integer
