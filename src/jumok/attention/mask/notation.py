"""Masks as text: drawn for people, and read back from what people (and files) write."""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable

from jumok.attention import mask as masks
from jumok.attention.grid import Grid
from jumok.errors import ArgumentError

from .base import Mask

LARGEST_DRAWING = 32  # positions; a terminal is eighty columns wide

MASK_FUNCTIONS: dict[str, Callable[..., Mask]] = {
    "window": masks.window,
    "prefix": masks.prefix,
    "padding": masks.padding,
    "documents": masks.documents,
    "global_at": masks.global_at,
    "random_keys": masks.random_keys,
    "blocks": masks.blocks,
    "edge": masks.edge,
}


def draw(mask: Mask, queries: int | None = None, keys: int | None = None) -> str:
    """The expression, then one line a query: ■ may attend, · may not. Batch 0, head 0."""
    rows = [" ".join("■" if cell else "·" for cell in row) for row in cells(mask, queries, keys)]
    if queries is None and keys is None and mask.extent() > LARGEST_DRAWING:
        rows.append(f"(the first {LARGEST_DRAWING} of {mask.extent():,} positions)")
    return "\n".join([repr(mask), *rows])


def cells(mask: Mask, queries: int | None = None, keys: int | None = None) -> list[list[bool]]:
    """What is drawn: as many cells as asked for, or as show what the mask is about; a table as far as it goes."""
    extent = min(max(mask.extent(), 4), LARGEST_DRAWING)
    limits = mask.limits()
    rows = min(queries or extent, limits.get("query", queries or extent))
    columns = min(keys or extent, limits.get("key", keys or extent))
    grid = Grid(range(1), range(1), range(rows), range(columns))
    found: list[list[bool]] = mask.evaluate(grid).expand(grid.shape)[0, 0].tolist()
    return found


def parse(text: str) -> Mask:
    """Read an expression of mask words, ``&``, ``|``, ``~`` and whole numbers. Nothing is executed."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ArgumentError(f"{text!r} is not a mask; an example is: causal & window(3)") from None
    try:
        return _read(tree, text)
    except RecursionError:
        raise ArgumentError("the mask is nested too deeply to be read") from None


def _read(node: ast.expr, text: str) -> Mask:
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return _read(left, text) & _read(right, text)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _read(left, text) | _read(right, text)
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            return ~_read(inner, text)
        case ast.Name(id="causal"):
            return masks.causal
        case ast.Call(func=ast.Name(id=word), args=arguments, keywords=named) if word in MASK_FUNCTIONS:
            try:
                return MASK_FUNCTIONS[word](
                    *(_number(one, text) for one in arguments),
                    **{str(one.arg): _number(one.value, text) for one in named},
                )
            except TypeError:
                takes = ", ".join(inspect.signature(MASK_FUNCTIONS[word]).parameters)
                raise ArgumentError(f"{ast.unparse(node)} is not how it is written; it is {word}({takes})") from None
    known = ["causal", *MASK_FUNCTIONS]
    wrong = ast.unparse(node)
    near = difflib.get_close_matches(wrong.partition("(")[0], known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}, joined by & | ~"
    raise ArgumentError(f"{wrong[:80]!r} is not a mask; {hint}")


def _number(node: ast.expr, text: str) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise ArgumentError(f"{ast.unparse(node)!r} in {text!r} should be a whole number or a list of them") from None
