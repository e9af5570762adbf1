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
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}


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
    _check_added_tokens(document.get("added_tokens"))
    model = document.get("model")
    if isinstance(model, dict):
        _check_model(model)


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
    longest = max(map(len, patterns), default=0)
    if longest > MAX_PATTERN:
        raise ArgumentError(f"it has a regular expression of {longest:,} characters; the limit is {MAX_PATTERN:,}")
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
            nested = step.get(SEQUENCE_KEYS[part])
            if isinstance(nested, list):
                queue = nested[: MAX_STEPS + 1] + queue
        else:
            yield step


def _check_post_processor(steps: list[JSONPart]) -> None:
    copies, added = 1, 0
    for step in steps:
        if step.get("type") != "TemplateProcessing":
            added += 2 if step.get("type") in ("BertProcessing", "RobertaProcessing") else 0
            continue
        special = step.get("special_tokens")
        special = special if isinstance(special, dict) else {}
        for name, texts in (("single", {"A"}), ("pair", {"A", "B"})):
            pieces = step.get(name)
            pieces = pieces if isinstance(pieces, list) else []
            texts_copied = _count_copies(pieces, name, texts)
            added += sum(_count_ids(piece["SpecialToken"], special) for piece in pieces if "SpecialToken" in piece)
            if name == "single":
                copies *= max(1, texts_copied)
    if copies > MAX_COPIES or added > MAX_ADDED_IDS:
        raise ArgumentError(
            f"its post_processor copies a text {_format_number(copies)} times and adds {added:,} tokens; the limits "
            f"are {MAX_COPIES} and {MAX_ADDED_IDS}"
        )


def _count_copies(pieces: list[Any], name: str, texts: set[str]) -> int:
    copies = 0
    for piece in pieces:
        if not isinstance(piece, dict):
            raise ArgumentError(f"its post_processor has a piece in {name} that is not an object")
        text = piece.get("Sequence")
        if isinstance(text, dict):
            copies += 1
            if text.get("id") not in texts:
                raise ArgumentError(f"its post_processor uses the text {str(text.get('id'))[:40]!r} in {name}")
    return copies


def _count_ids(piece: JSONContent, special: JSONPart) -> int:
    token = piece.get("id") if isinstance(piece, dict) else None
    entry = special.get(token) if isinstance(token, str) else None
    ids = entry.get("ids") if isinstance(entry, dict) else None
    if not isinstance(ids, list):
        raise ArgumentError(f"its post_processor uses the special token {str(token)[:40]!r}, but does not define it")
    return len(ids)


def _check_added_tokens(tokens: JSONContent) -> None:
    if not isinstance(tokens, list):
        return
    if len(tokens) > MAX_ADDED_TOKENS:
        raise ArgumentError(f"it has {len(tokens):,} added tokens; the limit is {MAX_ADDED_TOKENS:,}")
    for token in tokens:
        if isinstance(token, dict) and _measure_text(token.get("content")) > MAX_TOKEN:
            raise ArgumentError(
                f"it has an added token of {_measure_text(token['content']):,} characters; the limit is {MAX_TOKEN:,}"
            )


def _check_model(model: JSONPart) -> None:
    if model.get("max_input_chars_per_word") is not None:
        _require_integer(model, "max_input_chars_per_word", 0, MAX_WORD)
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if _measure_text(model.get(name)) > MAX_AFFIX:
            raise ArgumentError(f"{name} has {_measure_text(model[name]):,} characters; the limit is {MAX_AFFIX}")

    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        for token, token_id in vocabulary.items():
            if type(token_id) is not int or not 0 <= token_id < MAX_ID:
                raise ArgumentError(f"{str(token_id)[:40]} is not a valid id for the token {token[:40]!r}")
    elif isinstance(vocabulary, list):
        _check_unigram(vocabulary)


def _check_unigram(vocabulary: list[Any]) -> None:
    letters = 0
    for index, entry in enumerate(vocabulary):
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise ArgumentError(f"entry {index} of its vocabulary is not a token with a score")
        letters += len(entry[0])
        if len(entry[0]) > MAX_TOKEN:
            raise ArgumentError(f"token {index} has {len(entry[0]):,} characters; the limit is {MAX_TOKEN:,}")
    if letters > MAX_UNIGRAM_LETTERS:
        raise ArgumentError(f"its tokens have {letters:,} characters in total; the limit is {MAX_UNIGRAM_LETTERS:,}")


def _format_number(number: int) -> str:
    return f"{number:,}" if number < 10**9 else f"10^{len(str(number)) - 1}"


def _compute_growth(step: JSONPart) -> int:
    """Return an upper bound of the characters that a step makes of one character or token; check its settings."""
    kind = step.get("type")
    if kind == "Replace":
        return _compute_replacement_growth(step)
    if kind == "Prepend":
        return 1 + _measure_text(step.get("prepend"))
    if kind == "Precompiled":
        return _compute_table_growth(step.get("precompiled_charsmap"))
    if kind == "FixedLength":
        _require_integer(step, "length", 1, 2**31)
    if kind == "Strip" and "stop" in step:  # the decoder; the normalizer of this name has two booleans
        _require_integer(step, "start", 0, 1000)
        _require_integer(step, "stop", 0, 0)  # the library panics on a token that is shorter
    return {"ByteLevel": 4, "Metaspace": 2, "BertNormalizer": 3, "WordPiece": 2}.get(str(kind), 1)


def _compute_replacement_growth(step: JSONPart) -> int:
    content = _measure_text(step.get("content"))
    pattern = step.get("pattern")
    literal = pattern.get("String") if isinstance(pattern, dict) else pattern
    if isinstance(literal, str) and literal:
        return max(1, -(-content // len(literal)))
    return 1 + content  # a regular expression can match between all characters


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


def _measure_text(text: JSONContent) -> int:
    """Return the number of characters of a text; 0 for anything else, which the library refuses."""
    return len(text) if isinstance(text, str) else 0


def _require_integer(fields: JSONPart, name: str, low: int, high: int) -> None:
    """Raise an error if a field is not an integer in a range."""
    number = fields.get(name)
    if type(number) is not int or not low <= number <= high:
        allowed = str(low) if low == high else f"an integer from {low} to {high:,}"
        raise ArgumentError(f"{name} must be {allowed}, not {str(number)[:40]}")
