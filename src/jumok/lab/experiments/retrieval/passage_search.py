"""Search among the passages of a text: BM25 (Robertson and Zaragoza 2009) on their tokens, by the package bm25s."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.errors import ArgumentError

from .passage_task import PassageBatch, Passages


class PassageSearch:
    """A search index of passages.

    Raises:
        ArgumentError: If bm25s is not installed.
    """

    def __init__(self, passages: Int[Tensor, "passage token"]) -> None:
        try:
            import bm25s
        except ImportError:
            raise ArgumentError('search needs bm25s; install it with: pip install "jumok[retrieval]"') from None
        self._index: Any = bm25s.BM25()
        self._index.index(_write_terms(passages), show_progress=False)

    @property
    def bytes(self) -> int:
        """The size of the index in memory."""
        return sum(array.nbytes for array in self._index.scores.values() if hasattr(array, "nbytes"))

    def find(self, question: Int[Tensor, " token"], count: int) -> list[int]:
        """Return the best passages, in the order of the text."""
        numbers, _ = self._index.retrieve(_write_terms(question[None]), k=count, show_progress=False)
        return sorted(int(number) for number in numbers[0])


def select_found(batch: PassageBatch, count: int) -> tuple[Passages, float]:
    """Return the passages that a search finds for each question, and its recall.

    Returns:
        The passages, and the share of questions whose source is among them.
    """
    hits = [
        PassageSearch(passages).find(question, count)
        for passages, question in zip(batch.passages, batch.questions, strict=True)
    ]
    numbers = torch.tensor(hits)
    recall = (numbers == batch.sources[:, None]).any(1).double().mean()
    return batch.passages[torch.arange(len(hits))[:, None], numbers], float(recall)


def _write_terms(rows: Int[Tensor, "row token"]) -> list[list[str]]:
    return [[str(token) for token in row] for row in rows.tolist()]
