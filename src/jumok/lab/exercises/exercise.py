"""Exercises: a question in two languages, and a check that says whether an answer is right, and why."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text

Numbers = Sequence[int | float]
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
UNITS = re.compile(r"(?<=\d)\s*(MB|개|배|번)$", flags=re.IGNORECASE)  # "256 MB" is the number 256
SEPARATORS = re.compile(r"[\s,;\[\]()]+")


@dataclass(frozen=True)
class Verdict:
    """What a check says of an answer."""

    right: bool
    reason: Text


@dataclass(frozen=True)
class Mistake:
    """A known wrong answer, and what is wrong with it.

    Attributes:
        compute: As ``Exercise.compute``, for this mistake.
    """

    compute: Callable[..., Any]
    reason: Text


@dataclass(frozen=True)
class Exercise(ABC):
    """Base class of exercises.

    Attributes:
        name: The document and the section, for example "d3-2".
        compute: Returns the right numbers, or the accepted spellings of the right word; of an exercise that asks for a
            program, the right function itself.
        reason: Said when the answer is right.
    """

    name: str
    question: Text
    compute: Callable[..., Any]
    reason: Text
    mistakes: tuple[Mistake, ...]

    @abstractmethod
    def check(self, answer: str) -> Verdict:
        """Say whether an answer is right; ArgumentError if it cannot be read."""


@dataclass(frozen=True)
class NumberExercise(Exercise):
    """An exercise whose answer is one number or several, in order.

    Attributes:
        tolerance: The largest difference to the right number that counts as rounding.
    """

    tolerance: float = 0.005

    def check(self, answer: str) -> Verdict:
        numbers = parse_numbers(answer)
        expected = list(self.compute())
        if self._is_close(numbers, expected):
            return Verdict(True, self.reason)
        for mistake in self.mistakes:
            if self._is_close(numbers, list(mistake.compute())):
                return Verdict(False, mistake.reason)
        return Verdict(False, self._describe_difference(numbers, expected))

    def _describe_difference(self, numbers: Numbers, expected: Numbers) -> Text:
        if len(numbers) != len(expected):
            return Text(
                f"The answer has {len(expected)} number(s); yours has {len(numbers)}.",
                f"답은 수 {len(expected)}개인데, {len(numbers)}개를 입력했습니다.",
            )
        if len(expected) == 1:
            direction = ("large", "큽니다") if numbers[0] > expected[0] else ("small", "작습니다")
            return Text(f"{numbers[0]:g} is too {direction[0]}.", f"{numbers[0]:g}: 정답보다 {direction[1]}.")
        index = next(i for i in range(len(numbers)) if not self._is_close(numbers[i : i + 1], expected[i : i + 1]))
        return Text(
            f"Number {index + 1}, {numbers[index]:g}, is not right.",
            f"앞에서 {index + 1}번째 수가 맞지 않습니다: {numbers[index]:g}",
        )

    def _is_close(self, numbers: Numbers, expected: Numbers) -> bool:
        # the small factor accepts numbers that are rounded exactly at the tolerance
        return len(numbers) == len(expected) and all(
            abs(a - b) <= self.tolerance * 1.0001 for a, b in zip(numbers, expected, strict=True)
        )


@dataclass(frozen=True)
class WordExercise(Exercise):
    """An exercise whose answer is a word; case and quotes are ignored."""

    def check(self, answer: str) -> Verdict:
        word = _simplify(answer)
        if not word:
            raise ArgumentError("the answer is empty; write one word")
        if word in map(_simplify, self.compute()):
            return Verdict(True, self.reason)
        for mistake in self.mistakes:
            if word in map(_simplify, mistake.compute()):
                return Verdict(False, mistake.reason)
        return Verdict(False, Text(f"It is not {answer.strip()!r}.", f"답이 아닙니다: {answer.strip()}"))


def parse_numbers(text: str) -> list[float]:
    """Read the numbers of an answer: one number, also with thousands separators, or several.

    >>> parse_numbers("[0.118, 0.354, 0.528]"), parse_numbers("1,050,624")
    ([0.118, 0.354, 0.528], [1050624.0])
    >>> parse_numbers("256 MB")
    [256.0]
    """
    text = UNITS.sub("", text.strip())
    if THOUSANDS.fullmatch(text):
        return [float(text.replace(",", ""))]
    numbers = []
    for part in filter(None, SEPARATORS.split(text)):
        try:
            number = float(part)
        except ValueError:
            raise ArgumentError(f"{part!r} is not a number; write numbers such as 0.5, separated by spaces") from None
        if number != number or abs(number) == float("inf"):
            raise ArgumentError(f"{part!r} is not a finite number")
        numbers.append(number)
    if not numbers:
        raise ArgumentError("the answer is empty; write numbers such as 0.5, separated by spaces")
    return numbers


def write_answer(answer: object) -> str:
    """Return a Python value as a person would type it: numbers and tensors as numbers, everything else as text."""
    if isinstance(answer, Tensor):
        return " ".join(map(repr, answer.detach().flatten().tolist()))
    if isinstance(answer, list | tuple):
        return " ".join(map(write_answer, answer))
    return str(answer)


def _simplify(word: str) -> str:
    return word.strip().strip("\"'`").strip().casefold()
