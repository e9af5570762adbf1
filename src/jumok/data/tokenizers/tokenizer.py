"""Text as numbers, and back: one class around Hugging Face's `tokenizers`, whichever files a tokenizer comes in."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from jumok.data.tokenizers.tokenizer_files import SPECIAL, wrap_tokenizers_errors
from jumok.errors import ArgumentError, TokenizerError

from . import byte_level, chat_template, tokenizer_files

__all__ = ["Tokenizer", "TokenizerError"]


class Tokenizer:
    """Text to ids and ids to text, and the ids that mean something of their own.

    >>> letters = Tokenizer.characters("hello")
    >>> letters.encode("hole"), letters.decode([1, 3, 2, 0])
    ([1, 3, 2, 0], 'hole')
    >>> Tokenizer.of_bytes().encode("가")
    [234, 176, 128]
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        special: Mapping[str, str | None] | None = None,
        chat_template: str | None = None,
        ends: Sequence[int] = (),
    ) -> None:
        """`special` gives tokens by our words: begin, end, pad, mask, unknown, separator, classify. `ends` are further
        ids that end a text."""
        inner.no_padding()  # some files ask for 128 tokens, always; batches are made elsewhere
        inner.no_truncation()
        self._inner = inner
        named = {word: token for word, token in (special or {}).items() if token is not None}
        self._special = {word: token for word, token in named.items() if inner.token_to_id(token) is not None}
        self.chat_template = chat_template
        self._ends = tuple(ends)

    # what it does

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of a text; with `special`, between the tokens that its model expects around one ([CLS] ... [SEP])."""
        _check_characters(text)
        with wrap_tokenizers_errors("this text cannot be encoded"):
            return list(self._inner.encode(text, add_special_tokens=special).ids)

    def decode(self, ids: Iterable[int], *, special: bool = True) -> str:
        """The text of ids; with `special`, special tokens are written too. Bytes that are no UTF-8 become U+FFFD."""
        numbers = [int(number) for number in ids]
        for number in numbers:
            self.id_to_token(number)  # `tokenizers` leaves out what it does not know
        with wrap_tokenizers_errors("these ids cannot be decoded"):
            return str(self._inner.decode(numbers, skip_special_tokens=not special))

    @cached_property
    def vocabulary(self) -> int:
        """How many ids there are: the largest, and one."""
        return max(self._tokens, default=-1) + 1

    def id_to_token(self, number: int) -> str:
        """The token of an id as it stands in the vocabulary: "Ġworld", "##ing"."""
        try:
            return self._tokens[number]
        except KeyError:
            raise ArgumentError(f"there is no token {number}; ids go from 0 to {self.vocabulary - 1}") from None

    def bytes_of(self, number: int) -> bytes | None:
        """The bytes of a token, where tokens are bytes, so that text can be streamed; None where they are not."""
        token = self.id_to_token(number)
        if self._writing == "bytes":
            return byte_level.spelled(token)
        if self._writing == "text":
            return token.encode()
        byte = re.fullmatch("<0x([0-9A-F]{2})>", token) if self._writing == "fallback" else None
        return None if byte is None else bytes([int(byte[1], 16)])

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], *, reply: bool = True) -> str:
        """A conversation ([{"role": "user", "content": "Hi"}]) as text; with `reply`, up to where the answer begins."""
        if self.chat_template is None:
            raise ArgumentError("this tokenizer has no chat template; its model was not trained on conversations")
        tokens = {SPECIAL[word]: token for word, token in self._special.items()}
        return chat_template.render(self.chat_template, messages, tokens, reply=reply)

    # the ids that mean something of their own, or None

    @property
    def begin(self) -> int | None:
        """Begins a text (bos)."""
        return self._number("begin")

    @property
    def end(self) -> int | None:
        """Ends a text (eos)."""
        return self._number("end")

    @property
    def ends(self) -> tuple[int, ...]:
        """All that end a text: `end`, and what the model beside this tokenizer was told (the end of a turn)."""
        own = () if self.end is None else (self.end,)
        return tuple(dict.fromkeys((*own, *self._ends)))

    @property
    def pad(self) -> int | None:
        """Fills up a batch."""
        return self._number("pad")

    @property
    def mask(self) -> int | None:
        """Stands where a word is to be guessed."""
        return self._number("mask")

    @property
    def unknown(self) -> int | None:
        """Stands for what cannot be written."""
        return self._number("unknown")

    @property
    def separator(self) -> int | None:
        """Stands between two texts (sep)."""
        return self._number("separator")

    @property
    def classify(self) -> int | None:
        """Is read for the whole text (cls)."""
        return self._number("classify")

    def _number(self, word: str) -> int | None:
        token = self._special.get(word)
        return None if token is None else self._inner.token_to_id(token)

    @cached_property
    def _tokens(self) -> dict[int, str]:
        return {number: token for token, number in self._inner.get_vocab(with_added_tokens=True).items()}

    @cached_property
    def _writing(self) -> str:
        """How tokens are written: as bytes, as text, as words with bytes to fall back on, or otherwise."""
        decoder = self._inner.decoder
        kinds = set(re.findall(r'"type":"(\w+)"', decoder.__getstate__().decode())) if decoder is not None else set()
        if "ByteLevel" in kinds:
            return "bytes"
        if "ByteFallback" in kinds:
            return "fallback"
        return "text" if kinds == {"Fuse"} else "otherwise"

    # where it comes from, and where it goes

    @classmethod
    def for_characters(cls, text: str) -> Tokenizer:
        """One token for each character of a text, sorted, and one more for all others."""
        _check_characters(text)
        if not text:
            raise ArgumentError("a text without characters makes no tokenizer")
        unknown = "<unk>"
        vocabulary = {token: number for number, token in enumerate([*sorted(set(text)), unknown])}
        inner = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token=unknown, fuse_unk=False))
        inner.decoder = decoders.Fuse()
        return cls(inner, {"unknown": unknown})

    @classmethod
    def for_bytes(cls) -> Tokenizer:
        """The 256 bytes: an id is a byte of the text in UTF-8, and any text comes back as it was."""
        inner = tokenizers.Tokenizer(models.BPE({letter: byte for byte, letter in byte_level.LETTERS.items()}, []))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.decoder = decoders.ByteLevel()
        return cls(inner)

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int, special: Mapping[str, str] | None = None) -> Tokenizer:
        """Pieces of words that are frequent in `texts`: byte-level byte-pair encoding, as GPT-2's, so that nothing is
        unknown. `special` tokens come first ({"begin": "<s>"}).

        >>> pieces = Tokenizer.learned(["the cat, the hat, the bat"] * 50, 270)
        >>> pieces.decode(pieces.encode("the 고양이"))
        'the 고양이'
        """
        if vocabulary < 256 + len(special or {}):
            raise ArgumentError(f"a vocabulary of {vocabulary} is too small: bytes and special tokens come first")
        inner = tokenizers.Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=list((special or {}).values()),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        with wrap_tokenizers_errors("no pieces can be learned from these texts"):
            inner.train_from_iterator(texts, trainer)
        return cls(inner, special)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Tokenizer:
        """The tokenizer in a folder: tokenizer.json, or vocab.json and merges.txt, or vocab.txt; with its settings."""
        return cls(*tokenizer_files.read(Path(folder)))

    @classmethod
    def from_gguf(cls, fields: Mapping[str, Any]) -> Tokenizer:
        """The tokenizer in the metadata of a GGUF file, read before: {"tokenizer.ggml.tokens": [...], ...}."""
        return cls(*tokenizer_files.read_gguf(fields))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write it into a folder, made if need be, so that `load` and transformers' AutoTokenizer read it."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        named = {SPECIAL[word]: token for word, token in self._special.items()}
        written = {
            "tokenizer.json": self._inner.to_str(),
            "tokenizer_config.json": json.dumps(settings | named, ensure_ascii=False, indent=1) + "\n",
            "special_tokens_map.json": json.dumps(named, ensure_ascii=False, indent=1) + "\n",
            "chat_template.jinja": self.chat_template,
        }
        if set(self.ends) - {self.end}:  # transformers, too, looks for them there, among other things
            told = {**tokenizer_files.read_settings(place / "generation_config.json"), "eos_token_id": list(self.ends)}
            written["generation_config.json"] = json.dumps(told, ensure_ascii=False, indent=1) + "\n"
        for name, text in written.items():
            if text is None:
                (place / name).unlink(missing_ok=True)
                continue
            fresh = place / f".{name}.{os.getpid()}"
            fresh.write_bytes(text.encode())
            fresh.replace(place / name)
        return place


def _check_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"character {error.start} of the text is half a character (a lone surrogate)") from error
