"""Terms and BM25: the formula in float64, Korean pairs, ties, empty and damaged indexes."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from jumok.errors import ArgumentError, DataError
from jumok.retrieval.search.bm25 import HEADER_FILE, MAX_TERM_LENGTH, BM25Index, has_paired_characters, split_terms
from jumok.retrieval.search.ranking import check_count

TEXTS = [
    "The white whale swam. The whale sank the ship.",
    "A ship sails from Nantucket.",
    "",
    "Alice follows the rabbit, the White Rabbit.",
    "A ship sails from Nantucket.",
    "고래를 쫓는 배가 항구를 떠났다.",
]


def score_by_formula(texts: list[str], question: str, k1: float = 1.5, b: float = 0.75) -> list[float]:
    """BM25 in plain float64 loops, with Lucene's form of the inverse document frequency."""
    documents = [split_terms(text) for text in texts]
    mean_length = sum(len(terms) for terms in documents) / len(documents)
    scores = []
    for terms in documents:
        score = 0.0
        for term in split_terms(question):
            containing = sum(term in other for other in documents)
            idf = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
            frequency = terms.count(term)
            score += idf * frequency / (frequency + k1 * (1 - b + b * len(terms) / mean_length))
        scores.append(score)
    return scores


def test_scores_equal_the_formula(tmp_path: Path) -> None:
    words = random.Random(7)
    vocabulary = [f"word{number}" for number in range(31)]
    texts = [" ".join(words.choices(vocabulary, k=words.randrange(1, 23))) for _ in range(53)]
    index = BM25Index.build(tmp_path, iter(texts))
    for question in ("word3 word5 word7", "word2 word2 unknown", "word11"):
        expected = score_by_formula(texts, question)
        assert index.score(question, range(len(texts))) == pytest.approx(expected, rel=1e-5, abs=1e-6)
        best = sorted((number for number in range(53) if expected[number] > 0), key=lambda n: (-expected[n], n))
        assert [number for number, _ in index.search(question, 7)] == best[:7]


def test_ties_come_in_the_order_of_the_texts(tmp_path: Path) -> None:
    index = BM25Index.build(tmp_path, ["a cat", "one dog", "the dog", "my dog"] * 11)
    assert [number for number, _ in index.search("dog", 5)] == [1, 2, 3, 5, 6]


def test_only_texts_that_share_a_term_are_found(tmp_path: Path) -> None:
    index = BM25Index.build(tmp_path, TEXTS)
    assert {number for number, _ in index.search("ship", 100)} == {0, 1, 4}
    assert index.search("submarine", 5) == [] and not index.knows("submarine")
    assert index.search("?!", 5) == [] and index.search("", 5) == []
    assert index.score("submarine", [0, 2]) == [0.0, 0.0]


def test_korean_words_are_found_whatever_their_particles(tmp_path: Path) -> None:
    index = BM25Index.build(tmp_path, TEXTS)
    assert [number for number, _ in index.search("항구에서 고래는", 3)] == [5]


@pytest.mark.parametrize("texts", [[], [""], ["", " ?!", "..."]])
def test_texts_without_terms(tmp_path: Path, texts: list[str]) -> None:
    BM25Index.build(tmp_path, texts)
    index = BM25Index.open(tmp_path)
    assert len(index) == len(texts) and index.search("whale", 3) == []
    assert index.score("whale", range(len(texts))) == [0.0] * len(texts)


def test_an_opened_index_equals_the_built_one(tmp_path: Path) -> None:
    built = BM25Index.build(tmp_path, TEXTS)
    opened = BM25Index.open(tmp_path)
    assert len(opened) == len(TEXTS)
    assert opened.search("the white ship", 9) == built.search("the white ship", 9) != []


def test_files_are_plain_arrays_and_json_without_the_texts(tmp_path: Path) -> None:
    BM25Index.build(tmp_path, TEXTS)
    files = sorted(tmp_path.iterdir())
    assert {file.suffix for file in files} == {".npy", ".json"}
    for file in files:
        if file.suffix == ".npy":
            assert np.load(file, allow_pickle=False).dtype.kind in "fi"
        else:
            json.loads(file.read_text())
        assert b"sails from" not in file.read_bytes()


def test_building_again_replaces_the_index(tmp_path: Path) -> None:
    BM25Index.build(tmp_path, TEXTS)
    index = BM25Index.build(tmp_path, ["only a cat"])
    assert len(index) == 1 and index.search("ship", 3) == [] and index.search("CAT", 3)


@pytest.mark.parametrize("name", ["bm25.json", "vocab.index.json", "params.index.json", "data.csc.index.npy"])
@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY damaged", b"[]", None])
def test_damaged_files_are_noticed(tmp_path: Path, name: str, damage: bytes | None) -> None:
    BM25Index.build(tmp_path, TEXTS)
    if damage is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(damage)
    with pytest.raises(DataError, match="build it again"):
        BM25Index.open(tmp_path)


def test_arrays_of_another_index_are_noticed(tmp_path: Path) -> None:
    BM25Index.build(tmp_path / "first", TEXTS)
    BM25Index.build(tmp_path / "second", TEXTS[:2])
    for name in ("data.csc.index.npy", "vocab.index.json", "params.index.json"):
        BM25Index.build(tmp_path / "first", TEXTS)
        (tmp_path / "first" / name).write_bytes((tmp_path / "second" / name).read_bytes())
        with pytest.raises(DataError, match="build it again"):
            BM25Index.open(tmp_path / "first")


def test_an_index_of_other_terms_is_noticed(tmp_path: Path) -> None:
    BM25Index.build(tmp_path, TEXTS)
    header = json.loads((tmp_path / HEADER_FILE).read_text())
    (tmp_path / HEADER_FILE).write_text(json.dumps({**header, "terms_version": 0}))
    with pytest.raises(DataError, match="another version; build it again"):
        BM25Index.open(tmp_path)


def test_an_interrupted_build_cannot_be_opened(tmp_path: Path) -> None:
    BM25Index.build(tmp_path, TEXTS)

    def yield_then_interrupt():
        yield "a whale"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BM25Index.build(tmp_path, yield_then_interrupt())
    with pytest.raises(DataError, match="build it again"):
        BM25Index.open(tmp_path)


def test_wrong_arguments(tmp_path: Path) -> None:
    index = BM25Index.build(tmp_path, TEXTS)
    for count in (0, -1):
        with pytest.raises(ArgumentError, match="at least 1"):
            index.search("ship", count)
    for count in (2.5, True, None):
        with pytest.raises(ArgumentError, match="must be an integer"):
            check_count(count)
    for number in (6, -1):
        with pytest.raises(ArgumentError, match=f"there is no text {number}; the index has 6 texts"):
            index.score("ship", [number])


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Don't stop: it's O'Brien's cat", ["don't", "stop", "it", "o'brien", "cat"]),
        ("_emphasised_ snake_case x2", ["emphasised", "snake", "case", "x2"]),
        ("AI법 시행령", ["ai", "법", "시행", "행령"]),
        ("\u1112\u1161\u11ab\u1100\u1173\u11af", ["한글"]),  # conjoining letters, as macOS stores them
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("café Straße ＡＢＣ", ["café", "strasse", "abc"]),
        ("’tis the whale’s", ["tis", "the", "whale"]),
        ("x" * 1000, ["x" * MAX_TERM_LENGTH]),
        ("", []),
        ("-- ... \0 \ud800", []),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert split_terms(text) == terms


def test_paired_characters() -> None:
    assert has_paired_characters("who is 앨리스?") and not has_paired_characters("Où est Ωmega?")
