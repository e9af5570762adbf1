"""Check a tokenizer.json before the `tokenizers` library reads it.

The library trusts its file: a chain of replacements turns one character into billions, and some numbers make it panic,
which prints to standard error and cannot be prevented from Python. Real tokenizers are far below these limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from jumok.data.tokenizers.checks.text_growth import (
    JSONContent,
    JSONPart,
    compute_growth,
    measure_text,
    require_integer,
)
from jumok.errors import ArgumentError

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

# The key that holds the steps of a "Sequence", by the part of the file.
SEQUENCE_KEYS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}


def check_tokenizer_document(document: JSONPart) -> None:
    """Raise an error if a tokenizer.json asks for more than a real tokenizer needs.

    Raises:
        ArgumentError: If a text could grow without bound, or a setting is outside its range.
    """
    for part in ("normalizer", "decoder"):
        growth = math.prod(compute_growth(step) for step in _list_steps(document, part))
        if part == "normalizer":
            growth *= math.prod(compute_growth(step) for step in _list_steps(document, "pre_tokenizer"))
        if growth > MAX_GROWTH:
            raise ArgumentError(
                f"its {part} lets a text grow up to {_format_number(growth)} times; the limit is {MAX_GROWTH}"
            )
    _check_post_processor(list(_list_steps(document, "post_processor")))
    _check_added_tokens(document.get("added_tokens"))
    model = document.get("model")
    if isinstance(model, dict):
        _check_model(model)


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
        if isinstance(token, dict) and measure_text(token.get("content")) > MAX_TOKEN:
            raise ArgumentError(
                f"it has an added token of {measure_text(token['content']):,} characters; the limit is {MAX_TOKEN:,}"
            )


def _check_model(model: JSONPart) -> None:
    if model.get("max_input_chars_per_word") is not None:
        require_integer(model, "max_input_chars_per_word", 0, MAX_WORD)
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if measure_text(model.get(name)) > MAX_AFFIX:
            raise ArgumentError(f"{name} has {measure_text(model[name]):,} characters; the limit is {MAX_AFFIX}")

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
