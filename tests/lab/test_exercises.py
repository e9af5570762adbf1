"""Exercises: right answers, known mistakes, answers that cannot be read, and programs that fail."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import jumok.lab
from jumok.cli import cli
from jumok.errors import ArgumentError
from jumok.lab.exercises import (
    EXERCISES,
    NumberExercise,
    ProgramExercise,
    QuizExercise,
    WordExercise,
    check_answer,
    find_exercise,
)
from jumok.lab.exercises.exercise import parse_numbers

RIGHT_PROGRAM = """
import torch

print("loading")

def causal_attention(query, key, value):
    scores = query @ key.mT / query.shape[-1] ** 0.5
    weights = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf")).softmax(-1)
    return weights @ value, weights
"""


def check_program(text: str, folder: Path) -> tuple[bool, str]:
    file = folder / "answer.py"
    file.write_text(text)
    verdict = check_answer("d3-8", str(file))
    return verdict.right, verdict.reason.english


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["check", *arguments])


@pytest.mark.parametrize("name", [name for name in EXERCISES if not re.match("gpt-|.*-quiz", name)])
def test_known_mistakes_are_wrong_and_have_their_own_reason(name: str) -> None:
    exercise = EXERCISES[name]
    reasons = [mistake.reason for mistake in exercise.mistakes]
    if isinstance(exercise, NumberExercise):
        verdicts = [exercise.check(" ".join(map(repr, mistake.compute()))) for mistake in exercise.mistakes]
    elif isinstance(exercise, WordExercise):
        verdicts = [exercise.check(word) for mistake in exercise.mistakes for word in mistake.compute()]
        reasons = [mistake.reason for mistake in exercise.mistakes for _ in mistake.compute()]
    else:
        assert isinstance(exercise, ProgramExercise)
        verdicts = [exercise.check_function(mistake.compute) for mistake in exercise.mistakes]
        assert exercise.check_function(exercise.compute).right
    assert reasons and [verdict.reason for verdict in verdicts] == reasons
    assert not any(verdict.right for verdict in verdicts)


def test_numbers_may_be_rounded_and_written_in_several_ways() -> None:
    for answer in ("0.245 0.09 0.67 0", "[0.245, 0.090, 0.665, 0.0]", "0.245;0.090;0.665;0"):
        assert check_answer("d3-4", answer).right
    assert check_answer("d3-4", [*torch.tensor([1.0, 0.0, 2.0]).softmax(-1).tolist(), 0]).right
    assert not check_answer("d3-4", "0.26 0.09 0.66 0").right
    assert "Number 3" in check_answer("d3-4", "0.245 0.09 0.6 0").reason.english
    assert "4 number(s)" in check_answer("d3-4", "0.245").reason.english
    assert check_answer("d3-5", "200").reason.english == "200 is too small."
    assert parse_numbers("-1e-3 +2") == [-0.001, 2.0]


def test_answers_that_cannot_be_read_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="unknown exercise 'd9-1'; choose one of"):
        find_exercise("d9-1")
    with pytest.raises(ArgumentError, match="'x' is not a number"):
        check_answer("d3-4", "0.1 x")
    with pytest.raises(ArgumentError, match="not a finite number"):
        check_answer("d3-5", "nan")
    with pytest.raises(ArgumentError, match="is empty"):
        check_answer("d3-5", " ")
    with pytest.raises(ArgumentError, match="is not a file; the answer is a Python file"):
        check_answer("d3-8", str(tmp_path / "missing.py"))


@pytest.mark.slow
def test_programs_run_in_their_own_process(tmp_path: Path) -> None:
    assert check_program(RIGHT_PROGRAM, tmp_path)[0]
    failing = RIGHT_PROGRAM.replace("softmax", "softmix")
    assert "line 8: AttributeError" in check_program(failing, tmp_path)[1]
    assert "line 2: SyntaxError" in check_program("\ndef (", tmp_path)[1]
    assert "it does not define causal_attention()" in check_program("x = 1", tmp_path)[1]
    assert "exit code 3" in check_program("import os\nos._exit(3)", tmp_path)[1]


@pytest.mark.parametrize("name", [name for name in EXERCISES if name.endswith("-quiz")])
def test_quizzes_have_five_questions_and_a_reason_for_each_option(name: str) -> None:
    quiz = EXERCISES[name]
    assert isinstance(quiz, QuizExercise)
    right = quiz.compute()
    assert len(right) == len(quiz.reasons) == 5 and len(set(right)) > 1
    assert check_answer(name, right).right and not check_answer(name, right[:4]).right
    for language in ("en", "ko"):
        _, *questions = quiz.question.select(language).split("\n\n")
        options = [len(question.splitlines()) - 1 for question in questions]
        assert options == [len(reasons) for reasons in quiz.reasons]
    for position, reasons in enumerate(quiz.reasons):
        assert len(reasons) in (3, 4) and len(set(reasons)) == len(reasons)
        for option, reason in enumerate(reasons, 1):
            verdict = check_answer(name, [*right[:position], option, *right[position + 1 :]])
            assert verdict.right == verdict.parts[position].right == (option == right[position])
            assert verdict.parts[position].reason == reason
            assert [part.right for part in verdict.parts].count(False) == (option != right[position])


def test_quizzes_are_graded_by_question() -> None:
    output = run("d0-quiz", "2", "1", "2", "2", "7", "--language", "en")
    lines = output.output.splitlines()
    assert output.exit_code == 1 and lines[0] == "Not yet. 3 of 5 are right."
    assert [line.partition(". ")[2].startswith("Right. ") for line in lines[1:]] == [True, True, False, True, False]
    assert "option 7; the options are 1 to 4" in lines[5]
    report = json.loads(run("d0-quiz", "2", "1", "3", "2", "4", "--json", "--language", "ko").output)
    assert report["right"] and len(report["questions"]) == 5
    assert report["questions"][0]["reason"].startswith("Word 100 waits")


def test_functions_with_other_results_are_described() -> None:
    assert check_answer("d3-8", lambda q, k, v: (v * torch.nan, q @ k.mT)).reason.english == "The function returns NaN."
    assert "1 result(s) instead of 2" in check_answer("d3-8", lambda q, k, v: v).reason.english
    verdict = check_answer("d3-8", lambda q, k, v: (v.new_zeros(v.shape), torch.eye(q.shape[1])))
    assert "the shape [4, 4] instead of [1, 4, 4]" in verdict.reason.english


def test_endless_programs_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.lab.exercises.exercise.SECONDS", 0.5)
    assert "did not end within" in check_program("while True: pass", tmp_path)[1]


def test_command_prints_lists_questions_and_verdicts(tmp_path: Path) -> None:
    assert [line.split()[0] for line in run().output.splitlines()] == list(EXERCISES)
    names = [row["exercise"] for row in json.loads(run("d3", "--json").output)]
    assert names == [name for name in EXERCISES if name.startswith("d3-")]
    assert "Answer: jumok check d3-4 ANSWER" in run("d3-4", "--language", "en").output
    assert "답하기: jumok check d3-8 파일.py" in run("D3-8", "--language", "ko").output

    right, wrong = run("d4-1", "81.5", "81.5", "--language", "en"), run("d4-1", "-81.5", "81.5", "--language", "ko")
    assert (right.exit_code, wrong.exit_code) == (0, 1)
    assert right.output.startswith("Right. ") and wrong.output.startswith("아직 아닙니다. ")
    file = tmp_path / "answer.txt"
    file.write_text("81.5 81.5")
    assert json.loads(run("d4-1", str(file), "--json").output)["right"] is True


def test_texts_have_both_languages_and_korean_ones_no_unknown_placeholder() -> None:
    def check(entry: Any, name: str) -> int:
        if not isinstance(entry, dict):
            return 0
        if not {"en", "ko"} & set(entry):
            return sum(check(part, f"{name}.{key}") for key, part in entry.items())
        placeholders = [
            sorted(set(re.findall(r"{([a-z_.]*)", " ".join(text) if isinstance(text, list) else text)))
            for text in (entry["en"], entry["ko"])
        ]
        assert set(placeholders[1]) <= set(placeholders[0]), name  # English has plural forms besides
        return 1

    files = sorted(Path(jumok.lab.__file__).parent.rglob("*.toml"))
    assert sum(check(tomllib.loads(file.read_text("utf-8")), file.name) for file in files) > 200
