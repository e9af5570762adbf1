"""Rank texts by BM25 with any way of splitting them into terms, to compare ways. It takes bm25s as the package does."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

import bm25s
import numpy as np

from jumok.retrieval.search.bm25 import K1, B
from jumok.retrieval.search.ranking import select_largest

SplitTerms = Callable[[str], list[str]]


class TermRanking:
    """BM25 over texts that are split into terms by a given function.

    Args:
        texts: The texts.
        split: The function.
        k1: BM25's k1.
        b: BM25's b.
    """

    def __init__(self, texts: Iterable[str], split: SplitTerms, k1: float = K1, b: float = B) -> None:
        self._split = split
        self._vocabulary = {"": 0}
        documents = [
            array("i", (self._vocabulary.setdefault(term, len(self._vocabulary)) for term in split(text)))
            for text in texts
        ]
        self._retriever = bm25s.BM25(k1=k1, b=b, method="lucene")
        self._retriever.index((documents, self._vocabulary), create_empty_token=False, show_progress=False)
        self._length = len(documents)

    def search(self, question: str, count: int) -> list[int]:
        """Return the numbers of the texts with the largest scores, best first.

        Args:
            question: The question.
            count: The largest number of texts.
        """
        terms = [self._vocabulary[term] for term in self._split(question) if term in self._vocabulary]
        scores = self._retriever.get_scores_from_ids(terms) if terms else np.zeros(self._length, dtype=np.float32)
        return [number for number, _ in select_largest(scores, count, above=0.0)]


def measure_recall(ranks: list[int | None], limits: tuple[int, ...] = (1, 5)) -> list[float]:
    """Return the share of questions whose passage is among the first 1 and the first 5.

    Args:
        ranks: The rank of each question's passage, from 1; None if it was not found.
        limits: The numbers of passages to count.
    """
    return [sum(rank is not None and rank <= limit for rank in ranks) / len(ranks) for limit in limits]


def find_rank(ranking: list[int], expected: set[int]) -> int | None:
    """Return the rank of the first expected number, from 1; None if there is none.

    Args:
        ranking: Numbers, best first.
        expected: The expected numbers.
    """
    return next((rank for rank, number in enumerate(ranking, start=1) if number in expected), None)
