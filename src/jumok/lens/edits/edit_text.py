"""Read edits as they are written in Python, on a command line: ``Ablate(layer=0, head=1)``. Nothing is executed."""

from __future__ import annotations

import ast
from reprlib import repr as abbreviate  # limits depth and length

from jumok.errors import ArgumentError

from .edit_base import Edit

MAX_LENGTH = 10_000  # characters
EXAMPLE = "Ablate(layer=0, head=1)"


def parse_edit(text: str) -> Edit:
    """Parse an edit whose fields are integers, texts, lists, ranges, or a mask.

    Raises:
        ArgumentError: If the text is no edit, or a field is unknown or has a wrong type.

    >>> parse_edit("KnockOut(layer=3, head=1, query=9, key=range(2, 4))")
    KnockOut(layer=3, head=1, query=9, key=(2, 3), batch=None)
    >>> parse_edit("Remask(layer=1, mask=causal & window(8))").mask
    causal & window(8)
    """
    problem = ArgumentError(f"{abbreviate(text)} is not an edit; write it as in Python: {EXAMPLE}")
    try:
        call = ast.parse(text[:MAX_LENGTH].strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise problem from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise problem
    fields = {keyword.arg: _read_field(keyword, problem) for keyword in call.keywords}
    return Edit.from_json({"edit": call.func.id, **fields})


def _read_field(keyword: ast.keyword, problem: ArgumentError) -> object:
    """Return the content of a field, as it is in JSON."""
    if keyword.arg is None:
        raise problem
    try:
        match keyword.value:
            case ast.Call(func=ast.Name(id="range"), args=arguments, keywords=[]):
                return list(range(*map(ast.literal_eval, arguments)))
            case value if keyword.arg == "mask" and not isinstance(value, ast.Constant):
                return ast.unparse(value)
            case value:
                return ast.literal_eval(value)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise problem from None
