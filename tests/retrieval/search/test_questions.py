"""The written-down questions: complete, unique, answerable by one place in one book, and not in its words."""

from __future__ import annotations

import re
import statistics
import sys
from pathlib import Path

import pytest

from catalogue_cache import download_or_skip

sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "retrieval"))

from question_file import Question, join_words, measure_overlap, read_questions  # type: ignore[import-not-found]

PASSAGE_LENGTH = 600  # characters, about 100 words


@pytest.fixture(scope="module")
def books() -> dict[str, str]:
    folder = download_or_skip("gutenberg")
    return {file.name: join_words(file.read_text(encoding="utf-8", errors="replace")) for file in folder.glob("*.txt")}


def test_counts() -> None:
    counts = {(q.split, q.answerable, q.kind): 0 for q in read_questions()}
    for question in read_questions():
        counts[question.split, question.answerable, question.kind] += 1
    assert counts["test", True, ""] == 50 and counts["test", False, "near"] == counts["test", False, "far"] == 25
    assert counts["dev", True, ""] >= 30 and counts["dev", False, "near"] == counts["dev", False, "far"] >= 15
    assert len(counts) == 6


def test_ids_and_questions_are_unique() -> None:
    questions = read_questions()
    assert len({question.id for question in questions}) == len(questions)
    assert len({question.question.lower() for question in questions}) == len(questions)
    assert all(question.question.endswith("?") and question.id.startswith(question.split) for question in questions)


def test_no_question_contains_its_answer() -> None:
    for question in read_questions(answerable=True):
        assert question.answers
        for answer in question.answers:
            assert not re.search(rf"\b{re.escape(answer)}\b", question.question, re.IGNORECASE), question.id


def test_unanswerable_questions_name_no_passage() -> None:
    for question in read_questions(answerable=False):
        assert not question.file and not question.quote and not question.answers


def test_each_quote_is_in_one_place_of_its_book(books: dict[str, str]) -> None:
    for question in read_questions(answerable=True):
        assert books[question.file].count(join_words(question.quote)) == 1, question.id


def test_each_quote_contains_or_leads_to_an_answer(books: dict[str, str]) -> None:
    for question in read_questions(answerable=True):
        passage = get_passage(books, question).lower()
        assert any(answer.lower() in passage for answer in question.answers), question.id


def test_the_splits_share_no_passage(books: dict[str, str]) -> None:
    positions = [(q, books[q.file].index(join_words(q.quote))) for q in read_questions(answerable=True)]
    for first, first_position in positions:
        for second, second_position in positions:
            if first.split != second.split and first.file == second.file:
                assert abs(first_position - second_position) > PASSAGE_LENGTH, (first.id, second.id)


def test_questions_use_few_words_of_their_passage(books: dict[str, str]) -> None:
    overlaps = {q.id: measure_overlap(q.question, get_passage(books, q)) for q in read_questions(answerable=True)}
    assert statistics.mean(overlaps.values()) < 0.45  # names of people included
    assert max(overlaps.values()) <= 0.75, max(overlaps, key=overlaps.__getitem__)


def get_passage(books: dict[str, str], question: Question) -> str:
    text, quote = books[question.file], join_words(question.quote)
    start, margin = text.index(quote), (PASSAGE_LENGTH - len(quote)) // 2
    return text[max(0, start - margin) : start + len(quote) + margin]
