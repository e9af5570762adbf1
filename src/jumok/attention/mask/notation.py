"""Masks as text: draw a mask as a grid of characters, and parse an expression into a mask."""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable

from torch import Tensor

from jumok.attention import mask as masks
from jumok.attention.grid import Grid
from jumok.errors import ArgumentError, JumokError

from .base import Mask
from .composite_masks import And, Or

MAX_DRAWING_SIZE = 32  # positions; a terminal has eighty columns
MAX_QUOTE = 80  # characters of an expression that an error message repeats

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
#: one way to write each mask, for messages
EXAMPLES = {
    "causal": "causal",
    "window": "window(64)",
    "prefix": "prefix(4)",
    "padding": "padding([5, 3])",
    "documents": "documents([0, 0, 1])",
    "global_at": "global_at([0])",
    "random_keys": "random_keys(3, seed=0, length=64)",
    "blocks": "blocks(16)",
    "edge": "edge(query=3, key=1)",
}


def draw(mask: Mask, queries: int | None = None, keys: int | None = None) -> str:
    """Return the expression of a mask and a drawing of batch row 0, head 0: ■ may attend, · may not."""
    rows = [" ".join("■" if allowed else "·" for allowed in row) for row in evaluate_cells(mask, queries, keys)]
    if queries is None and keys is None and mask.drawing_size > MAX_DRAWING_SIZE:
        rows.append(f"(the first {MAX_DRAWING_SIZE} of {mask.drawing_size:,} positions)")
    return "\n".join([repr(mask), *rows])


def evaluate_cells(mask: Mask, queries: int | None = None, keys: int | None = None) -> list[list[bool]]:
    """Return the cells that ``draw`` shows, one list per query."""
    size = min(max(mask.drawing_size, 4), MAX_DRAWING_SIZE)
    table_sizes = mask.table_sizes
    rows = min(queries or size, table_sizes.get("query", queries or size))
    columns = min(keys or size, table_sizes.get("key", keys or size))
    grid = Grid(range(1), range(1), range(rows), range(columns))
    cells: list[list[bool]] = mask.evaluate(grid).expand(grid.shape)[0, 0].tolist()
    return cells


def parse(text: str) -> Mask:
    """Parse an expression of mask names, ``&``, ``|``, ``~`` and integers. Nothing is executed."""
    try:
        return _build_mask(ast.parse(text.strip(), mode="eval").body, text)
    except (SyntaxError, ValueError) as error:
        if isinstance(error, JumokError):
            raise
        raise ArgumentError(f"{_shorten(text)!r} is not a mask; an example is: causal & window(3)") from None
    except (RecursionError, MemoryError):
        return _parse_long_chain(text)


def _parse_long_chain(text: str) -> Mask:
    """Parse a chain of one operator that is too long for Python's parser, part by part."""
    for character, composite in (("|", Or), ("&", And)):  # "|" binds less tightly
        parts = _split_outside_brackets(text, character)
        if len(parts) > 1:
            return composite.join(*(parse(part) for part in parts))
    raise ArgumentError(f"the mask expression {_shorten(text)!r} is nested too deeply; simplify it")


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    parts, start, depth = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_QUOTE else f"{text[:MAX_QUOTE]}..."


def _build_mask(node: ast.expr, text: str) -> Mask:
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return _build_mask(left, text) & _build_mask(right, text)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _build_mask(left, text) | _build_mask(right, text)
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            return ~_build_mask(inner, text)
        case ast.Name(id="causal"):
            return masks.causal
        case ast.Call(func=ast.Name(id=name)) if name in MASK_FUNCTIONS:
            return _call_mask_function(name, node, text)

    raise ArgumentError(f"{_shorten(ast.unparse(node))!r} is not a mask; {_suggest_mask(node)}")


def _call_mask_function(name: str, call: ast.Call, text: str) -> Mask:
    function = MASK_FUNCTIONS[name]
    arguments = [_parse_literal(argument, text) for argument in call.args]
    keywords = {str(keyword.arg): _parse_literal(keyword.value, text) for keyword in call.keywords}
    try:
        return function(*arguments, **keywords)
    except TypeError:
        parameters = ", ".join(inspect.signature(function).parameters)
        raise ArgumentError(
            f"{_shorten(ast.unparse(call))} has wrong arguments; write {name}({parameters}), "
            f"for example {EXAMPLES[name]}"
        ) from None


def _suggest_mask(node: ast.expr) -> str:
    """Return what to write instead of an expression that is not a mask."""
    match node:
        case ast.Name(id=name) if name in MASK_FUNCTIONS:
            return f"{name} needs arguments: did you mean {EXAMPLES[name]}?"
        case ast.Call(func=ast.Name(id="causal")):
            return "did you mean causal, without parentheses?"
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return "join masks with & | ~, not with and, or, not"
        case ast.Tuple():
            return "join masks with & | ~, not with commas"
    wrong = ast.unparse(node).partition("(")[0]
    similar = difflib.get_close_matches(wrong.lower(), EXAMPLES, 1)
    if similar:
        return f"did you mean {EXAMPLES[similar[0]]}?"
    return f"choose from {', '.join(EXAMPLES.values())}, joined by & | ~"


def suggest_mask_for(value: object) -> str | None:
    """Return a message that says which mask to write instead of a mask function or a tensor; None for other values.

    >>> suggest_mask_for(masks.window)
    'mask.window is a function, not yet a mask; call it with its arguments, for example mask.window(64)'
    """
    examples = EXAMPLES | {"given": "given(tensor)", "parse": 'parse("causal & window(64)")'}
    for name, example in examples.items():
        if value is getattr(masks, name):
            return f"mask.{name} is a function, not yet a mask; call it with its arguments, for example mask.{example}"
    if isinstance(value, Tensor):
        return "a tensor is not a mask; write mask.given(tensor), with booleans in which True = may attend"
    return None


def _parse_literal(node: ast.expr, text: str) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise ArgumentError(
            f"{_shorten(ast.unparse(node))!r} in {_shorten(text)!r} must be an integer or a list of integers"
        ) from None
