"""Byte-level byte-pair encoding (Radford et al. 2019): every byte has a letter, so any text can be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from jumok.errors import ArgumentError


def _alphabet() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        letters.setdefault(byte, chr(256 + len(letters) - len(printable)))
    return letters


LETTERS = _alphabet()  # byte -> the letter it is written with: 32, the space, is Ġ
BYTES = {letter: byte for byte, letter in LETTERS.items()}

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# How text is cut before pairs are merged, by the names that GGUF files use; each was trained with its own.
CUTS = ("gpt-2", "smollm", "llama-bpe", "qwen2")


def spelled(token: str) -> bytes:
    """The bytes of a token: each letter is a byte; a token with other letters is plain text."""
    try:
        return bytes(BYTES[letter] for letter in token)
    except KeyError:
        return token.encode()


def build(vocabulary: Mapping[str, int], merges: Iterable[str], cut: str, *, prefix_space: bool = False) -> Tokenizer:
    """A byte-level tokenizer of its vocabulary, its merges ("Ġ t") and the way that it cuts text."""
    if cut not in CUTS:
        raise ArgumentError(f"this tokenizer cuts text in a way called {cut!r}; known are {', '.join(CUTS)}")
    pairs = [checked_merge(merge, vocabulary, place) for place, merge in enumerate(merges)]
    tokenizer = Tokenizer(models.BPE(dict(vocabulary), pairs, ignore_merges=cut == "llama-bpe"))
    level = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=cut in ("gpt-2", "smollm"))
    if cut == "gpt-2":
        tokenizer.pre_tokenizer = level
    elif cut == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level])
    else:
        pattern = _LLAMA3 if cut == "llama-bpe" else _LLAMA3.replace("{1,3}", "")  # Qwen: one digit at a time
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), level])
    if cut == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def checked_merge(merge: object, vocabulary: Mapping[str, int], place: int, prefix: str = "") -> tuple[str, str]:
    """One merge as a pair. Checked here, because `tokenizers` panics on a pair that joins to no token."""
    pair = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(half, str) for half in pair):
        raise ArgumentError(f"merge {place} is {merge!r}, not a pair of tokens")
    left, right = pair
    joined = left + (right[len(prefix) :] if len(right) >= len(prefix) else "\0")
    for token in (left, right, joined):
        if token not in vocabulary:
            raise ArgumentError(f"merge {place} is {merge!r}, and {token!r} is not in the vocabulary")
    return left, right


def begin_with(tokenizer: Tokenizer, token: str, number: int) -> None:
    """Let every text begin with that token."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[token, "$A"], pair=[token, "$A", token, "$B:1"], special_tokens=[(token, number)]
    )
