"""Read the written-down questions about the catalogue's books, and find the passages that answer them.

Each line of questions.jsonl is one question: "split" is "dev" (for choosing methods and thresholds) or "test" (for
reported figures); "answerable" says whether a book contains the answer. An answerable question names the file, a quote
from the passage that answers it, and the accepted answers. An unanswerable one is "near" (about people of the books) or
"far" (about the world outside).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jumok.retrieval import Passage
from jumok.retrieval.search.bm25 import split_terms

QUESTIONS_FILE = Path(__file__).with_name("questions.jsonl")

# words that say how something is asked, not what is asked
_WORD_LIST = (
    "a about after all also an and any are as at be because been before besides by call called can did do doe during "
    "each for from get had has have he her herself him his how in into is it last long make many me more much my name "
    "not of off on once one only or other out over really s she should since so some somebody than that the their them "
    "they this to too two under until up us was were what when where which while who whom whose why will wish with "
    "would you your"
)
QUESTION_WORDS = frozenset(_WORD_LIST.split())


@dataclass(frozen=True)
class Question:
    """A written-down question.

    Args:
        id: Its unique name.
        split: "dev" or "test".
        question: The question.
        answerable: Whether a book contains the answer.
        file: The book that contains it.
        quote: A piece of the passage that answers it, with any white space.
        answers: The accepted answers.
        kind: Of an unanswerable question: "near" or "far".
    """

    id: str
    split: str
    question: str
    answerable: bool
    file: str = ""
    quote: str = ""
    answers: tuple[str, ...] = ()
    kind: str = ""


def read_questions(split: str | None = None, *, answerable: bool | None = None) -> list[Question]:
    """Return the questions in the order of the file.

    Args:
        split: "dev" or "test"; None: both.
        answerable: Only answerable or only unanswerable ones; None: both.
    """
    questions = []
    for line in QUESTIONS_FILE.read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        question = Question(**{**fields, "answers": tuple(fields.get("answers", ()))})
        if split in (None, question.split) and answerable in (None, question.answerable):
            questions.append(question)
    return questions


def find_passages(question: Question, passages: Iterable[Passage]) -> set[int]:
    """Return the numbers of the passages that contain the quote of a question, or a part of it where a cut divides it.

    Args:
        question: An answerable question.
        passages: All passages, in order.
    """
    quote = join_words(question.quote)
    numbers, before = set(), ""
    for number, passage in enumerate(passages):
        if passage.path != question.file:
            before = ""
            continue
        text = join_words(passage.text)
        joined = f"{before} {text}"
        if quote in text:
            return {number}
        if quote in joined:
            # the quote crosses a cut: the passage with the answer counts, or both
            parts = {number - 1: before, number: text}
            numbers = {n for n, part in parts.items() if any(a.lower() in part.lower() for a in question.answers)}
            return numbers or set(parts)
        before = text
    return numbers


def join_words(text: str) -> str:
    """Return a text with single spaces between its words.

    Args:
        text: The text.
    """
    return " ".join(text.split())


def measure_overlap(question: str, passage: str) -> float:
    """Return the share of the content words of a question that the passage contains too.

    Args:
        question: The question.
        passage: The passage.
    """
    words = set(split_terms(question)) - QUESTION_WORDS
    return len(words & set(split_terms(passage))) / max(1, len(words))
