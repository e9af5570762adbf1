"""Hostile tokenizer.json files: each lets a text grow, takes forever or makes the library panic in a different way."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

MODEL = {
    "type": "BPE", "unk_token": "<unk>", "vocab": {"a": 0, "b": 1, "ab": 2, "<unk>": 3}, "merges": [["a", "b"]],
}  # fmt: skip
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}


def write_json(**parts: Any) -> str:
    """Return a tokenizer.json of four tokens with these parts."""
    return json.dumps({"version": "1.0", "model": MODEL, **parts})


def write_model(**settings: Any) -> str:
    return write_json(model={**MODEL, **settings})


def write_word_piece(**settings: Any) -> str:
    model = {"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##", "vocab": {"a": 0, "##a": 1}}
    return write_json(model={**model, "max_input_chars_per_word": 100, **settings})


def write_unigram(*tokens: str) -> str:
    return write_json(model={"type": "Unigram", "unk_id": 0, "vocab": [[token, -1.0] for token in tokens]})


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def normalize(*steps: dict[str, Any]) -> str:
    return write_json(normalizer={"type": "Sequence", "normalizers": list(steps)})


def split(pattern: str) -> str:
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return write_json(pre_tokenizer=step)


def process(single: list[Any], ids: int = 1, times: int = 1) -> str:
    special = {"x": {"id": "x", "ids": [1] * ids, "tokens": ["x"] * ids}}
    step = {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": special}
    return write_json(post_processor={"type": "Sequence", "processors": [step] * times})


def build_table(units: dict[int, int], replacements: bytes, count: int = 512) -> str:
    """Return SentencePiece's table of characters: a trie of this many units, and replacements."""
    array = [units.get(index, 0) for index in range(count)]
    raw = struct.pack("<I", 4 * count) + struct.pack(f"<{count}I", *array) + replacements
    return base64.b64encode(raw).decode()


def tabulate(table: str) -> str:
    return write_json(normalizer={"type": "Precompiled", "precompiled_charsmap": table})


# A replaced by a: the root's children begin at 256, the leaf of "A" (0x41) is unit 0x101, and its replacement byte 0
ROOT, LETTER = 256 << 10, 0x41 | 1 << 8 | 0x40 << 10
GOOD_TABLE = {0: ROOT, 0x141: LETTER, 0x101: 1 << 31}
SPECIAL = {"SpecialToken": {"id": "x", "type_id": 0}}

