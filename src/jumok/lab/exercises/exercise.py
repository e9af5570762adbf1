"""Exercises: a question in two languages, and a check that says whether an answer is right, and why."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jumok.bilingual_text import Text, Texts
from jumok.errors import ArgumentError

TEXTS = Texts(__file__)
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
UNITS = re.compile(r"(?<=\d)\s*(MB|개|배|번)$", flags=re.IGNORECASE)  # "256 MB" is the number 256
SEPARATORS = re.compile(r"[\s,;\[\]()]+")
SECONDS = 180.0  # an endless loop, as importing torch takes a minute on a very busy computer
PROGRAM_TOLERANCE = 1e-4
CHILD = Path(__file__).with_name("program_child.py")  # run as a script, which imports torch and nothing of this package

Results = list[list[Tensor]]  # for each call, the tensors that a function returned


@dataclass(frozen=True)
class Verdict:
    """What a check says of an answer."""

    right: bool
    reason: Text
    parts: tuple[Verdict, ...] = ()  # of a quiz: one for each question


@dataclass(frozen=True)
class Mistake:
    """A known wrong answer, computed as ``Exercise.compute`` does, and what is wrong with it."""

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

    def judge(
        self, answer: Any, evaluate: Callable[[Callable[..., Any]], Any], compare: Callable[[Any, Any], Text | None]
    ) -> Verdict:
        """Compare an answer with the right one and with the known mistakes.

        Args:
            evaluate: Returns the answer of ``compute`` of the exercise or of a mistake.
            compare: Describes the difference of an answer from another; None if there is none.
        """
        difference = compare(answer, evaluate(self.compute))
        if difference is None:
            return Verdict(True, self.reason)
        for mistake in self.mistakes:
            if compare(answer, evaluate(mistake.compute)) is None:
                return Verdict(False, mistake.reason)
        return Verdict(False, difference)


@dataclass(frozen=True)
class NumberExercise(Exercise):
    """An exercise whose answer is one number or several, in order.

    Attributes:
        tolerance: The largest difference to the right number that counts as rounding.
    """

    tolerance: float = 0.005

    def check(self, answer: str) -> Verdict:
        return self.judge(parse_numbers(answer), lambda compute: list(compute()), self._compare)

    def _compare(self, numbers: Sequence[float], expected: Sequence[int | float]) -> Text | None:
        if len(numbers) != len(expected):
            return TEXTS("count", expected=len(expected), count=len(numbers))
        for position, (number, right) in enumerate(zip(numbers, expected, strict=True), 1):
            # the small factor accepts numbers that are rounded exactly at the tolerance
            if abs(number - right) > self.tolerance * 1.0001:
                if len(expected) == 1:
                    return TEXTS("too_large" if number > right else "too_small", number=number)
                return TEXTS("position", position=position, number=number)
        return None


@dataclass(frozen=True)
class WordExercise(Exercise):
    """An exercise whose answer is a word; case and quotes are ignored."""

    def check(self, answer: str) -> Verdict:
        word = _simplify(answer)
        if not word:
            raise ArgumentError("the answer is empty; write one word")
        difference = TEXTS("word", word=answer.strip())
        return self.judge(
            word,
            lambda compute: set(map(_simplify, compute())),
            lambda word, spellings: None if word in spellings else difference,
        )


@dataclass(frozen=True)
class QuizExercise(Exercise):
    """Questions with numbered options; the answer is the number of one option for each question.

    Attributes:
        reasons: For each question, what to say of each of its options.
    """

    reasons: tuple[tuple[Text, ...], ...]

    def check(self, answer: str) -> Verdict:
        numbers, right = parse_numbers(answer), self.compute()
        if len(numbers) != len(right):
            return Verdict(False, TEXTS("count", expected=len(right), count=len(numbers)))
        parts = tuple(map(self._check_part, numbers, right, self.reasons))
        return Verdict(numbers == right, TEXTS("quiz_result", count=sum(part.right for part in parts)), parts)

    @staticmethod
    def _check_part(number: float, right: int, reasons: Sequence[Text]) -> Verdict:
        if number not in range(1, len(reasons) + 1):
            return Verdict(False, TEXTS("option", number=number, count=len(reasons)))
        return Verdict(number == right, reasons[int(number) - 1])


@dataclass(frozen=True)
class ProgramExercise(Exercise):
    """An exercise whose answer is a Python file with one function, which runs in a process of its own.

    Attributes:
        function: The name of the function in the file.
        create_calls: Returns the arguments of each call to try: tensors and plain values.
    """

    function: str
    create_calls: Callable[[], Sequence[tuple[Any, ...]]]

    def check(self, answer: str) -> Verdict:
        calls = [[_encode(argument) for argument in arguments] for arguments in self.create_calls()]
        outcome = run_file(answer, {"kind": "call", "function": self.function, "calls": calls}, f"{self.function}()")
        if isinstance(outcome, Verdict):
            return outcome
        results = [[torch.tensor(part, dtype=torch.float64) for part in entry] for entry in outcome["results"]]
        return self.judge(results, self._call, _compare_results)

    def check_function(self, function: Callable[..., Any]) -> Verdict:
        """Compare a function of this process with the right one, for notebooks."""
        return self.judge(self._call(function), self._call, _compare_results)

    def _call(self, function: Callable[..., Any]) -> Results:
        results = []
        for arguments in self.create_calls():
            outcome = function(*arguments)
            parts = outcome if isinstance(outcome, tuple | list) else (outcome,)
            results.append([torch.as_tensor(part, dtype=torch.float64) for part in parts])
        return results


def run_file(answer: str, request: Mapping[str, Any], definition: str) -> dict[str, Any] | Verdict:
    """Run a file in another process, so that what it prints or breaks does not reach this one; a failure is a verdict.

    Args:
        request: What program_child.py is to do with the file.
        definition: What the file has to define.
    """
    path = Path(answer)
    if not path.is_file():
        raise ArgumentError(f"{answer!r} is not a file; the answer is a Python file that defines {definition}")
    outcome = _run_child({**request, "file": str(path.resolve())})
    if "error" in outcome:
        return Verdict(False, TEXTS("failed", file=path.name, error=describe_failure(outcome)))
    return outcome


def describe_failure(outcome: Mapping[str, Any]) -> Text:
    """Return the text of a failure that program_child.py reports, which may be Python's own message."""
    if "missing" in outcome:
        return TEXTS("missing", definition=outcome["missing"])
    if "type" in outcome:
        return TEXTS("wrong_type", call=outcome["call"], type=outcome["type"])
    if "seconds" in outcome:
        return TEXTS("timeout", seconds=outcome["seconds"])
    location = TEXTS("line", line=outcome["line"]) if "line" in outcome else ""
    return Text("{location}{error}", "{location}{error}").fill(location=location, error=outcome["error"])


