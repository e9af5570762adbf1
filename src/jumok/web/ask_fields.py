"""Read the fields of an ask, which is not trusted: types, ranges and sizes."""

from __future__ import annotations

from reprlib import repr as abbreviate  # limits depth and length
from typing import Any

from jumok.errors import ArgumentError

MAX_TEXT = 200_000  # characters of the text that a model reads
MAX_NAME = 1_000  # characters of a model's name or a site's name
MAX_ID = 2**53  # the integers that JavaScript can represent
MAX_EDITS = 200
MAX_MASK_TEXT = 1_000  # characters of a mask expression


def read_integer(ask: dict[str, Any], name: str, low: int, high: int, *, default: int | None = None) -> int:
    """Return an integer field.

    Args:
        default: The integer of a field that is missing; None: the field is required.

    Raises:
        ArgumentError: If it is missing, not an integer, or out of range.
    """
    number = ask.get(name, default)
    if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
        limits = f"an integer from {low:,} to {high:,}" if high >= low else "an integer in an empty range"
        raise ArgumentError(f"{name} must be {limits}, not {abbreviate(number)}")
    return number


def read_choice(ask: dict[str, Any], name: str, choices: tuple[str, ...], *, default: str | None = None) -> str:
    """Return a field that is one of several words.

    Args:
        default: The word of a field that is missing; None: the field is required.

    Raises:
        ArgumentError: If the field is not one of the words.
    """
    word = ask.get(name, default)
    if not isinstance(word, str) or word not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, not {abbreviate(word)}")
    return word


def read_boolean(ask: dict[str, Any], name: str) -> bool:
    """Return a boolean field; False if it is missing.

    Raises:
        ArgumentError: If it is not a boolean.
    """
    flag = ask.get(name, False)
    if not isinstance(flag, bool):
        raise ArgumentError(f"{name} must be true or false, not {abbreviate(flag)}")
    return flag


def read_text(ask: dict[str, Any], name: str, longest: int) -> str | None:
    """Return a text field; None if it is null or missing.

    Raises:
        ArgumentError: If it is not a text, too long, or contains half of a character.
    """
    text = ask.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise ArgumentError(f"{name} must be a text, not {abbreviate(text)}")
    if len(text) > longest:
        raise ArgumentError(f"{name} has {len(text):,} characters; the limit is {longest:,}")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ArgumentError(f"{name} contains half of a character, a lone surrogate; remove it")
    return text


def read_range(ask: dict[str, Any], name: str, count: int) -> tuple[int, int]:
    """Return a field ``[begin, end]``, a part of an axis that is not empty.

    Raises:
        ArgumentError: If it is not a range inside the axis.
    """
    pair = ask.get(name)
    if not isinstance(pair, list) or len(pair) != 2:
        raise ArgumentError(f"{name} must be [begin, end], not {abbreviate(pair)}")
    bounds = {"begin": pair[0], "end": pair[1]}
    begin = read_integer(bounds, "begin", 0, count - 1)
    return begin, read_integer(bounds, "end", begin + 1, count)


def read_indices(ask: dict[str, Any], name: str, count: int) -> tuple[int, ...]:
    """Return a field that lists indices: at least one, each once; they are returned in ascending order.

    Args:
        count: The number of things that are counted from 0.

    Raises:
        ArgumentError: If it is not such a list.
    """
    indices = ask.get(name)
    if not isinstance(indices, list) or not 1 <= len(indices) <= count:
        raise ArgumentError(f"{name} must be a list of 1 to {count:,} integers, not {abbreviate(indices)}")
    checked = sorted({read_integer({name: index}, name, 0, count - 1) for index in indices})
    if len(checked) < len(indices):
        raise ArgumentError(f"{name} must name each index once, not {abbreviate(indices)}")
    return tuple(checked)


def read_edits(ask: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the edits of an ask as JSON objects; ``Edit.from_json`` checks their fields.

    Raises:
        ArgumentError: If they are not a list of at most MAX_EDITS objects, or a mask is too long.
    """
    edits = ask.get("edits")
    if edits is None:
        return []
    if not isinstance(edits, list) or not all(isinstance(edit, dict) for edit in edits):
        raise ArgumentError(f"edits must be a list of objects, not {abbreviate(edits)}")
    if len(edits) > MAX_EDITS:
        raise ArgumentError(f"there are {len(edits):,} edits; the limit is {MAX_EDITS}")
    for edit in edits:
        read_text(edit, "mask", MAX_MASK_TEXT)
        if isinstance(edit.get("layer"), str):
            read_text(edit, "layer", MAX_NAME)
    return edits


def read_id(ask: dict[str, Any], name: str = "id") -> int | str:
    """Return the id of an ask.

    Raises:
        ArgumentError: If it is neither an integer nor a short text.
    """
    ask_id = ask.get(name)
    if isinstance(ask_id, str) and len(ask_id) <= 64:
        return ask_id
    return read_integer(ask, name, 0, MAX_ID)


def read_selection(ask: dict[str, Any]) -> dict[str, int | None]:
    """Return where the user is: site, head, query and key; their ranges are not checked.

    Raises:
        ArgumentError: If it is not an object with these fields.
    """
    selection = ask.get("selection")
    if not isinstance(selection, dict):
        raise ArgumentError(f"selection must be an object with site and head, not {abbreviate(selection)}")
    chosen: dict[str, int | None] = {}
    for name in ("site", "head", "query", "key"):
        is_optional = name in ("query", "key") and selection.get(name) is None
        chosen[name] = None if is_optional else read_integer(selection, name, 0, MAX_ID)
    return chosen
