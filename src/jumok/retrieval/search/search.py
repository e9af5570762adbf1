"""Find the passages that fit a question: by its words (BM25), by its meaning (vectors), or by both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError, DataError, describe_type
from jumok.retrieval.passage import Hit, Passage

from .bm25 import BM25Index, has_latin_letters, has_paired_characters
from .embedding import PREFIXES, embed_question
from .ranking import check_count, fuse
from .vectors import VectorIndex

Method = Literal["bm25", "dense", "fused"]
METHODS: tuple[str, ...] = ("auto", *get_args(Method))
FUSED_DEPTH = 100  # passages of each ranking that are fused

NO_KOREAN_MODEL = (
    "the vectors of this index are from an English model, so the passages were searched by their words (BM25); for "
    "Korean: jumok data get e5-multilingual"
)
OTHER_SCRIPT = "the embedding model was trained on English, so the passages were searched by their words (BM25)"


@dataclass(frozen=True)
class SearchResult:
    """The passages that a search found."""

    hits: list[Hit]  # best first; [] if nothing was found
    method: Method  # how they were ranked: by shared words, the cosine of vectors, or both rankings
    note: str | None = None  # a sentence about this search that the person should read


def search(
    question: str,
    *,
    bm25: BM25Index,
    get_passage: Callable[[int], Passage],
    vectors: VectorIndex | None = None,
    embedder: Loaded | None = None,
    embedder_name: str = "minilm",
    count: int = 5,
    method: str = "auto",
) -> SearchResult:
    """Return the passages that fit a question best.

    Args:
        vectors: The vectors of the same passages; None, or without the model that computed them: only BM25 is possible.
        embedder_name: The name of that model, which decides which languages it reads.
        method: "bm25", "dense", "fused", or "auto": fused, which found most on held-out questions
            (bench/retrieval/recall.py), or BM25 if there are no vectors or the question is not in Latin letters.
    """
    has_vectors = vectors is not None and embedder is not None
    if not isinstance(question, str):
        raise ArgumentError(f"the question must be a text, not {describe_type(question)}")
    if not question.strip():
        raise ArgumentError("the question is empty; ask something about the indexed files")
    if method not in METHODS:
        raise ArgumentError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    if method in ("dense", "fused") and not has_vectors:
        raise ArgumentError(f"method {method!r} needs vectors, and this index has none; use bm25, or index with minilm")
    check_count(count)
    if vectors is not None and len(vectors) != len(bm25):
        raise DataError(f"the index has {len(bm25):,} passages, but {len(vectors):,} vectors; build the index again")
    chosen, note = _choose_method(question, method, has_vectors, embedder_name in PREFIXES)
    if not len(bm25):
        return SearchResult([], chosen, "the index has no passages")
    if not bm25.knows(question):
        missing = "no word of the question occurs in the indexed files"
        note = missing if note is None else f"{missing}; {note}"

    if chosen == "bm25":
        ranked = bm25.search(question, count)
        hits = [Hit(number, get_passage(number), score, bm25=score) for number, score in ranked]
        return SearchResult(hits, chosen, note)

    assert vectors is not None and embedder is not None
    vector = embed_question(embedder, question, embedder_name)
    if chosen == "dense":
        ranked = vectors.search(vector, count)
    else:
        depth = max(count, FUSED_DEPTH)
        rankings = (bm25.search(question, depth), vectors.search(vector, depth))
        ranked = fuse([[number for number, _ in ranking] for ranking in rankings])[:count]
    numbers = [number for number, _ in ranked]
    scores = zip(ranked, bm25.score(question, numbers), vectors.score(vector, numbers), strict=True)
    hits = [
        Hit(number, get_passage(number), score, bm25=word_score, cosine=cosine)
        for (number, score), word_score, cosine in scores
    ]
    return SearchResult(hits, chosen, note)


def _choose_method(question: str, method: str, has_vectors: bool, is_multilingual: bool) -> tuple[Method, str | None]:
    """Return the method, and a note if the embedding model cannot read the question."""
    if method == "bm25" or not has_vectors:
        return "bm25", None
    is_paired = has_paired_characters(question)
    is_readable = is_multilingual or (has_latin_letters(question) and not is_paired)
    if method == "auto" and not is_readable:
        return "bm25", NO_KOREAN_MODEL if is_paired else OTHER_SCRIPT
    note = None if is_readable else "the embedding model was trained on English, and does not understand this question"
    return ("dense" if method == "dense" else "fused"), note