# name -> (the file, words of the message)
QUICK: dict[str, tuple[Callable[[], str], str]] = {
    "a normalizer that doubles 40 times": (lambda: normalize(*[replace("a", "aa")] * 40), "grow up to 10^12 times"),
    "a replacement of a megabyte": (lambda: normalize(replace("a", "b" * 10**6)), "grow up to 1,000,000 times"),
    "a replacement between all letters": (lambda: normalize(replace("", "b" * 999, "Regex")), "grow up to 1,000"),
    "a replacement of an empty text": (lambda: normalize(replace("", "b" * 10**6)), "grow up to"),
    "a megabyte before every text": (lambda: normalize({"type": "Prepend", "prepend": "a" * 10**6}), "grow up to"),
    "twenty prefixes": (lambda: normalize(*[{"type": "Prepend", "prepend": "abc"}] * 20), "grow up to"),
    "bytes of bytes of bytes": (
        lambda: write_json(pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTES] * 30}),
        "grow up to",
    ),
    "a normalizer and a pre-tokenizer together": (
        lambda: write_json(normalizer=replace("a", "a" * 100), pre_tokenizer=BYTES),
        "grow up to 400 times",
    ),
    "a thousand normalizers": (lambda: normalize(*[{"type": "NFC"}] * 1000), "more than 64 steps"),
    "normalizers nested in normalizers": (
        lambda: write_json(normalizer=json.loads('{"type":"Sequence","normalizers":[' * 90 + "]}" * 90)),
        "more than 64 steps",
    ),
    "a decoder that doubles 40 times": (
        lambda: write_json(decoder={"type": "Sequence", "decoders": [replace("a", "aa")] * 40}),
        "its decoder lets a text grow",
    ),
    "a decoder that strips past the end": (
        lambda: write_json(decoder={"type": "Strip", "content": "a", "start": 0, "stop": 9}),
        "stop must be 0",
    ),
    "a decoder that strips 2**62 letters": (
        lambda: write_json(decoder={"type": "Strip", "content": "a", "start": 2**62, "stop": 0}),
        "start must be an integer from 0 to 1,000",
    ),
    "a post-processor that copies a thousand times": (lambda: process([TEXT] * 1000), "copies a text 1,000 times"),
    "a post-processor that doubles 40 times": (lambda: process([TEXT] * 2, times=40), "copies a text 10^12 times"),
    "a million tokens around a text": (lambda: process([SPECIAL, TEXT], ids=10**6), "adds 1,000,000 tokens"),
    "a post-processor without its token": (
        lambda: process([{"SpecialToken": {"id": "y", "type_id": 0}}, TEXT]),
        "the special token 'y', but does not define it",
    ),
    "a second text where there is one": (
        lambda: process([{"Sequence": {"id": "B", "type_id": 0}}]),
        "uses the text 'B' in single",
    ),
    "words of 10^12 letters": (
        lambda: write_word_piece(max_input_chars_per_word=10**12),
        "max_input_chars_per_word must be an integer from 0 to 1,000",
    ),
    "a prefix of a megabyte": (
        lambda: write_word_piece(continuing_subword_prefix="#" * 10**6),
        "continuing_subword_prefix has 1,000,000 characters",
    ),
    "a suffix of a megabyte": (lambda: write_model(end_of_word_suffix="#" * 10**6), "end_of_word_suffix has"),
    "pieces of no letters": (
        lambda: write_json(pre_tokenizer={"type": "FixedLength", "length": 0}),
        "length must be an integer from 1",
    ),
    "a pattern of a megabyte": (lambda: split("a" * 10**6), "regular expressions has 1,000,000 characters"),
    "a pattern that is not one": (lambda: split("((("), "is not a tokenizer: "),
    "a table that is not base64": (lambda: tabulate("가나다"), "table of characters"),
    "an empty table": (lambda: tabulate(""), "table of characters"),
    "a table longer than the file": (lambda: tabulate("/////w=="), "table of characters"),
    "a table that points outside": (lambda: tabulate(build_table({0: 2**20 << 10}, b"a\0")), "table of characters"),
    "a table whose replacement is outside": (
        lambda: tabulate(build_table({**GOOD_TABLE, 0x101: 1 << 31 | 99}, b"a\0")),
        "table of characters",
    ),
    "a table whose replacement starts inside a letter": (
        lambda: tabulate(build_table({**GOOD_TABLE, 0x101: 1 << 31 | 1}, "가\0".encode())),
        "table of characters",
    ),
    "a table with a replacement of a megabyte": (
        lambda: tabulate(build_table(GOOD_TABLE, b"a" * 10**6 + b"\0")),
        "a replacement of 1,000,000 bytes",
    ),
    "an id of 2**40": (lambda: write_model(vocab={"a": 2**40, "<unk>": 1}, merges=[]), "not a valid id"),
    "an id of four hundred digits": (lambda: write_model(vocab={"a": 10**400}, merges=[]), "not a valid id"),
    "an id that is true": (lambda: write_model(vocab={"a": True}, merges=[]), "not a valid id"),
    "a token of a megabyte in Unigram": (lambda: write_unigram("<unk>", "a" * 10**6), "has 1,000,000 characters"),
    "a vocabulary of numbers": (lambda: write_json(model={"type": "Unigram", "vocab": [1, 2]}), "entry 0 of its"),
    "an added token of a megabyte": (
        lambda: write_json(added_tokens=[{"id": 4, "content": "x" * 10**6, "special": True}]),
        "added tokens has 1,000,000 characters",
    ),
    "a merge of a megabyte": (lambda: write_model(merges=[["a" * 10**6, "b"]]), "is not in the vocabulary"),
    "an unknown kind of a megabyte": (lambda: write_model(type="x" * 10**6), "is not a tokenizer: "),
}

SLOW: dict[str, tuple[Callable[[], str], str]] = {
    "ten million empty lists": (lambda: '{"x": [' + "[]," * 10**7 + "[]]}", "contains 10,000,003 lists"),
    "ten million numbers": (lambda: '{"x": [' + "1," * 10**7 + "1]}", "10,000,000 elements"),
    "200,000 added tokens": (
        lambda: write_json(added_tokens=[{"id": 4 + i, "content": f"x{i}", "special": True} for i in range(200_000)]),
        "200,000 added tokens",
    ),
    "nine million letters in Unigram": (
        lambda: write_unigram(*[f"{i:0>900}" for i in range(10_000)]),
        "9,000,000 characters in total",
    ),
}

