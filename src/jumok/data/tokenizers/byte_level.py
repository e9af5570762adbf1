"""Byte-level byte-pair encoding (Radford et al. 2019): each byte is written as a letter, so any text can be encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from reprlib import repr as abbreviate  # limits depth and length

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from jumok.errors import ArgumentError


def _build_alphabet() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        letters.setdefault(byte, chr(256 + len(letters) - len(printable)))
    return letters


BYTE_TO_LETTER = _build_alphabet()  # the space, byte 32, is written as Ġ
LETTER_TO_BYTE = {letter: byte for byte, letter in BYTE_TO_LETTER.items()}

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = LLAMA3_PATTERN.replace("{1,3}", "")  # one digit at a time

# Pre-tokenizer patterns by the names that GGUF files use. A model needs the one that it was trained with.
PRE_TOKENIZERS = ("gpt-2", "smollm", "llama-bpe", "qwen2")


def token_to_bytes(token: str) -> bytes:
    """Return the bytes of a token.

    >>> token_to_bytes("Ġworld")
    b' world'
    """
    try:
        return bytes(LETTER_TO_BYTE[letter] for letter in token)
    except KeyError:
        return token.encode()


def build_byte_level_tokenizer(
    vocabulary: Mapping[str, int], merges: Iterable[str], pre_tokenizer: str, *, prefix_space: bool = False
) -> Tokenizer:
    """Build a byte-level BPE tokenizer.

    Args:
        pre_tokenizer: How text is split before merging; one of PRE_TOKENIZERS.
    """
    if pre_tokenizer not in PRE_TOKENIZERS:
        raise ArgumentError(f"unknown pre-tokenizer {pre_tokenizer[:40]!r}; choose one of {', '.join(PRE_TOKENIZERS)}")

    pairs = [parse_merge(merge, vocabulary, index) for index, merge in enumerate(merges)]
    tokenizer = Tokenizer(models.BPE(dict(vocabulary), pairs, ignore_merges=pre_tokenizer == "llama-bpe"))
    tokenizer.pre_tokenizer = _build_pre_tokenizer(pre_tokenizer, prefix_space)
    if pre_tokenizer == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _build_pre_tokenizer(name: str, prefix_space: bool) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=name in ("gpt-2", "smollm"))
    if name == "gpt-2":
        return byte_level
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])

    pattern = LLAMA3_PATTERN if name == "llama-bpe" else QWEN2_PATTERN
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])


def parse_merge(merge: object, vocabulary: Mapping[str, int], index: int, prefix: str = "") -> tuple[str, str]:
    """Check one merge and return it as a pair.

    The check is needed because the `tokenizers` library panics on a pair whose concatenation is not a token.

    Args:
        prefix: Prefix of tokens that continue a word, such as "##"; it is dropped from the second token when merging.
    """
    pair = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(token, str) for token in pair):
        raise ArgumentError(f"merge {index} is {abbreviate(merge)}, not a pair of tokens")

    first, second = pair
    joined = first + (second[len(prefix) :] if len(second) >= len(prefix) else "\0")
    for token in (first, second, joined):
        if token not in vocabulary:
            raise ArgumentError(
                f"merge {index} is {abbreviate(merge)}, but {abbreviate(token)} is not in the vocabulary"
            )
    return first, second


def prepend_token(tokenizer: Tokenizer, token: str, token_id: int) -> None:
    """Make a tokenizer put a token before every text."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[token, "$A"], pair=[token, "$A", token, "$B:1"], special_tokens=[(token, token_id)]
    )
