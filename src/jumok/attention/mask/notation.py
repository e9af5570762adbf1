"""Masks as text and pictures: parse an expression into a mask, and draw a mask in characters or as SVG."""

from __future__ import annotations

import ast
import difflib
import inspect
from html import escape

from torch import Tensor

from jumok.attention.grid import Grid
from jumok.errors import ArgumentError, JumokError, shorten

from .base import MASK_FUNCTIONS, And, Mask, Or
from .position_masks import causal
from .table_masks import given

MAX_DRAWING_SIZE = 32  # positions; a terminal has eighty columns

# The drawing for notebooks: one square per cell. It needs no drawing library.
CELL, GAP = 14, 2  # pixels
# pixels for the numbers of the queries, the title with the numbers of the keys, the note
LEFT, TOP, BOTTOM = 28, 44, 20
ALLOWED, FORBIDDEN, INK = "#08306b", "#e3edf7", "#444444"
CHARACTER_WIDTH = 7.3  # pixels of a character of the title
MAX_TITLE = 120  # characters


def parse(text: str) -> Mask:
    """Parse an expression of mask names, ``&``, ``|``, ``~``, parentheses and integers, such as
    ``"causal & (window(4) | global_at([0]))"``. Nothing is executed."""
    try:
        return _build_mask(ast.parse(text.strip(), mode="eval").body, text)
    except (SyntaxError, ValueError) as error:
        if isinstance(error, JumokError):
            raise
        raise ArgumentError(f"{shorten(text)!r} is not a mask; an example is: causal & window(3)") from None
    except (RecursionError, MemoryError):
        return _parse_long_chain(text)


def _parse_long_chain(text: str) -> Mask:
    """Parse a chain of one operator that is too long for Python's parser, part by part."""
    for character, composite in (("|", Or), ("&", And)):  # "|" binds less tightly
        parts = _split_outside_brackets(text, character)
        if len(parts) > 1:
            return composite.join(*(parse(part) for part in parts))
    raise ArgumentError(f"the mask expression {shorten(text)!r} is nested too deeply; simplify it")


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    parts, start, depth = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _build_mask(node: ast.expr, text: str) -> Mask:
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return _build_mask(left, text) & _build_mask(right, text)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _build_mask(left, text) | _build_mask(right, text)
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            return ~_build_mask(inner, text)
        case ast.Name(id="causal"):
            return causal
        case ast.Call(func=ast.Name(id=name)) if name in MASK_FUNCTIONS:
            return _call_mask_function(name, node, text)

    raise ArgumentError(f"{shorten(ast.unparse(node))!r} is not a mask; {_suggest_mask(node)}")


def _call_mask_function(name: str, call: ast.Call, text: str) -> Mask:
    function, example = MASK_FUNCTIONS[name]
    arguments = [_parse_literal(argument, text) for argument in call.args]
    keywords = {str(keyword.arg): _parse_literal(keyword.value, text) for keyword in call.keywords}
    try:
        return function(*arguments, **keywords)
    except TypeError:
        parameters = ", ".join(inspect.signature(function).parameters)
        raise ArgumentError(
            f"{shorten(ast.unparse(call))} has wrong arguments; write {name}({parameters}), for example {example}"
        ) from None


def _suggest_mask(node: ast.expr) -> str:
    """Return what to write instead of an expression that is not a mask."""
    match node:
        case ast.Name(id=name) if name in MASK_FUNCTIONS:
            return f"{name} needs arguments: did you mean {MASK_FUNCTIONS[name].example}?"
        case ast.Call(func=ast.Name(id="causal")):
            return "did you mean causal, without parentheses?"
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return "join masks with & | ~, not with and, or, not"
        case ast.Tuple():
            return "join masks with & | ~, not with commas"
    wrong = ast.unparse(node).partition("(")[0]
    examples = {"causal": "causal", **{name: example for name, (_, example) in MASK_FUNCTIONS.items()}}
    similar = difflib.get_close_matches(wrong.lower(), examples, 1)
    if similar:
        return f"did you mean {examples[similar[0]]}?"
    return f"choose from {', '.join(examples.values())}, joined by & | ~"


def suggest_mask_for(value: object) -> str | None:
    """Return a message that says which mask to write instead of a mask function or a tensor; None for other values.

    >>> from jumok.attention import mask
    >>> suggest_mask_for(mask.window)
    'mask.window is a function, not yet a mask; call it with its arguments, for example mask.window(64)'
    """
    functions = [*MASK_FUNCTIONS.values(), (given, "given(tensor)"), (parse, 'parse("causal & window(64)")')]
    for function, example in functions:
        if value is function:
            name = function.__name__
            return f"mask.{name} is a function, not yet a mask; call it with its arguments, for example mask.{example}"
    if isinstance(value, Tensor):
        return "a tensor is not a mask; write mask.given(tensor), with booleans in which True = may attend"
    return None


def _parse_literal(node: ast.expr, text: str) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise ArgumentError(
            f"{shorten(ast.unparse(node))!r} in {shorten(text)!r} must be an integer or a list of integers"
        ) from None


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


def render_svg(mask: Mask) -> str:
    """Return a drawing of a mask for batch row 0 and head 0: dark cells may attend."""
    cells = evaluate_cells(mask)
    columns = len(cells[0]) if cells else 0
    expression = repr(mask)
    title = expression if len(expression) <= MAX_TITLE else expression[: MAX_TITLE - 1] + "…"
    step = CELL + GAP
    bottom = TOP + step * len(cells)
    note = "query down, key across; dark: may attend"
    if mask.drawing_size > MAX_DRAWING_SIZE:
        note += f"; the first {MAX_DRAWING_SIZE} of {mask.drawing_size:,} positions"
    width = round(max(LEFT + step * columns, CHARACTER_WIDTH * len(title), 5.4 * len(note)) + 8)

    texts = [_write(4, 16, escape(title), 12, "start"), _write(4, bottom + 14, note, 9, "start")]
    every = 1 if columns <= 10 else 4  # numbers of two digits need more room than a cell
    texts += [_write(LEFT + step * key + CELL / 2, TOP - 6, str(key), 9, "middle") for key in range(0, columns, every)]
    texts += [_write(LEFT - 6, TOP + step * query + 11, str(query), 9, "end") for query in range(0, len(cells), every)]
    squares = [
        f'<rect x="{LEFT + step * key}" y="{TOP + step * query}" width="{CELL}" height="{CELL}" '
        f'fill="{ALLOWED if allowed else FORBIDDEN}"/>'
        for query, row in enumerate(cells)
        for key, allowed in enumerate(row)
    ]
    size = f'width="{width}" height="{bottom + BOTTOM}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(squares + texts)}</svg>'


def _write(x: int | float, y: int | float, text: str, size: int, anchor: str) -> str:
    """Return a line of text."""
    font = f'font-family="sans-serif" font-size="{size}" fill="{INK}"'
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {font}>{text}</text>'
