"""Test readable token labels (never a replacement character) and the grouping of tokens into words."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace

from jumok.data.tokenizers.token_labels import group_words, label_tokens
from jumok.data.tokenizers.tokenizer import Tokenizer

BYTES = Tokenizer.for_bytes()


@given(st.text(max_size=20))
def test_labels_contain_the_text(text: str) -> None:
    ids = list(text.encode("utf-8", "replace"))
    labels = label_tokens(BYTES, ids)
    assert len(labels) == len(ids)
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(labels) or "\N{REPLACEMENT CHARACTER}" in text
    assert all(labels), "no label is empty"
    ascii_labels = [label for label, byte in zip(labels, ids, strict=True) if 33 <= byte < 127]
    assert "".join(ascii_labels) == "".join(letter for letter in text if "!" <= letter <= "~")


@given(st.binary(max_size=20))
def test_bytes_outside_characters_are_labelled_as_numbers(content: bytes) -> None:
    labels = label_tokens(BYTES, list(content))
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(labels) or "\N{REPLACEMENT CHARACTER}".encode() in content
    words = "".join(text for text, _ in group_words(BYTES, list(content)))
    assert "\N{REPLACEMENT CHARACTER}" not in words or "\N{REPLACEMENT CHARACTER}".encode() in content
    assert label_tokens(BYTES, [0xFF, 0xEB, 0x82]) == ["<FF>", "<EB>", "<82>"]


@given(st.text(max_size=30))
def test_words_contain_every_token_once_and_in_order(text: str) -> None:
    ids = list(text.encode("utf-8", "replace"))
    words = group_words(BYTES, ids)
    assert [position for _, positions in words for position in positions] == list(range(len(ids)))
    if text.isascii() and text.isprintable():
        assert [word for word, _ in words if word.strip() and word != "␣"] == text.split()


def test_bytes_of_a_character_are_numbered() -> None:
    assert label_tokens(BYTES, list("가 b\n".encode())) == ["가₁", "가₂", "가₃", "␣", "b", "↵"]
    assert group_words(BYTES, list("나는 간다".encode())) == [("나는", range(6)), ("간다", range(6, 13))]


def test_wordpieces_are_joined(tmp_path: Path) -> None:
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "aff"]
    inner = tokenizers.Tokenizer(
        WordPiece({token: token_id for token_id, token in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    inner.pre_tokenizer = Whitespace()
    inner.decoder = decoders.WordPiece()
    inner.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    ids = [1, *tokenizer.encode("unaffable aff"), 2]
    assert label_tokens(tokenizer, ids) == ["[CLS]", "un", "##aff", "##able", "aff", "[SEP]"]
    assert group_words(tokenizer, ids) == [
        ("[CLS]", range(1)), ("unaffable", range(1, 4)), ("aff", range(4, 5)), ("[SEP]", range(5, 6)),
    ]  # fmt: skip


def test_special_tokens_are_left_out_of_the_words_on_request() -> None:
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##able", "<b>"]
    inner = tokenizers.Tokenizer(WordPiece({token: index for index, token in enumerate(vocabulary)}, unk_token="[UNK]"))
    inner.decoder = decoders.WordPiece()
    inner.add_special_tokens(vocabulary[:4])
    tokenizer = Tokenizer(inner, {"unknown": "[UNK]", "mask": "[MASK]", "classify": "[CLS]", "separator": "[SEP]"})

    words = group_words(tokenizer, [1, 4, 5, 2, 5, 0, 3, 6, 2], special=False)

    # what follows a separator is a new word; unknown and masked tokens stand for words, and <b> is text
    texts = ["unable", "##able", "[UNK]", "[MASK]", "<b>"]
    positions = [range(1, 3), range(4, 5), range(5, 6), range(6, 7), range(7, 8)]
    assert words == list(zip(texts, positions, strict=True))


def test_spaces_belong_to_the_word_after_them() -> None:
    assert group_words(BYTES, list(b"a  b\n c")) == [("a", range(1)), ("b", range(1, 4)), ("c", range(4, 7))]
