"""Generated questions: the answer is in one passage, and held-out names and templates are not used in training."""

from __future__ import annotations

import random
import re

import pytest

from jumok.data.datasets.invented_facts import (
    FACT_KINDS,
    PassageQuestion,
    find_name_part,
    make_name,
    make_question,
)
from jumok.errors import ArgumentError

NAME = "([A-Z][a-z]+)"


def compile_template(template: str, person: str) -> re.Pattern[str]:
    return re.compile(re.escape(template).replace(r"\{n\}", person).replace(r"\{v\}", NAME))


def find_answers(example: PassageQuestion, held_out: bool) -> list[tuple[int, str]]:
    """Answer a question by its templates alone: all passages that state the asked fact, with the name there."""
    answers = []
    for kind in FACT_KINDS.values():
        for template in kind.held_out_questions if held_out else kind.questions:
            match = re.fullmatch(re.escape(template).replace(r"\{n\}", NAME), example.question)
            if match is None:
                continue
            for statement in (*kind.statements, *kind.held_out_statements):
                pattern = compile_template(statement, match[1])
                for index, passage in enumerate(example.passages):
                    answers += [(index, name) for name in pattern.findall(passage)]
    return sorted(set(answers))


@pytest.mark.parametrize("held_out", [False, True])
def test_exactly_one_passage_states_the_answer(held_out: bool) -> None:
    for number in range(200):
        count = 1 + number % 7
        example = make_question(f"test {number}", count, held_out_templates=held_out)
        assert len(example.passages) == count
        assert find_answers(example, held_out) == [(example.right, example.answer)]
        assert [example.answer in passage for passage in example.passages].count(True) == 1
        assert example.answer in example.candidates and len(set(example.candidates)) == len(example.candidates)


def test_distractors_name_the_same_person_or_the_same_kind() -> None:
    same_person, same_kind = 0, 0
    for number in range(200):
        example = make_question(f"test {number}", 5)
        distractors = [passage for index, passage in enumerate(example.passages) if index != example.right]
        person = next(name for name in re.findall(NAME, example.question)[1:])
        same_person += any(person in passage for passage in distractors)
        same_kind += len(example.candidates) > 1
    assert same_person > 100 and same_kind > 150


def test_questions_are_pure_functions_of_their_seed() -> None:
    random.seed(1)
    first = [make_question(f"seed {number}", 4) for number in range(5)]
    random.seed(2)
    assert [make_question(f"seed {number}", 4) for number in range(5)] == first
    assert len({example.question for example in first}) > 1


def test_names_of_the_parts_are_disjoint() -> None:
    generator, counts = random.Random(1), dict.fromkeys(("train", "validation", "report"), 0)
    for kind in ("person", "town", "dog", "ship"):
        for part in counts:
            assert all(find_name_part(make_name(generator, kind, part)) == part for _ in range(50))
    for number in range(50):
        example = make_question(f"names {number}", 3, names="report")
        texts = " ".join((example.question, *example.passages))
        words = {word for word in re.findall(NAME, texts) if word not in {"The", "In", "Where", "What", "Which", "Who"}}
        assert words and all(find_name_part(word) == "report" for word in words), words


def test_held_out_templates_are_new_sentences_of_known_words() -> None:
    known_templates = {template for kind in FACT_KINDS.values() for template in (*kind.statements, *kind.questions)}
    held_out = {
        template for kind in FACT_KINDS.values() for template in (*kind.held_out_statements, *kind.held_out_questions)
    }
    assert not known_templates & held_out
    words = {word for template in known_templates for word in re.findall(r"\w+", template)}
    assert {word for template in held_out for word in re.findall(r"\w+", template)} <= words
    for template in known_templates:
        assert template.count("{n}") == 1


def test_a_question_needs_a_passage() -> None:
    with pytest.raises(ArgumentError, match="at least one passage, not 0"):
        make_question("x", 0)
