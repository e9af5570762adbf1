"""The parts that every tokenizer file is read into, and the error handling around the `tokenizers` library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import tokenizers

from jumok.data.tokenizers.limited_tokenizer import LimitedTokenizer
from jumok.errors import ArgumentError

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


@dataclass
class TokenizerParts:
    """The arguments that a `Tokenizer` is constructed from.

    Attributes:
        special: Special tokens by role (the keys of SPECIAL_TOKENS); None for a role without a token.
        chat_template: Jinja template of a conversation, or None.
        ends: Further token ids that end a text, in addition to the end token.
    """

    inner: tokenizers.Tokenizer | LimitedTokenizer
    special: dict[str, str | None] = field(default_factory=dict)
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
