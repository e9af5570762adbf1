"""Use tokenizers of transformers: convert them to ours where possible, or adapt them.

A fast tokenizer of transformers is a tokenizer of the `tokenizers` library, which our ``Tokenizer`` wraps as well. The
others, written in Python, are called through an adapter.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.data.tokenizers.tokenizer_files import SPECIAL_TOKENS, read_settings, wrap_tokenizers_errors
from jumok.errors import ArgumentError, TokenizerError, describe_type

# Texts on which a converted tokenizer must agree with the original one.
SAMPLES = ("The cat sat; the cat", "주목은 Attention이다.", " 12,3\n")
BYTE_COUNT = 256


def open_tokenizer(tokenizer: object) -> TextTokenizer:
    """Return a tokenizer that the lens can use."""
    if isinstance(tokenizer, Tokenizer | TransformersTokenizer):
        return tokenizer
    if isinstance(tokenizer, str | os.PathLike):
        return load_text_tokenizer(Path(tokenizer))
    if isinstance(tokenizer, tokenizers.Tokenizer):
        return Tokenizer(_copy_tokenizer(tokenizer))
    package = sys.modules.get("transformers")  # not imported here: the tokenizer's owner has imported it
    if package is not None and isinstance(tokenizer, package.PreTrainedTokenizerBase):
        return convert_tokenizer(tokenizer)
    raise ArgumentError(
        "tokenizer must be a Tokenizer of Jumok, a tokenizer of transformers, or a folder with tokenizer files, not "
        f"{describe_type(tokenizer)}"
    )


def load_text_tokenizer(folder: Path) -> TextTokenizer:
    """Load the tokenizer in a folder: with our own reader, or with transformers if the files are of another kind.

    No code in the folder is run, and nothing is downloaded.
    """
    if not folder.is_dir():
        raise TokenizerError(f"there is no folder {str(folder)[:200]!r} with tokenizer files")
    try:
        return Tokenizer.load(folder)
    except ArgumentError as error:
        # what our reader refuses in a tokenizer.json would be refused for its content, not for its kind
        if (folder / "tokenizer.json").is_file() or not (folder / "tokenizer_config.json").is_file():
            raise
        tokenizer = _load_with_transformers(folder, error)
    return convert_tokenizer(tokenizer)


def convert_tokenizer(tokenizer: Any) -> TextTokenizer:
    """Convert a tokenizer of transformers to a ``Tokenizer``; one that is written in Python gets an adapter."""
    adapter = TransformersTokenizer(tokenizer)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, tokenizers.Tokenizer):
        return adapter
    special = {role: getattr(tokenizer, name, None) for role, name in SPECIAL_TOKENS.items()}
    converted = Tokenizer(_copy_tokenizer(backend), special)
    # a class of transformers may add steps of its own around its backend
    return converted if all(converted.encode(text) == adapter.encode(text) for text in SAMPLES) else adapter


class TransformersTokenizer(TextTokenizer):
    """Calls a tokenizer of transformers with the methods of ``TextTokenizer``."""

    def __init__(self, tokenizer: Any) -> None:
        self._inner = tokenizer
        # ByT5 and similar tokenizers have no vocabulary file: each byte is written as the character of its number
        self._has_byte_tokens = getattr(tokenizer, "_utf_vocab_size", None) == BYTE_COUNT
        ids = (getattr(tokenizer, f"{name}_token_id", None) for name in ("unk", "mask", "eos"))
        self.unknown, self.mask, self.end = (token_id if isinstance(token_id, int) else None for token_id in ids)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        with wrap_tokenizers_errors("this text cannot be encoded"):
            return [int(token_id) for token_id in self._inner.encode(text, add_special_tokens=special)]

    def decode(self, ids: Iterable[int], *, special: bool = True) -> str:
        with wrap_tokenizers_errors("these ids cannot be decoded"):
            return str(self._inner.decode([int(token_id) for token_id in ids], skip_special_tokens=not special))

    def contains_id(self, token_id: int) -> bool:
        return self._find_token(token_id) is not None

    def id_to_token(self, token_id: int) -> str:
        if token_id < 0:
            raise ArgumentError(f"a token id is at least 0, not {token_id}")
        token = self._find_token(token_id)
        return f"<id {token_id}>" if token is None else token

    def id_to_bytes(self, token_id: int) -> bytes | None:
        token = self._find_token(token_id) if self._has_byte_tokens else None
        return bytes([ord(token)]) if token is not None and len(token) == 1 and ord(token) < BYTE_COUNT else None

    def _find_token(self, token_id: int) -> str | None:
        """Return a token; None if the vocabulary does not contain its id. Some tokenizers return bytes."""
        if not 0 <= token_id < len(self._inner):
            return None
        try:
            token = self._inner.convert_ids_to_tokens(token_id)
        except (LookupError, ValueError, OverflowError):
            return None
        return token.decode("utf-8", "replace") if isinstance(token, bytes) else token


def _copy_tokenizer(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Return a copy: our ``Tokenizer`` turns off padding and truncation, which the owner may need."""
    with wrap_tokenizers_errors("this tokenizer cannot be copied"):
        return tokenizers.Tokenizer.from_str(tokenizer.to_str())


def _load_with_transformers(folder: Path, error: ArgumentError) -> Any:
    """Load a tokenizer of a kind that our reader does not know; ``error`` says which, and is raised if it fails."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise error from None
    if "auto_map" in read_settings(folder / "tokenizer_config.json"):
        raise TokenizerError(f"the tokenizer in {folder} needs Python code of its own (auto_map), which is not run")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except BaseException as failure:
        if not isinstance(failure, Exception) and type(failure).__name__ != "PanicException":
            raise
        reason = (str(failure).strip().splitlines() or [type(failure).__name__])[0][:200]
        raise TokenizerError(f"{error}; transformers cannot read it either: {reason}") from None
    files = set(type(tokenizer).vocab_files_names.values())
    if files and not any((folder / name).is_file() for name in files):
        # transformers would use a vocabulary of special tokens only
        raise TokenizerError(f"there is no vocabulary in {folder}; expected {' or '.join(sorted(files))}")
    return tokenizer
