"""Check a tokenizer.json before the `tokenizers` library reads it.

The library trusts its file: a chain of replacements turns one character into billions, and some numbers make it panic,
which prints to standard error and cannot be prevented from Python. Real tokenizers are far below these limits.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy

from jumok.errors import ArgumentError

JSONPart: TypeAlias = Mapping[str, Any]
JSONContent: TypeAlias = Mapping[str, Any] | list[Any] | str | int | float | bool | None

MAX_GROWTH = 256  # characters that one character of a text, or one token, may become
MAX_STEPS = 64  # normalizers, pre-tokenizers, post-processors or decoders in sequence
MAX_COPIES = 2  # of a text that a post-processor makes
MAX_ADDED_IDS = 256  # tokens that a post-processor adds around a text
MAX_WORD = 1000  # characters of a word that WordPiece splits; its time grows with the square
MAX_AFFIX = 64  # characters of a prefix or suffix of tokens
MAX_TOKEN = 1000  # characters of a token of Unigram, and of an added token
MAX_UNIGRAM_LETTERS = 8_000_000  # a Unigram vocabulary needs about 100 bytes of memory for each
MAX_ADDED_TOKENS = 100_000
MAX_ID = 2**31
MAX_REPLACEMENT = 128  # bytes of a replacement in a table of characters; the longest real ones have 33
MAX_PATTERN = 10_000  # characters of a regular expression

# The key that holds the steps of a "Sequence", by the part of the file.
SEQUENCE_KEYS = {
    "normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors",
    "decoder": "decoders",
}  # fmt: skip


def check_tokenizer_document(document: JSONPart) -> None:
    """Raise an error if a text could grow without bound, or a setting is outside its range."""
    for part in ("normalizer", "decoder"):
        growth = math.prod(_compute_growth(step) for step in _list_steps(document, part))
        if part == "normalizer":
            growth *= math.prod(_compute_growth(step) for step in _list_steps(document, "pre_tokenizer"))
        if growth > MAX_GROWTH:
            raise ArgumentError(
                f"its {part} lets a text grow up to {_format_number(growth)} times; the limit is {MAX_GROWTH}"
            )
    _check_post_processor(list(_list_steps(document, "post_processor")))
    tokens = _get(document, "added_tokens", list)
    if len(tokens) > MAX_ADDED_TOKENS:
        raise ArgumentError(f"it has {len(tokens):,} added tokens; the limit is {MAX_ADDED_TOKENS:,}")
    for token in tokens:
        _check_length("one of its added tokens", _get(token, "content", str), MAX_TOKEN)
    _check_model(_get(document, "model", dict))


def list_patterns(document: JSONPart) -> list[str]:
    """Return the regular expressions of a tokenizer.json, wherever they are outside its vocabulary."""
    patterns: list[str] = []
    queue: list[JSONContent] = [document.get(part) for part in SEQUENCE_KEYS]
    while queue:
        part = queue.pop()
        if isinstance(part, dict):
            queue += part.values()
            if isinstance(part.get("Regex"), str):
                patterns.append(part["Regex"])
        elif isinstance(part, list):
            queue += part
    for pattern in patterns:
        _check_length("one of its regular expressions", pattern, MAX_PATTERN)
    return patterns


def _list_steps(document: JSONPart, part: str) -> Iterator[JSONPart]:
    """Yield the steps of a part in order, with the steps of nested sequences."""
    queue = [document.get(part)]
    count = 0
    while queue:
        step = queue.pop(0)
        if not isinstance(step, dict):  # the library names what is wrong with other types
            continue
        count += 1
        if count > MAX_STEPS:
            raise ArgumentError(f"its {part} has more than {MAX_STEPS} steps, the limit")
        if step.get("type") == "Sequence":
            queue = _get(step, SEQUENCE_KEYS[part], list)[: MAX_STEPS + 1] + queue
        else:
            yield step


def _check_post_processor(steps: list[JSONPart]) -> None:
    copies, added = 1, 0
    for step in steps:
        if step.get("type") in ("BertProcessing", "RobertaProcessing"):
            added += 2
        if step.get("type") != "TemplateProcessing":
            continue
        special = _get(step, "special_tokens", dict)
        for name, texts in (("single", ("A",)), ("pair", ("A", "B"))):
            pieces = _get(step, name, list)
            if not all(isinstance(piece, dict) for piece in pieces):
                raise ArgumentError(f"its post_processor has a piece in {name} that is not an object")
            uses = [_get(piece, "Sequence", dict).get("id") for piece in pieces if "Sequence" in piece]
            for text in uses:
                if text not in texts:
                    raise ArgumentError(f"its post_processor uses the text {str(text)[:40]!r} in {name}")
            if name == "single":
                copies *= max(1, len(uses))
            tokens = [_get(piece, "SpecialToken", dict).get("id") for piece in pieces if "SpecialToken" in piece]
            added += sum(_count_ids(token, special) for token in tokens)
    if copies > MAX_COPIES or added > MAX_ADDED_IDS:
        raise ArgumentError(
            f"its post_processor copies a text {_format_number(copies)} times and adds {added:,} tokens; the limits "
            f"are {MAX_COPIES} and {MAX_ADDED_IDS}"
        )


def _count_ids(token: JSONContent, special: JSONPart) -> int:
    if not isinstance(token, str) or token not in special:
        raise ArgumentError(f"its post_processor uses the special token {str(token)[:40]!r}, but does not define it")
    return len(_get(special[token], "ids", list))


def _check_model(model: JSONPart) -> None:
    if model.get("max_input_chars_per_word") is not None:
        _require_integer(model, "max_input_chars_per_word", 0, MAX_WORD)
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        _check_length(name, _get(model, name, str), MAX_AFFIX)

    for token, token_id in _get(model, "vocab", dict).items():
        if type(token_id) is not int or not 0 <= token_id < MAX_ID:
            raise ArgumentError(f"{str(token_id)[:40]} is not a valid id for the token {token[:40]!r}")
    letters = 0
    for index, entry in enumerate(_get(model, "vocab", list)):  # Unigram
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise ArgumentError(f"entry {index} of its vocabulary is not a token with a score")
        _check_length(f"token {index}", entry[0], MAX_TOKEN)
        letters += len(entry[0])
    if letters > MAX_UNIGRAM_LETTERS:
        raise ArgumentError(f"its tokens have {letters:,} characters in total; the limit is {MAX_UNIGRAM_LETTERS:,}")


def _format_number(number: int) -> str:
    return f"{number:,}" if number < 10**9 else f"10^{len(str(number)) - 1}"


def _compute_growth(step: JSONPart) -> int:
    """Return an upper bound of the characters that a step makes of one character or token; check its settings."""
    kind = step.get("type")
    if kind == "Replace":
        content, pattern = len(_get(step, "content", str)), step.get("pattern")
        literal = pattern.get("String") if isinstance(pattern, dict) else pattern
        if isinstance(literal, str) and literal:
            return max(1, -(-content // len(literal)))
        return 1 + content  # a regular expression can match between all characters
    if kind == "Prepend":
        return 1 + len(_get(step, "prepend", str))
    if kind == "Precompiled":
        return _compute_table_growth(step.get("precompiled_charsmap"))
    if kind == "FixedLength":
        _require_integer(step, "length", 1, 2**31)
    if kind == "Strip" and "stop" in step:  # the decoder; the normalizer of this name has two booleans
        _require_integer(step, "start", 0, 1000)
        _require_integer(step, "stop", 0, 0)  # the library panics on a token that is shorter
    return {"ByteLevel": 4, "Metaspace": 2, "BertNormalizer": 3, "WordPiece": 2}.get(str(kind), 1)


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


def _get(fields: JSONContent, name: str, kind: type) -> Any:
    """Return a field of a JSON object; an empty one if it is missing or of another type, which the library refuses."""
    content = fields.get(name) if isinstance(fields, dict) else None
    return content if isinstance(content, kind) else kind()


def _check_length(title: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise ArgumentError(f"{title} has {len(text):,} characters; the limit is {limit:,}")


def _require_integer(fields: JSONPart, name: str, low: int, high: int) -> None:
    """Raise an error if a field is not an integer in a range."""
    number = fields.get(name)
    if type(number) is not int or not low <= number <= high:
        allowed = str(low) if low == high else f"an integer from {low} to {high:,}"
        raise ArgumentError(f"{name} must be {allowed}, not {str(number)[:40]}")
