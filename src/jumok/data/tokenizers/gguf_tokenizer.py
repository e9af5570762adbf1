"""Build a tokenizer from the metadata of a GGUF file."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as InnerTokenizer

from jumok.data.tokenizers import byte_level
from jumok.data.tokenizers.tokenizer_files import TokenizerParts, wrap_tokenizers_errors
from jumok.errors import ArgumentError, TokenizerError

# role in Jumok -> name in GGUF files; "seperator" is spelled this way there
GGUF_NAMES = {
    "begin": "bos", "end": "eos", "pad": "padding", "mask": "mask", "unknown": "unknown", "separator": "seperator",
    "classify": "cls",
}  # fmt: skip
# token types of llama.cpp; tokens of both types are never split
CONTROL_TOKEN, USER_TOKEN = 3, 4
SPACE = "▁"  # in the tokens of SentencePiece
LONGEST_MERGE = 64  # in characters; SentencePiece makes no tokens of more than 16 by default
MOST_LETTERS = 20_000_000  # in all tokens, each a possible merge; Gemma 3 has 2 million


def read_gguf_tokenizer(fields: Mapping[str, Any]) -> TokenizerParts:
    """Build a tokenizer from GGUF metadata."""
    model = fields.get("tokenizer.ggml.model")
    if model is None:
        raise TokenizerError("this GGUF file contains no tokenizer: tokenizer.ggml.model is missing")
    if model not in ("gpt2", "llama"):
        raise ArgumentError(
            f"this GGUF file has a tokenizer of type {str(model)[:40]!r}; gpt2 (byte-level BPE) and llama "
            "(SentencePiece) are supported"
        )

    tokens = _read_strings(fields, "tokenizer.ggml.tokens")
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ArgumentError(f"this GGUF file contains {len(tokens) - len(vocabulary)} duplicate tokens")

    with wrap_tokenizers_errors("the tokenizer of this GGUF file cannot be built"):
        if model == "llama":
            inner = _build_sentencepiece_tokenizer(fields, vocabulary)
        else:
            pre_tokenizer = str(fields.get("tokenizer.ggml.pre", "default"))
            merges = _read_strings(fields, "tokenizer.ggml.merges")
            inner = byte_level.build_byte_level_tokenizer(vocabulary, merges, pre_tokenizer)
        token_types = [operator.index(kind) for kind in fields.get("tokenizer.ggml.token_type", ())]
        for kind, is_special in ((CONTROL_TOKEN, True), (USER_TOKEN, False)):
            unsplit = [token for token, token_type in zip(tokens, token_types, strict=False) if token_type == kind]
            add = inner.add_special_tokens if is_special else inner.add_tokens
            add([AddedToken(token, normalized=False, special=is_special) for token in unsplit])

        special = {role: _read_token(fields, tokens, name) for role, name in GGUF_NAMES.items()}
        begin = special["begin"]
        if begin is not None and fields.get("tokenizer.ggml.add_bos_token", model == "llama"):
            byte_level.prepend_token(inner, begin, vocabulary[begin])

        # end-of-turn and end-of-message tokens, which can differ from the end-of-text token
        further_ends = [_read_token(fields, tokens, name) for name in ("eot", "eom")]

    template = fields.get("tokenizer.chat_template")
    ends = tuple(vocabulary[token] for token in further_ends if token is not None)
    return TokenizerParts(inner, special, template if isinstance(template, str) else None, ends)


def _build_sentencepiece_tokenizer(fields: Mapping[str, Any], vocabulary: dict[str, int]) -> InnerTokenizer:
    """Build a BPE tokenizer from the scores of its tokens: of two possible merges, SentencePiece makes the one whose
    result has the higher score. Bytes without a token are written as <0x0A>."""
    scores = fields.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(vocabulary):
        raise ArgumentError("this GGUF file has no score for each token, which a llama tokenizer needs")
    if sum(map(len, vocabulary)) > MOST_LETTERS:
        raise ArgumentError(f"the tokens of this GGUF file have more than {MOST_LETTERS:,} letters")
    merges: list[tuple[float, int, int, str, str]] = []
    for token, token_id in vocabulary.items():
        for cut in range(1, len(token) if len(token) <= LONGEST_MERGE else 0):
            left, right = vocabulary.get(token[:cut]), vocabulary.get(token[cut:])
            if left is not None and right is not None:
                merges.append((-scores[token_id], left, right, token[:cut], token[cut:]))
    merges.sort()
    inner = InnerTokenizer(models.BPE(vocabulary, [merge[3:] for merge in merges], byte_fallback=True, fuse_unk=True))
    has_prefix = fields.get("tokenizer.ggml.add_space_prefix", True)
    marks = normalizers.Replace(" ", SPACE)
    inner.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), marks]) if has_prefix else marks
    strip = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    inner.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return inner


def _read_strings(fields: Mapping[str, Any], name: str) -> list[str]:
    strings = fields.get(name)
    if strings is None:
        raise ArgumentError(f"this GGUF file has no {name}")
    if isinstance(strings, str) or not all(isinstance(string, str) for string in strings):
        raise ArgumentError(f"{name} of this GGUF file is not a list of strings")
    return list(strings)


def _read_token(fields: Mapping[str, Any], tokens: Sequence[str], name: str) -> str | None:
    """Return the special token with this GGUF name, or None if the file does not define it."""
    token_id = fields.get(f"tokenizer.ggml.{name}_token_id")
    if token_id is None:
        return None
    index = operator.index(token_id)
    if not 0 <= index < len(tokens):
        raise ArgumentError(f"the {name} token is {str(token_id)[:40]}, but there are {len(tokens)} tokens")
    return tokens[index]
