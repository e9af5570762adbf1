"""Tokens that people can read: never a replacement character, whatever the bytes; words that hold every token once."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from hypothesis import given
from hypothesis import strategies as some
from tokenizers import decoders
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace

from jumok.data.tokenizers.token_labels import group_words, label_tokens
from jumok.data.tokenizers.tokenizer import Tokenizer

BYTES = Tokenizer.for_bytes()


@given(some.text(max_size=20))
def test_labels_spell_the_text(text: str) -> None:
    ids = list(text.encode("utf-8", "replace"))
    found = label_tokens(BYTES, ids)
    assert len(found) == len(ids)
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(found) or "\N{REPLACEMENT CHARACTER}" in text
    assert all(found), "every token is shown as something"
    plain = [one for one, byte in zip(found, ids, strict=True) if 33 <= byte < 127]
    assert "".join(plain) == "".join(letter for letter in text if "!" <= letter <= "~")


@given(some.binary(max_size=20))
def test_bytes_that_are_no_text_are_shown_as_numbers(data: bytes) -> None:
    found = label_tokens(BYTES, list(data))
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(found) or "\N{REPLACEMENT CHARACTER}".encode() in data
    told = "".join(text for text, _ in group_words(BYTES, list(data)))
    assert "\N{REPLACEMENT CHARACTER}" not in told or "\N{REPLACEMENT CHARACTER}".encode() in data
    assert label_tokens(BYTES, [0xFF, 0xEB, 0x82]) == ["<FF>", "<EB>", "<82>"]


@given(some.text(max_size=30))
def test_words_hold_every_token_once_and_in_order(text: str) -> None:
    ids = list(text.encode("utf-8", "replace"))
    found = group_words(BYTES, ids)
    assert [place for _, places in found for place in places] == list(range(len(ids)))
    if text.isascii() and text.isprintable():
        assert [word for word, _ in found if word.strip() and word != "␣"] == text.split()


def test_parts_of_a_character_are_numbered() -> None:
    assert label_tokens(BYTES, list("가 b\n".encode())) == ["가₁", "가₂", "가₃", "␣", "b", "↵"]
    assert group_words(BYTES, list("나는 간다".encode())) == [("나는", range(6)), ("간다", range(6, 13))]


def test_pieces_of_words_are_joined(tmp_path: Path) -> None:
    names = ["[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "aff"]
    made = tokenizers.Tokenizer(WordPiece({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.decoder = decoders.WordPiece()
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    ids = [1, *tokenizer.encode("unaffable aff"), 2]
    assert label_tokens(tokenizer, ids) == ["[CLS]", "un", "##aff", "##able", "aff", "[SEP]"]
    assert group_words(tokenizer, ids) == [
        ("[CLS]", range(1)), ("unaffable", range(1, 4)), ("aff", range(4, 5)), ("[SEP]", range(5, 6)),
    ]  # fmt: skip


def test_several_spaces_belong_to_the_word_behind_them() -> None:
    assert group_words(BYTES, list(b"a  b\n c")) == [("a", range(1)), ("b", range(1, 4)), ("c", range(4, 7))]
