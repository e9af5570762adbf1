"""Bound how much a text can grow in the steps of a tokenizer.json: replacements, prefixes, tables and patterns."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy

from jumok.data.tokenizers.checks.pattern_cost import check_search_cost
from jumok.errors import ArgumentError

JSONPart: TypeAlias = Mapping[str, Any]
JSONContent: TypeAlias = Mapping[str, Any] | list[Any] | str | int | float | bool | None

MAX_REPLACEMENT = 128  # bytes of a replacement in a table of characters; the longest real ones have 33
MAX_PATTERN = 10_000  # characters of a regular expression


def compute_growth(step: JSONPart) -> int:
    """Return an upper bound of the characters that a step makes of one character or token.

    Args:
        step: A normalizer, pre-tokenizer or decoder; sequences are not steps.

    Raises:
        ArgumentError: If a setting of the step is outside its range.
    """
    kind = step.get("type")
    if kind == "Replace":
        return _compute_replacement_growth(step)
    if kind == "Prepend":
        return 1 + measure_text(step.get("prepend"))
    if kind == "Precompiled":
        return _compute_table_growth(step.get("precompiled_charsmap"))
    if kind == "Split":
        _check_pattern(step.get("pattern"))
    if kind == "FixedLength":
        require_integer(step, "length", 1, 2**31)
    if kind == "Strip" and "stop" in step:  # the decoder; the normalizer of this name has two booleans
        require_integer(step, "start", 0, 1000)
        require_integer(step, "stop", 0, 0)  # the library panics on a token that is shorter
    return {"ByteLevel": 4, "Metaspace": 2, "BertNormalizer": 3, "WordPiece": 2}.get(str(kind), 1)


def _compute_replacement_growth(step: JSONPart) -> int:
    content = measure_text(step.get("content"))
    pattern = step.get("pattern")
    literal = pattern.get("String") if isinstance(pattern, dict) else pattern
    if isinstance(literal, str) and literal:
        return max(1, -(-content // len(literal)))
    _check_pattern(pattern)
    return 1 + content  # a regular expression can match between all characters


def _check_pattern(pattern: JSONContent) -> None:
    """Refuse regular expressions whose time grows faster than the square of a text's length."""
    expression = pattern.get("Regex") if isinstance(pattern, dict) else None
    if not isinstance(expression, str):
        return
    if len(expression) > MAX_PATTERN:
        raise ArgumentError(
            f"it has a regular expression of {len(expression):,} characters; the limit is {MAX_PATTERN:,}"
        )
    check_search_cost(expression)


def _compute_table_growth(charsmap: JSONContent) -> int:
    """Return the length of the longest replacement in SentencePiece's table of characters, after checking its trie.

    The format is the trie's size in bytes, the trie (a double array, Aoe 1989) and the replacements, each ended by 0.
    """
    if charsmap is None:
        return 1
    invalid = ArgumentError("its table of characters (precompiled_charsmap) is damaged")
    try:
        table = base64.b64decode(str(charsmap), validate=True)
        size = int.from_bytes(table[:4], "little")
        if len(table) < 8 or size % 4 or not 4 <= size <= len(table) - 4:
            raise invalid
        units = numpy.frombuffer(table, "<u4", size // 4, 4).astype(numpy.int64)
        replacements = table[4 + size :]
        replacements.decode()
    except (ValueError, binascii.Error):
        raise invalid from None

    nodes = numpy.flatnonzero(units < 2**31)
    targets = nodes ^ (units[nodes] >> 10 << ((units[nodes] & 512) >> 6))
    leaves = targets[(units[nodes] & 256) > 0]
    if bool(((targets | 255) >= len(units)).any()):
        raise invalid
    starts = units[leaves] & (2**31 - 1)
    if bool((starts > len(replacements)).any()):
        raise invalid
    letters = numpy.frombuffer(replacements + b"\0", numpy.uint8)
    if bool(((letters[starts] & 0xC0) == 0x80).any()):  # the middle of a character
        raise invalid
    longest = max(map(len, replacements.split(b"\0")), default=0)
    if longest > MAX_REPLACEMENT:
        raise ArgumentError(
            f"its table of characters has a replacement of {longest:,} bytes; the limit is {MAX_REPLACEMENT}"
        )
    return max(1, min(longest, 18))  # the longest replacement of Unicode's NFKC has 18 characters


def measure_text(text: JSONContent) -> int:
    """Return the number of characters of a text; 0 for anything else, which the library refuses."""
    return len(text) if isinstance(text, str) else 0


def require_integer(fields: JSONPart, name: str, low: int, high: int) -> None:
    """Raise an error if a field is not an integer in a range."""
    number = fields.get(name)
    if type(number) is not int or not low <= number <= high:
        allowed = str(low) if low == high else f"an integer from {low} to {high:,}"
        raise ArgumentError(f"{name} must be {allowed}, not {str(number)[:40]}")
