"""Exercises: ``jumok check d3-4 ANSWER`` and ``check_answer`` say whether an answer is right, and why.

Each document of the course has a TOML file here with its questions, answers and known mistakes.

>>> check_answer("d4-1", [81.5, 81.5]).right
True
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jumok.bilingual_text import Text, parse_text
from jumok.defaults import LANGUAGES
from jumok.errors import ArgumentError

from . import answers
from .exercise import (
    TEXTS,
    Exercise,
    Mistake,
    NumberExercise,
    ProgramExercise,
    QuizExercise,
    Verdict,
    WordExercise,
    write_answer,
)
from .gpt_steps import ModelExercise

__all__ = [
    "EXERCISES",
    "Exercise",
    "ModelExercise",
    "NumberExercise",
    "ProgramExercise",
    "QuizExercise",
    "Verdict",
    "WordExercise",
    "check_answer",
    "find_exercise",
]

DOCUMENTS = ("d0", "d1", "d2", "d3", "d4", "gpt", "speech", "retrieval")


def find_exercise(name: str) -> Exercise:
    """Return an exercise by the document and the section, for example "d3-2"."""
    if name.lower() not in EXERCISES:
        raise ArgumentError(f"unknown exercise {name!r}; choose one of {', '.join(EXERCISES)}")
    return EXERCISES[name.lower()]


def check_answer(name: str, answer: Any) -> Verdict:
    """Say whether an answer is right, and why.

    Args:
        name: The exercise, for example "d3-2".
        answer: A number, numbers, a tensor, a word, a function, a class, or the path of a Python file.

    Raises:
        ArgumentError: If there is no such exercise, or the answer cannot be read.
    """
    exercise = find_exercise(name)
    if isinstance(exercise, ProgramExercise) and callable(answer):
        return exercise.check_function(answer)
    if isinstance(exercise, ModelExercise) and isinstance(answer, type):
        return exercise.check_class(answer)
    return exercise.check(write_answer(answer))


def _read_exercises() -> Iterator[Exercise]:
    for document in DOCUMENTS:
        entries = tomllib.loads(Path(__file__).with_name(f"{document}.toml").read_text("utf-8"))
        for name, entry in entries.items():
            yield _build_exercise(name, entry)


def _build_exercise(name: str, entry: Mapping[str, Any]) -> Exercise:
    kind = entry["kind"]
    if kind == "quiz":
        return _build_quiz(name, entry["questions"])
    if kind == "model":
        variants = tuple(Mistake(partial(str, mistake["answer"]), parse_text(mistake)) for mistake in entry["mistakes"])
        texts = (parse_text(entry["question"]), str, parse_text(entry["reason"]))
        return ModelExercise(name, *texts, variants, step=entry["step"])
    mistakes = tuple(Mistake(_build_compute(mistake), parse_text(mistake)) for mistake in entry["mistakes"])
    parts = (name, parse_text(entry["question"]), _build_compute(entry), parse_text(entry["reason"]), mistakes)
    if kind == "program":
        return ProgramExercise(*parts, function=entry["function"], create_calls=getattr(answers, entry["calls"]))
    if kind == "words":
        return WordExercise(*parts)
    return NumberExercise(*parts, tolerance=entry.get("tolerance", 0.005))


def _build_quiz(name: str, entries: Sequence[Mapping[str, Any]]) -> QuizExercise:
    reasons = tuple(tuple(map(Text, entry["reasons"]["en"], entry["reasons"]["ko"])) for entry in entries)
    question = Text(*(_render_quiz(entries, language) for language in LANGUAGES))
    right = [entry["right"] for entry in entries]
    return QuizExercise(name, question, lambda: right, TEXTS("quiz"), (), reasons)


def _render_quiz(entries: Sequence[Mapping[str, Any]], language: str) -> str:
    """Return the questions as a list in Markdown, which the page of the document contains."""
    lines = [TEXTS("quiz").select(language)]
    for number, entry in enumerate(entries, 1):
        lines += ["", f"{number}. {entry['question'][language]}"]
        lines += [f"    {index}. {option}" for index, option in enumerate(entry["options"][language], 1)]
    return "\n".join(lines)


def _build_compute(entry: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the named function, with its arguments, or a function that returns the stored answer."""
    answer = entry["answer"]
    if isinstance(answer, str):
        return partial(getattr(answers, answer), **entry.get("arguments", {}))
    return lambda: answer


EXERCISES: dict[str, Exercise] = {exercise.name: exercise for exercise in _read_exercises()}