def _run_child(request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        completed = subprocess.run(
            [sys.executable, str(CHILD)],
            input=json.dumps(request),
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": "timeout", "seconds": round(SECONDS)}
    try:
        outcome: dict[str, Any] = json.loads(completed.stdout)
    except json.JSONDecodeError:
        lines = completed.stderr.strip().splitlines() or [f"it ended with exit code {completed.returncode}"]
        return {"error": lines[-1]}
    return outcome


def _encode(argument: object) -> object:
    if isinstance(argument, Tensor):
        return {"tensor": argument.tolist(), "dtype": str(argument.dtype).removeprefix("torch.")}
    return argument


def _compare_results(results: Results, expected: Results) -> Text | None:
    """Describe the first difference, shapes before numbers; None if there is none."""
    for tensors, right in zip(results, expected, strict=True):
        if len(tensors) != len(right):
            return TEXTS("results", count=len(tensors), expected=len(right))
    pairs = list(zip(chain(*results), chain(*expected), strict=True))
    for tensor, right_tensor in pairs:
        if tensor.shape != right_tensor.shape:
            return TEXTS("shape", shape=list(tensor.shape), expected=list(right_tensor.shape))
    for tensor, right_tensor in pairs:
        if tensor.isnan().any():
            return TEXTS("nan")
        if not torch.allclose(tensor, right_tensor, rtol=0, atol=PROGRAM_TOLERANCE):
            index = int((tensor - right_tensor).abs().argmax())
            return TEXTS("number", number=tensor.flatten()[index], expected=right_tensor.flatten()[index])
    return None


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