# Patterns that search for a long time, and a text on which they do: name -> (pattern, text).
RUN, END = "a" * 3000, " b c x 1 !"
SLOW_PATTERNS: dict[str, tuple[str, str]] = {
    "a repetition of a repetition": ("(a+)+$", RUN + END),
    "a hidden repetition of a repetition": (r"x|((?:[\[(]|b{2,})c?)*\)", "b" * 3000 + END),
    **{
        f"the slow pattern {pattern}": (pattern, text)
        for pattern, text in {
            "a*a*a*b": RUN + END,
            "(.*)(.*)(.*)\nx": RUN + "\n\nx",
            "[ad]*[ad]*[bc]": RUN + END,  # 19 s for 1,000 letters, 8 times longer for each doubling
            r"\w*\d*!": "1" * 3000 + END,
            r"[a-f]*[d-z]*!": "d" * 3000 + END,
            r"[[:alpha:]]*\p{L}*1": RUN + END,
            "[\u0530-\u058f]*\\p{Lu}*!": "\u0531" * 3000 + END,
            r"[\u0530-\x{58f}]*\p{Lu}*!": "\u0531" * 3000 + END,
            r"\p{LC}*\p{Lu}*!": "A" * 3000 + END,
            r"\x61*\u0061*b": RUN + END,
            "(?i)A*a*b": RUN + END,
            "(?x)a * a * b": RUN + END,
            "a*(?=a*b)": RUN + END,
            "(ab)*ab(ab)*c": "ab" * 3000 + END,
            "(a*)b?(a*)$": RUN + END,
            "(a|a)*b": RUN + END,
            "(a|aa)+b": RUN + END,
            "(?:a{1,2})*b": RUN + END,
            "a{2,}{2,}b": RUN + END,
            "(a*){2,50}b": RUN + END,
            "a{0,99}a{0,99}a{0,99}b": RUN + END,
            "x(?:a*a*b)?": f"x{'a' * 100_000}{END}",
            r"(a+)\1b": "a" * 10_000 + END,
        }.items()
    },
}
QUICK_PATTERNS = ["a repetition of a repetition", "the slow pattern [ad]*[ad]*[bc]", "the slow pattern (a+)\\1b"]

# Unusual but harmless: these must load.
GOOD: dict[str, Callable[[], str]] = {
    "Llama's normalizer": lambda: normalize({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")),
    "Llama's decoder": lambda: write_json(
        decoder={
            "type": "Sequence",
            "decoders": [
                replace("▁", " "),
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        }
    ),
    "T5's normalizer": lambda: normalize(
        {"type": "Precompiled", "precompiled_charsmap": build_table(GOOD_TABLE, b"a\0")},
        replace(" {2,}", "▁", "Regex"),
    ),
    "Llama 3's pattern": lambda: split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    ),
    "GPT-2's pattern": lambda: split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    "Qwen2's pattern": lambda: split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    ),
    "cl100k's pattern": lambda: split(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s"
    ),
    "a pattern with an intersection of classes": lambda: split(
        r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t)?"
    ),
    "a pattern of letters and their marks": lambda: split(r"(?:\p{L}\p{M}?)+ ?|(?:'s|'t|'re)+x|a*b*a?c"),
    "GPT-4o's pattern": lambda: split(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "a pattern of many quantifiers": lambda: split("a" + "?" * 500),
    "a pattern of deep groups": lambda: split("(" * 200 + "a" + ")" * 200),
    "a pattern of large counts": lambda: split("((a?b){99}){99}"),
    "a pattern of optional letters": lambda: split("(a?){50}a{50}"),  # linear in Oniguruma
    "a pattern that calls itself": lambda: split(r"(?<n>a\g<n>?b)"),
    "digits in threes": lambda: split(r"\d{1,3}(?=(?:\d{3})*\b)|(?:\r?\n)+"),
    "Bloom's pattern": lambda: split(r" ?[^(\s|[.,!?…。，、।۔،])]+"),
    "BERT's template": lambda: process([SPECIAL, TEXT, SPECIAL]),
    "a limit of 200 letters": lambda: write_word_piece(max_input_chars_per_word=200),
}
