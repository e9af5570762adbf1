"""Encode text as token ids and decode it: one class around the `tokenizers` library for all tokenizer files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from jumok.data.tokenizers import byte_level, chat_template
from jumok.data.tokenizers.gguf_tokenizer import read_gguf_tokenizer
from jumok.data.tokenizers.limited_tokenizer import LimitedTokenizer
from jumok.data.tokenizers.tokenizer_files import read_tokenizer
from jumok.data.tokenizers.tokenizer_parts import SPECIAL_TOKENS, read_settings, wrap_tokenizers_errors
from jumok.errors import ArgumentError, TokenizerError
from jumok.files import write_atomically

__all__ = ["Tokenizer", "TokenizerError"]


class Tokenizer:
    """Encode text as token ids, decode token ids, and name the ids of special tokens.

    >>> tokenizer = Tokenizer.for_characters("hello")
    >>> tokenizer.encode("hole"), tokenizer.decode([1, 3, 2, 0])
    ([1, 3, 2, 0], 'hole')
    >>> Tokenizer.for_bytes().encode("가")
    [234, 176, 128]
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer | LimitedTokenizer,
        special: Mapping[str, str | None] | None = None,
        chat_template: str | None = None,
        ends: Sequence[int] = (),
    ) -> None:
        """Wrap a tokenizer of the `tokenizers` library.

        Args:
            special: Special tokens by role: begin, end, pad, mask, unknown, separator, classify. Tokens that are not
                in the vocabulary are ignored.
            ends: Further token ids that end a text, in addition to the end token.
        """
        inner.no_padding()  # some files pad every text to 128 tokens; batches are padded by pad_sequences
        inner.no_truncation()
        self._inner = inner
        self._special: dict[str, str] = {}
        for role in SPECIAL_TOKENS:  # in this order, so that equal tokenizers write equal files
            token = (special or {}).get(role)
            if token is not None and inner.token_to_id(token) is not None:
                self._special[role] = token
        self.chat_template = chat_template
        self._ends = tuple(ends)

    # encode and decode

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the token ids of a text, with the special tokens that the model expects around it ([CLS], [SEP])."""
        _check_surrogates(text)
        with wrap_tokenizers_errors("this text cannot be encoded"):
            return list(self._inner.encode(text, add_special_tokens=special).ids)

    def list_unknown(self, text: str) -> list[str]:
        """Return the words or characters of a text that the vocabulary does not contain, each once.

        >>> Tokenizer.for_characters("hello").list_unknown("help!")
        ['p', '!']
        """
        if self.unknown is None:
            return []
        with wrap_tokenizers_errors("this text cannot be encoded"):
            encoding = self._inner.encode(text, add_special_tokens=False)
        spans = zip(encoding.ids, encoding.offsets, strict=True)
        return list(dict.fromkeys(text[start:stop] for token_id, (start, stop) in spans if token_id == self.unknown))

    def decode(self, ids: Iterable[int], *, special: bool = True) -> str:
        """Return the text of token ids.

        Args:
            ids: The token ids. Bytes that are not valid UTF-8 become U+FFFD. An id that the vocabulary does not
                contain is written as "<id 49152>": the embeddings of many models have more rows than the vocabulary.
        """
        texts: list[str] = []
        # the `tokenizers` library would skip the ids that it does not know
        for is_known, group in groupby((int(token_id) for token_id in ids), self.contains_id):
            if not is_known:
                texts += [self.id_to_token(token_id) for token_id in group]
                continue
            with wrap_tokenizers_errors("these ids cannot be decoded"):
                texts.append(str(self._inner.decode(list(group), skip_special_tokens=not special)))
        return "".join(texts)

    @cached_property
    def vocabulary(self) -> int:
        """Size of the vocabulary: the largest token id plus 1."""
        return max(self._tokens, default=-1) + 1

    def contains_id(self, token_id: int) -> bool:
        """Return True if the vocabulary contains a token id."""
        return token_id in self._tokens

    def id_to_token(self, token_id: int) -> str:
        """Return a token as it is written in the vocabulary, such as "Ġworld" or "##ing"."""
        token = self._tokens.get(token_id)
        if token is not None:
            return token
        if token_id < 0:
            raise ArgumentError(f"a token id is at least 0, not {token_id}")
        return f"<id {token_id}>"

    def id_to_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of a token, so that text can be streamed; None if it does not stand for bytes."""
        token = self.id_to_token(token_id)
        if not self.contains_id(token_id):
            return None
        if self._token_form == "bytes":
            return byte_level.token_to_bytes(token)
        if self._token_form == "text":
            return token.encode()

        match = re.fullmatch("<0x([0-9A-F]{2})>", token) if self._token_form == "byte fallback" else None
        return None if match is None else bytes([int(match[1], 16)])

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], *, reply: bool = True) -> str:
        """Render a conversation as text, which ends where the model's answer begins if ``reply`` is True."""
        if self.chat_template is None:
            raise ArgumentError("this tokenizer has no chat template; its model was not trained on conversations")
        tokens = {SPECIAL_TOKENS[role]: token for role, token in self._special.items()}
        return chat_template.render_chat(self.chat_template, messages, tokens, reply=reply)

    # ids of special tokens, or None

    @property
    def begin(self) -> int | None:
        """Id of the token that begins a text (bos), or None."""
        return self._find_id("begin")

    @property
    def end(self) -> int | None:
        """Id of the token that ends a text (eos), or None."""
        return self._find_id("end")

    @property
    def ends(self) -> tuple[int, ...]:
        """Ids of all tokens that end a text: `end`, and those in the model's settings (such as the end of a turn)."""
        end = () if self.end is None else (self.end,)
        return tuple(dict.fromkeys((*end, *self._ends)))

    @property
    def pad(self) -> int | None:
        """Id of the padding token, or None."""
        return self._find_id("pad")

    @property
    def mask(self) -> int | None:
        """Id of the mask token, which a model replaces with its prediction, or None."""
        return self._find_id("mask")

    @property
    def unknown(self) -> int | None:
        """Id of the token for characters that are not in the vocabulary (unk), or None."""
        return self._find_id("unknown")

    @property
    def separator(self) -> int | None:
        """Id of the token between two texts (sep), or None."""
        return self._find_id("separator")

    @property
    def classify(self) -> int | None:
        """Id of the token whose output represents the whole text (cls), or None."""
        return self._find_id("classify")

    def _find_id(self, role: str) -> int | None:
        token = self._special.get(role)
        return None if token is None else self._inner.token_to_id(token)

    @cached_property
    def _tokens(self) -> dict[int, str]:
        return {token_id: token for token, token_id in self._inner.get_vocab(with_added_tokens=True).items()}

    @property
    def word_pieces(self) -> list[str]:
        """The tokens of a tokenizer of word pieces; [] for other tokenizers."""
        if not isinstance(self._inner.model, models.WordPiece):
            return []
        special = set(self._special.values())
        return [token for token in self._tokens.values() if token not in special]

    @cached_property
    def _token_form(self) -> str:
        """How tokens are written: "bytes", "text", "byte fallback" (text or one byte) or "other"."""
        decoder = self._inner.decoder
        kinds = set(re.findall(r'"type":"(\w+)"', decoder.__getstate__().decode())) if decoder is not None else set()
        if "ByteLevel" in kinds:
            return "bytes"
        if "ByteFallback" in kinds:
            return "byte fallback"
        return "text" if kinds == {"Fuse"} else "other"

    # create, load and save

    @classmethod
    def for_characters(cls, text: str) -> Tokenizer:
        """Create a tokenizer with one token for each character of a text, sorted, and one for unknown characters."""
        _check_surrogates(text)
        if not text:
            raise ArgumentError("the text is empty; a character tokenizer needs at least one character")
        unknown = "<unk>"
        vocabulary = {token: token_id for token_id, token in enumerate([*sorted(set(text)), unknown])}
        inner = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token=unknown, fuse_unk=False))
        inner.decoder = decoders.Fuse()
        return cls(inner, {"unknown": unknown})

    @classmethod
    def for_bytes(cls) -> Tokenizer:
        """Create a tokenizer whose 256 ids are the bytes of the text in UTF-8; it encodes any text without loss."""
        inner = tokenizers.Tokenizer(models.BPE(byte_level.LETTER_TO_BYTE, []))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.decoder = decoders.ByteLevel()
        return cls(inner)

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int, special: Mapping[str, str] | None = None) -> Tokenizer:
        """Train byte-level BPE, as in GPT-2, on texts; it encodes any text without loss.

        Args:
            vocabulary: Size of the vocabulary: special tokens, 256 bytes, and learned tokens.
            special: Special tokens by role, such as {"begin": "<s>"}; they get the first ids.

        >>> tokenizer = Tokenizer.train(["the cat, the hat, the bat"] * 50, 270)
        >>> tokenizer.decode(tokenizer.encode("the 고양이"))
        'the 고양이'
        """
        smallest = 256 + len(special or {})
        if vocabulary < smallest:
            raise ArgumentError(
                f"a vocabulary of {vocabulary} is too small for 256 bytes and the special tokens; "
                f"use at least {smallest}"
            )
        inner = tokenizers.Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=list((special or {}).values()),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        with wrap_tokenizers_errors("no tokenizer can be learned from these texts"):
            inner.train_from_iterator(texts, trainer)
        return cls(inner, special)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Tokenizer:
        """Load a folder with tokenizer.json, or vocab.json and merges.txt, or vocab.txt, and its settings."""
        return cls(*read_tokenizer(Path(folder)))

    def with_special_tokens(self, tokens: Sequence[str], special: Mapping[str, str] | None = None) -> Tokenizer:
        """Return a copy of this tokenizer that knows more special tokens.

        Args:
            tokens: The tokens; those that are not in the vocabulary get the next ids, in this order.
            special: Special tokens by role, as in ``__init__``; they replace those of this tokenizer.

        >>> tokenizer = Tokenizer.for_bytes().with_special_tokens(["<|start|>"])
        >>> tokenizer.encode("<|start|>A")
        [256, 65]
        """
        inner: Any = tokenizers.Tokenizer.from_str(self._inner.to_str())
        inner.add_special_tokens([tokenizers.AddedToken(token, special=True, normalized=False) for token in tokens])
        if isinstance(self._inner, LimitedTokenizer):
            inner = LimitedTokenizer(inner.to_str())
        return Tokenizer(inner, {**self._special, **(special or {})}, self.chat_template, self._ends)

    @classmethod
    def from_gguf(cls, fields: Mapping[str, Any]) -> Tokenizer:
        """Build the tokenizer of a GGUF file."""
        return cls(*read_gguf_tokenizer(fields))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write files that `load` and transformers' AutoTokenizer read; return the folder."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)

        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        special = {SPECIAL_TOKENS[role]: token for role, token in self._special.items()}
        write_atomically(target / "tokenizer.json", self._inner.to_str())
        write_atomically(target / "tokenizer_config.json", _format_json(settings | special))
        write_atomically(target / "special_tokens_map.json", _format_json(special))

        if self.chat_template is None:
            (target / "chat_template.jinja").unlink(missing_ok=True)
        else:
            write_atomically(target / "chat_template.jinja", self.chat_template)

        if set(self.ends) - {self.end}:  # generation_config.json is where transformers looks for further end tokens
            generation_config = read_settings(target / "generation_config.json")
            generation_config["eos_token_id"] = list(self.ends)
            write_atomically(target / "generation_config.json", _format_json(generation_config))
        return target


def _format_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _check_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"character {error.start} of the text is a lone surrogate, not a character") from error
