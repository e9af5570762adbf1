"""A task that needs one of many passages: each states one fact, and a question asks for one of them.

A fact is two tokens, a name and a value ("Ada red"). Every passage also mentions other names without a value, so that a
search for a name finds passages that do not answer the question. The search is BM25 (Robertson and Zaragoza 2009), by
the package bm25s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.errors import ArgumentError

NAMES, VALUES, WORDS = 256, 16, 32  # token ids: names, values, other words, then the two below
FIRST_WORD = NAMES + VALUES
SEPARATOR = FIRST_WORD + WORDS  # the first token of a passage
ASK = SEPARATOR + 1  # the first token of a question
VOCABULARY = ASK + 1
MENTIONS = 3  # names in a passage that have no value there
FACT = 2  # tokens of a fact
SHORTEST = 1 + FACT + MENTIONS
QUESTION = 2  # tokens of a question: ASK and a name

Passages = Int[Tensor, "batch passage token"]
Questions = Int[Tensor, "batch 2"]


@dataclass(frozen=True, eq=False)
class PassageBatch:
    """Texts of several passages with a question each.

    Attributes:
        questions: The token ``ASK`` and the name that is asked for.
        answers: The right values, from 0.
        sources: The passages that state the facts that are asked for, from 0.
    """

    passages: Passages
    questions: Questions
    answers: Int[Tensor, " batch"]
    sources: Int[Tensor, " batch"]


def create_passages(count: int, passages: int, length: int, generator: torch.Generator) -> PassageBatch:
    """Return random texts with a question each; no name has two facts."""
    if not 1 <= passages <= NAMES or length < SHORTEST:
        raise ArgumentError(
            f"a text has 1 to {NAMES} passages of at least {SHORTEST} tokens, not {passages} x {length}"
        )
    names = torch.rand(count, NAMES, generator=generator).argsort(-1)[:, :passages]
    values = torch.randint(VALUES, (count, passages), generator=generator)

    words = torch.randint(FIRST_WORD, SEPARATOR, (count, passages, length - 1 - FACT - MENTIONS), generator=generator)
    mentioned = torch.randint(passages, (count, passages * MENTIONS), generator=generator)
    mentions = names.gather(1, mentioned).view(count, passages, MENTIONS)
    mixed_words = torch.cat([words, mentions], -1)
    mixed_words = mixed_words.gather(-1, torch.rand(mixed_words.shape, generator=generator).argsort(-1))

    # the fact stands before the word with this number
    start = torch.randint(mixed_words.shape[-1] + 1, (count, passages, 1), generator=generator)
    position = torch.arange(length - 1).expand(count, passages, -1)
    shifted = torch.where(position < start, position, position - FACT).clamp(0, mixed_words.shape[-1] - 1)
    tokens = mixed_words.gather(-1, shifted)
    tokens = torch.where(position == start, names[..., None], tokens)
    tokens = torch.where(position == start + 1, NAMES + values[..., None], tokens)
    tokens = torch.cat([torch.full((count, passages, 1), SEPARATOR), tokens], -1)

    sources = torch.randint(passages, (count,), generator=generator)
    rows = torch.arange(count)
    names_in_question = names[rows, sources]
    questions = torch.stack([torch.full_like(names_in_question, ASK), names_in_question], -1)
    return PassageBatch(tokens, questions, values[rows, sources], sources)


class PassageSearch:
    """A search index of passages."""

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
    """Return the passages that a search finds for each question, and the share of questions whose source is among
    them.
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
