"""Exercises: ``jumok check d3-4 ANSWER`` and ``check_answer`` say whether an answer is right, and why.

>>> check_answer("d4-1", [81.5, 81.5]).right
True
"""

from __future__ import annotations

from typing import Any

from jumok.errors import ArgumentError

from .article_exercises import ARTICLE_EXERCISES
from .exercise import Exercise, NumberExercise, Verdict, WordExercise, write_answer
from .gpt2_exercises import GPT2_EXERCISES
from .lecture_exercises import LECTURE_EXERCISES
from .note_exercises import NOTE_EXERCISES
from .program_exercise import ProgramExercise
from .retrieval_exercises import RETRIEVAL_EXERCISES
from .speech_exercises import SPEECH_EXERCISES
from .vision_exercises import VISION_EXERCISES

__all__ = [
    "EXERCISES",
    "Exercise",
    "NumberExercise",
    "ProgramExercise",
    "Verdict",
    "WordExercise",
    "check_answer",
    "find_exercise",
]

EXERCISES: dict[str, Exercise] = {
    exercise.name: exercise
    for exercises in (
        LECTURE_EXERCISES,
        VISION_EXERCISES,
        ARTICLE_EXERCISES,
        GPT2_EXERCISES,
        NOTE_EXERCISES,
        SPEECH_EXERCISES,
        RETRIEVAL_EXERCISES,
    )
    for exercise in exercises
}


def find_exercise(name: str) -> Exercise:
    """Return an exercise by name.

    Args:
        name: The document and the section, for example "d3-2".

    Raises:
        ArgumentError: If there is no such exercise.
    """
    if name.lower() not in EXERCISES:
        raise ArgumentError(f"unknown exercise {name!r}; choose one of {', '.join(EXERCISES)}")
    return EXERCISES[name.lower()]


def check_answer(name: str, answer: Any) -> Verdict:
    """Say whether an answer is right, and why.

    Args:
        name: The exercise, for example "d3-2".
        answer: A number, numbers, a tensor, a word, a function, or the path of a Python file.

    Raises:
        ArgumentError: If there is no such exercise, or the answer cannot be read.
    """
    exercise = find_exercise(name)
    if isinstance(exercise, ProgramExercise) and callable(answer):
        return exercise.check_function(answer)
    return exercise.check(write_answer(answer))
