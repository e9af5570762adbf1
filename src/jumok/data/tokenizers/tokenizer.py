"""Encode text as token ids and decode it: one class around the `tokenizers` library for all tokenizer files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from jumok.data.tokenizers import byte_level, chat_template
from jumok.data.tokenizers.gguf_tokenizer import read_gguf_tokenizer
from jumok.data.tokenizers.limited_process import LimitedTokenizer
from jumok.data.tokenizers.tokenizer_files import SPECIAL_TOKENS, read_settings, read_tokenizer, wrap_tokenizers_errors
from jumok.errors import ArgumentError, JumokError, TokenizerError
from jumok.files import write_atomically

__all__ = ["Tokenizer", "TokenizerError"]


class Tokenizer:
    """Encode text as token ids, decode token ids, and name the ids of special tokens.

    Attributes:
        begin: Id of the token that begins a text (bos), or None. So are the other special tokens.
        end: The token that ends a text (eos).
        pad: The padding token.
        mask: The mask token, which a model replaces with its prediction.
        unknown: The token for characters that are not in the vocabulary (unk).
        separator: The token between two texts (sep).
        classify: The token whose output represents the whole text (cls).

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
        self.begin, self.end, self.pad, self.mask, self.unknown, self.separator, self.classify = (
            inner.token_to_id(self._special[role]) if role in self._special else None for role in SPECIAL_TOKENS
        )
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
        """Return the text of token ids. Bytes that are not valid UTF-8 become U+FFFD.

        An id that the vocabulary does not contain is written as "<id 49152>": the embeddings of many models have more
        rows than the vocabulary.
        """
        texts: list[str] = []  # the `tokenizers` library would skip the ids that it does not know
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

    @property
    def ends(self) -> tuple[int, ...]:
        """Ids of all tokens that end a text: `end`, and those in the model's settings (such as the end of a turn)."""
        end = () if self.end is None else (self.end,)
        return tuple(dict.fromkeys((*end, *self._ends)))

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
    def train(
        cls,
        texts: Iterable[str],
        vocabulary: int,
        special: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        after: Sequence[str] = (),
        *,
        one_space: bool = False,
        drop_first_space: bool = False,
    ) -> Tokenizer:
        """Train byte-level BPE, as in GPT-2, on texts; it encodes any text without loss.

        The mask token includes the space before it, because word tokens do too (RoBERTa, Liu et al. 2019).

        Args:
            vocabulary: The number of tokens: special tokens, 256 bytes, and learned tokens.
            special: The special tokens by their role ({"pad": "[PAD]"}); they get the first ids.
            before: The roles of the special tokens that are put before each text.
            after: The roles of the special tokens that are put after each text.
            one_space: Replace line breaks and runs of spaces with one space.
            drop_first_space: Decode tokens without the space before the first word.

        >>> special = {"pad": "[PAD]", "separator": "[SEP]", "mask": "[MASK]"}
        >>> tokenizer = Tokenizer.train(["the cat sat on the mat"] * 9, 270, special, after=["separator"])
        >>> [tokenizer.id_to_token(token) for token in tokenizer.encode("the [MASK]")]
        ['the', '[MASK]', '[SEP]']
        """
        special = special or {}
        if vocabulary < 256 + len(special):
            raise ArgumentError(
                f"a vocabulary of {vocabulary} is too small: it must hold 256 bytes and {len(special)} special tokens"
            )
        inner = tokenizers.Tokenizer(models.BPE())
        if one_space:
            inner.normalizer = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        if drop_first_space:
            inner.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[
                tokenizers.AddedToken(token, lstrip=role == "mask", normalized=False, special=True)
                for role, token in special.items()
            ],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        reading_errors: list[JumokError] = []

        def read_texts() -> Iterator[str]:
            try:
                yield from texts
            except JumokError as error:  # which `tokenizers` replaces with its own
                reading_errors.append(error)
                raise

        try:
            with wrap_tokenizers_errors("no tokens can be learned from these texts"):
                inner.train_from_iterator(read_texts(), trainer)
        except ArgumentError:
            if reading_errors:
                raise reading_errors[0] from None
            raise
        first, last = ([special[role] for role in roles] for roles in (before, after))
        if first or last:
            inner.post_processor = processors.TemplateProcessing(
                single=[*first, "$A", *last],
                special_tokens=[(token, inner.token_to_id(token)) for token in (*first, *last)],
            )
        return cls(inner, special)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Tokenizer:
        """Load a folder with tokenizer.json, or vocab.json and merges.txt, or vocab.txt, and its settings."""
        return cls(*read_tokenizer(Path(folder)))

    def with_special_tokens(self, tokens: Sequence[str], special: Mapping[str, str] | None = None) -> Tokenizer:
        """Return a copy that knows more special tokens, which get the next ids; those by role replace its own.

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
