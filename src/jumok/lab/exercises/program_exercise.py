"""Exercises whose answer is a function in a Python file: it runs in a process of its own and is compared with ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text

from .exercise import Exercise, Verdict

Function = Callable[..., Any]
SECONDS = 60.0  # a program that needs longer has an endless loop
TOLERANCE = 1e-4
CHILD = Path(__file__).with_name("program_child.py")  # run as a script, which imports torch and nothing of this package


@dataclass(frozen=True)
class ProgramExercise(Exercise):
    """An exercise whose answer is a Python file with one function.

    Attributes:
        function: The name of the function in the file.
        create_calls: Returns the arguments of each call to try: tensors and plain values.
    """

    function: str
    create_calls: Callable[[], Sequence[tuple[Any, ...]]]

    def check(self, answer: str) -> Verdict:
        calls = list(self.create_calls())
        encoded = [[_encode(argument) for argument in arguments] for arguments in calls]
        request = {"kind": "call", "function": self.function, "calls": encoded}
        outcome = run_file(answer, request, f"the answer to {self.name} is a Python file that defines {self.function}()")
        if isinstance(outcome, Verdict):
            return outcome
        return self._compare([_decode(entry) for entry in outcome["results"]], calls)

    def check_function(self, function: Function) -> Verdict:
        """Compare a function of this process with the right one, for notebooks."""
        calls = list(self.create_calls())
        results = [_flatten(function(*arguments)) for arguments in calls]
        return self._compare(results, calls)

    def _compare(self, results: Sequence[list[Tensor]], calls: Sequence[tuple[Any, ...]]) -> Verdict:
        expected = [_flatten(self.compute(*arguments)) for arguments in calls]
        difference = _find_difference(results, expected)
        if difference is None:
            return Verdict(True, self.reason)
        for mistake in self.mistakes:
            wrong = [_flatten(mistake.compute(*arguments)) for arguments in calls]
            if _find_difference(results, wrong) is None:
                return Verdict(False, mistake.reason)
        return Verdict(False, difference)


def run_file(answer: str, request: Mapping[str, Any], expected: str) -> dict[str, Any] | Verdict:
    """Run a file in another process, so that what it prints or breaks does not reach this one; a failure is a verdict.

    Args:
        request: What program_child.py is to do with the file.
        expected: What the answer should be, for the error if it is not a file.
    """
    path = Path(answer)
    if not path.is_file():
        raise ArgumentError(f"{answer!r} is not a file; {expected}")
    outcome = _run_child({**request, "file": str(path.resolve())})
    if "error" not in outcome:
        return outcome
    message = outcome["error"]
    return Verdict(False, Text(f"{path.name} failed: {message}", f"{path.name} 실행이 실패했습니다: {message}"))


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
        return {"error": f"it did not end within {SECONDS:.0f} seconds"}
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


def _decode(entry: Sequence[list[Any]]) -> list[Tensor]:
    return [torch.tensor(part, dtype=torch.float64) for part in entry]


def _flatten(outcome: object) -> list[Tensor]:
    parts = outcome if isinstance(outcome, tuple | list) else (outcome,)
    return [torch.as_tensor(part, dtype=torch.float64) for part in parts]


def _find_difference(results: Sequence[list[Tensor]], expected: Sequence[list[Tensor]]) -> Text | None:
    """Describe the first difference, shapes before numbers; None if there is none."""
    for tensors, right in zip(results, expected, strict=True):
        if len(tensors) != len(right):
            return Text(
                f"The function returns {len(tensors)} result(s) instead of {len(right)}.",
                f"함수가 결과를 {len(right)}개가 아니라 {len(tensors)}개 돌려줍니다.",
            )
    pairs = [
        pair for tensors, right in zip(results, expected, strict=True) for pair in zip(tensors, right, strict=True)
    ]
    for tensor, right_tensor in pairs:
        if tensor.shape != right_tensor.shape:
            return Text(
                f"The function returns the shape {list(tensor.shape)} instead of {list(right_tensor.shape)}.",
                f"함수가 돌려준 모양이 {list(right_tensor.shape)}이 아니라 {list(tensor.shape)}입니다.",
            )
    for tensor, right_tensor in pairs:
        if tensor.isnan().any():
            return Text("The function returns NaN.", "함수가 NaN을 돌려줍니다.")
        if not torch.allclose(tensor, right_tensor, rtol=0, atol=TOLERANCE):
            index = int((tensor - right_tensor).abs().argmax())
            number, right_number = (f"{table.flatten()[index]:.4f}" for table in (tensor, right_tensor))
            return Text(
                f"The function returns {number} where {right_number} is right.",
                f"함수가 돌려준 값 {number}, 맞는 값 {right_number}.",
            )
    return None
