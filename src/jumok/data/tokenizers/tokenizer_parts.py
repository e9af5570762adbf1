"""Read untrusted text and JSON files with limits, wrap errors of the `tokenizers` library, and name special tokens."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from jumok.data.tokenizers.limited_tokenizer import LimitedTokenizer
from jumok.errors import ArgumentError, describe_type
from jumok.files import read_limited

VOCABULARY_LIMIT = 50_000_000  # bytes
SETTINGS_LIMIT = 10_000_000  # bytes
MAX_CONTAINERS = 2_000_000  # lists and objects in a vocabulary file; the largest real files have 600,000
MAX_ELEMENTS = 6_000_000  # elements of them; the largest real files have 2 million

# role in Jumok -> name in tokenizer_config.json
SPECIAL_TOKENS = {
    "begin": "bos_token",
    "end": "eos_token",
    "pad": "pad_token",
    "mask": "mask_token",
    "unknown": "unk_token",
    "separator": "sep_token",
    "classify": "cls_token",
}


class TokenizerParts(NamedTuple):
    """The arguments that a `Tokenizer` is constructed from; it explains them."""

    inner: tokenizers.Tokenizer | LimitedTokenizer
    special: Mapping[str, str | None]
    chat_template: str | None = None
    ends: tuple[int, ...] = ()


@contextlib.contextmanager
def wrap_tokenizers_errors(message: str) -> Iterator[None]:
    """Turn errors of the `tokenizers` library into ArgumentError.

    The library raises plain Exceptions, and for some files a PanicException, which is a BaseException.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ArgumentError(f"{message}: {str(error)[:300]}") from error


def read_text(path: Path, limit: int) -> str:
    """Read a UTF-8 file."""
    content = read_limited(path, limit)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} is not UTF-8 text: byte {error.start} is {content[error.start]:#04x}") from error


def check_density(path: Path, text: str) -> None:
    """Raise an error if a JSON text would need far more memory than its length, such as millions of empty lists."""
    containers, elements = text.count("[") + text.count("{"), text.count(",")
    if containers > MAX_CONTAINERS or elements > MAX_ELEMENTS:
        raise ArgumentError(
            f"{path} contains {containers:,} lists and {elements:,} elements; the limits are {MAX_CONTAINERS:,} and "
            f"{MAX_ELEMENTS:,}"
        )


def parse_json_object(path: Path, text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is not JSON: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise ArgumentError(f"{path} contains {describe_type(document)}; expected an object")
    return document


def read_settings(path: Path) -> dict[str, Any]:
    """Read a JSON settings file."""
    return parse_json_object(path, read_text(path, SETTINGS_LIMIT)) if path.is_file() else {}
