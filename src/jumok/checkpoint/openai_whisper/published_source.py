"""Read Whisper's special tokens from the source files that OpenAI published. The files are parsed, never executed.

The catalogue pins the files by SHA-256, so their form is known: a dictionary LANGUAGES, a list of special tokens, the
symbols that a transcript never contains, and the alignment heads of each model in base 85.
"""

from __future__ import annotations

import ast
import base64
import gzip
from dataclasses import dataclass
from pathlib import Path

from jumok.errors import CheckpointError

TIME_TOKENS = 1501  # 0.00 to 30.00 s


@dataclass(frozen=True)
class PublishedTokens:
    """The special tokens of Whisper, by name.

    Args:
        notes: Symbols whose first token is suppressed in any case.
    """

    special: tuple[str, ...]
    languages: tuple[str, ...]
    symbols: tuple[str, ...]
    notes: tuple[str, ...]


def read_special_tokens(path: Path, language_count: int) -> PublishedTokens:
    """Read the special tokens."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned = _collect_assignments(tree)
    try:
        languages = tuple(ast.literal_eval(assigned["LANGUAGES"][0]))[:language_count]
        first, second = assigned["symbols"]
        symbols = [*_read_argument(first), *_read_split_text(second)]
        notes = _read_argument(assigned["miscellaneous"][0])
        special = _expand_special(assigned["specials"][0], languages)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise CheckpointError(f"{path.name} does not have the expected form: {error}") from None
    return PublishedTokens(tuple(special), languages, tuple(symbols), tuple(notes))


def read_alignment_heads(path: Path, name: str, layers: int, heads: int) -> tuple[tuple[int, int], ...]:
    """Return the published (block, head) pairs of a model."""
    assigned = _collect_assignments(ast.parse(path.read_text(encoding="utf-8")))
    try:
        packed = ast.literal_eval(assigned["_ALIGNMENT_HEADS"][0])[name]
        marks = gzip.decompress(base64.b85decode(packed))
    except (KeyError, ValueError, OSError) as error:
        raise CheckpointError(f"{path.name} does not have the expected form: {error}") from None
    if len(marks) != layers * heads:
        raise CheckpointError(f"{path.name} describes {len(marks)} heads of {name}, but the model has {layers * heads}")
    return tuple(divmod(index, heads) for index, mark in enumerate(marks) if mark)


def _collect_assignments(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """Return the expressions that are assigned or added to each name, in their order in the file."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            assigned.setdefault(node.target.id, []).append(node.value)
    return assigned


def _read_argument(call: ast.expr) -> list[str]:
    """Return the characters of list("...") or set("...")."""
    assert isinstance(call, ast.Call)
    return list(ast.literal_eval(call.args[0]))


def _read_split_text(call: ast.expr) -> list[str]:
    """Return the words of "...".split()."""
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    return str(ast.literal_eval(call.func.value)).split()


def _expand_special(specials: ast.expr, languages: tuple[str, ...]) -> list[str]:
    """Return all special tokens. The list has two comprehensions: the first for languages, the second for times."""
    assert isinstance(specials, ast.List)
    expansions = iter(
        (
            [f"<|{code}|>" for code in languages],
            [f"<|{index * 0.02:.2f}|>" for index in range(TIME_TOKENS)],
        )
    )
    tokens: list[str] = []
    for element in specials.elts:
        tokens += next(expansions) if isinstance(element, ast.Starred) else [ast.literal_eval(element)]
    if next(expansions, None) is not None:
        raise ValueError("the list of special tokens has no languages or no times")
    return tokens
