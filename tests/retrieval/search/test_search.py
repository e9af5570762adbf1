"""Fusion, the choice of a method, notes, and what happens at the limits of an index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from jumok.checkpoint import Loaded
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, DataError
from jumok.models.bert import BERT, BERTConfig
from jumok.retrieval import Passage
from jumok.retrieval.search.bm25 import BM25Index
from jumok.retrieval.search.embedding import embed_passages
from jumok.retrieval.search.ranking import fuse, select_largest
from jumok.retrieval.search.search import SearchResult, search
from jumok.retrieval.search.vectors import VectorIndex

TEXTS = [
    "The white whale sank the ship.",
    "Alice followed the rabbit into its hole.",
    "A ship sails from Nantucket.",
    "The rabbit looked at its watch.",
    "A ship sails from Nantucket.",
    "고래를 쫓는 배가 항구를 떠났다.",
]

Search = Callable[..., SearchResult]


@pytest.fixture(scope="module")
def embedder() -> Loaded:
    """A small encoder with random parameters and bytes as tokens."""
    torch.manual_seed(0)
    config = BERTConfig(vocabulary=256, width=24, layers=2, heads=3, hidden=48, length=100)
    return Loaded(BERT(config).eval(), Tokenizer.for_bytes())


@pytest.fixture
def search_texts(tmp_path: Path, embedder: Loaded) -> Search:
    bm25 = BM25Index.build(tmp_path, TEXTS)
    vectors = VectorIndex(np.stack(list(embed_passages(embedder, TEXTS))))

    def search_indexes(question: str, *, dense: bool = True, **options: object) -> SearchResult:
        dense_index = {"vectors": vectors, "embedder": embedder} if dense else {}
        return search(question, bm25=bm25, get_passage=get_passage, **dense_index, **options)

    return search_indexes


def get_passage(number: int) -> Passage:
    return Passage(f"{number}.txt", 1, 1, TEXTS[number])


def get_numbers(outcome: SearchResult) -> list[int]:
    return [hit.number for hit in outcome.hits]


def test_fused_scores_are_sums_of_reciprocal_ranks() -> None:
    fused = fuse([[5, 2, 9], [2, 7]])
    assert fused == [(2, 1 / 62 + 1 / 61), (5, 1 / 61), (7, 1 / 62), (9, 1 / 63)]
    assert fuse([[4, 1], [1, 4]]) == [(1, 1 / 62 + 1 / 61), (4, 1 / 61 + 1 / 62)]  # equal: the smaller number first
    assert fuse([]) == [] == fuse([[], []])


def test_the_largest_scores_are_selected_as_by_sorting() -> None:
    scores = np.random.default_rng(1).integers(0, 7, 97).astype(np.float32)
    ordered = sorted(range(97), key=lambda number: (-scores[number], number))
    for count in (1, 5, 50, 97, 1000):
        assert [number for number, _ in select_largest(scores, count)] == ordered[:count]
    assert all(score > 0 for _, score in select_largest(scores, 97, above=0.0))
    assert select_largest(np.empty(0, dtype=np.float32), 3) == []


def test_bm25_alone(search_texts: Search) -> None:
    outcome = search_texts("rabbit watch", method="bm25")
    assert outcome.method == "bm25" and outcome.note is None and get_numbers(outcome) == [3, 1]
    hit = outcome.hits[0]
    assert hit.passage == get_passage(3) and hit.score == hit.bm25 > 0 and hit.cosine is None


def test_dense_alone(search_texts: Search) -> None:
    outcome = search_texts(TEXTS[3], method="dense", count=2)
    assert outcome.method == "dense" and get_numbers(outcome)[0] == 3 and len(outcome.hits) == 2
    assert outcome.hits[0].score == outcome.hits[0].cosine == pytest.approx(1, abs=1e-5) and outcome.hits[0].bm25 > 0


def test_fused_contains_both_scores(search_texts: Search) -> None:
    outcome = search_texts("ship", method="fused", count=6)
    assert outcome.method == "fused" and sorted(get_numbers(outcome)) == [0, 1, 2, 3, 4, 5]
    words = get_numbers(search_texts("ship", method="bm25"))
    meaning = get_numbers(search_texts("ship", method="dense", count=6))
    assert get_numbers(outcome) == [number for number, _ in fuse([words, meaning])]
    assert all(hit.bm25 is not None and hit.cosine is not None for hit in outcome.hits)


def test_korean_uses_bm25_and_says_why(search_texts: Search) -> None:
    outcome = search_texts("고래는 어디로?")
    assert outcome.method == "bm25" and get_numbers(outcome) == [5] and "are from an English model" in outcome.note
    assert search_texts("고래는 어디로?", dense=False).note is None
    assert "trained on English" in search_texts("고래는 어디로?", method="dense").note


def test_other_scripts_use_bm25_too(search_texts: Search) -> None:
    outcome = search_texts("Где ship?")
    assert outcome.method == "fused"  # most letters are Latin
    outcome = search_texts("Где корабль, ship?")
    assert outcome.method == "bm25" and "trained on English" in outcome.note
    assert search_texts("1851?").method == "fused"


def test_without_vectors_auto_is_bm25(search_texts: Search) -> None:
    assert search_texts("ship", dense=False).method == "bm25"
    for method in ("dense", "fused"):
        with pytest.raises(ArgumentError, match=f"method '{method}' needs vectors"):
            search_texts("ship", dense=False, method=method)


def test_a_question_without_a_known_word(search_texts: Search) -> None:
    outcome = search_texts("submarine", method="bm25")
    assert outcome.hits == [] and outcome.note == "no word of the question occurs in the indexed files"
    for method in ("dense", "fused"):
        outcome = search_texts("submarine", method=method, count=3)
        assert len(outcome.hits) == 3 and "no word of the question" in outcome.note
        assert all(hit.bm25 == 0 for hit in outcome.hits)


def test_more_passages_than_there_are(search_texts: Search) -> None:
    assert len(search_texts("ship", method="fused", count=1000).hits) == len(TEXTS)
    assert get_numbers(search_texts("ship", method="bm25", count=1000)) == [2, 4, 0]


def test_an_empty_index(tmp_path: Path, embedder: Loaded) -> None:
    bm25 = BM25Index.build(tmp_path, [])
    vectors = VectorIndex(np.empty((0, 24), dtype=np.float32))
    for method in ("auto", "bm25", "dense", "fused"):
        outcome = search("ship", bm25=bm25, get_passage=get_passage, vectors=vectors, embedder=embedder, method=method)
        assert outcome.hits == [] and outcome.note == "the index has no passages"


def test_indexes_of_different_passages_are_refused(tmp_path: Path, embedder: Loaded) -> None:
    bm25 = BM25Index.build(tmp_path, TEXTS)
    vectors = VectorIndex(np.stack(list(embed_passages(embedder, TEXTS[:4]))))
    with pytest.raises(DataError, match="6 passages, but 4 vectors"):
        search("ship", bm25=bm25, get_passage=get_passage, vectors=vectors, embedder=embedder)


def test_wrong_arguments(search_texts: Search) -> None:
    for question in ("", "  \n"):
        with pytest.raises(ArgumentError, match="the question is empty"):
            search_texts(question)
    with pytest.raises(ArgumentError, match="choose one of auto, bm25, dense, fused"):
        search_texts("ship", method="bm")
    with pytest.raises(ArgumentError, match="at least 1"):
        search_texts("ship", count=0)


def test_the_same_question_has_the_same_answer(search_texts: Search) -> None:
    assert search_texts("the ship and the rabbit", count=6) == search_texts("the ship and the rabbit", count=6)
