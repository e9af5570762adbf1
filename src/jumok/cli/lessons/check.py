"""The command ``jumok check``: check an answer to an exercise of the course."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from jumok.cli.command import Command, json_option, language_option, select_language

RIGHT = {"en": "Right.", "ko": "맞습니다."}
WRONG = {"en": "Not yet.", "ko": "아직 아닙니다."}
HOW = {"en": "Answer: jumok check {name} ANSWER", "ko": "답하기: jumok check {name} 답"}
HOW_FILE = {"en": "Answer: jumok check {name} FILE.py", "ko": "답하기: jumok check {name} 파일.py"}


@click.command(
    cls=Command,
    short_help="Check an answer to an exercise of the course.",
    # negative numbers are answers, not options
    context_settings={"ignore_unknown_options": True},
    epilog="""Examples:
  jumok check
  jumok check d3
  jumok check d3-4
  jumok check d3-4 "0.2 0.3 0.5 0"
  jumok check d3-8 my_attention.py
""",
)
@click.argument("name", metavar="[EXERCISE]", required=False)
@click.argument("answer", metavar="[ANSWER | FILE]", nargs=-1, type=click.UNPROCESSED)
@language_option
@json_option
def check(name: str | None, answer: tuple[str, ...], language: str | None, as_json: bool) -> None:
    """Say whether ANSWER to EXERCISE is right, and why. The exit code is 0 for a right answer and 1 for a wrong one.

    ANSWER is one or more numbers, a word, or a Python FILE with the function that the exercise asks for; the function
    runs in a process of its own. Without ANSWER, print the question; without EXERCISE, list all exercises."""
    from jumok.lab.exercises import EXERCISES, check_answer, find_exercise
    from jumok.lab.exercises.program_exercise import ProgramExercise

    selected = select_language(language)
    documents = {exercise.partition("-")[0] for exercise in EXERCISES}
    if name is None or name.lower() in documents:
        chosen = [entry for key, entry in EXERCISES.items() if name is None or key.startswith(f"{name.lower()}-")]
        if as_json:
            rows = [{"exercise": entry.name, "question": entry.question.select(selected)} for entry in chosen]
            click.echo(json.dumps(rows, ensure_ascii=False))
            return
        for entry in chosen:
            click.echo(f"{entry.name}  {entry.question.select(selected)}")
        return

    exercise = find_exercise(name)
    question = exercise.question.select(selected)
    if not answer:
        how = HOW_FILE if isinstance(exercise, ProgramExercise) else HOW
        if as_json:
            click.echo(json.dumps({"exercise": exercise.name, "question": question}, ensure_ascii=False))
        else:
            click.echo(f"{exercise.name}  {question}\n{how[selected].format(name=exercise.name)}")
        return

    text = " ".join(answer)
    if not isinstance(exercise, ProgramExercise) and Path(text).suffix == ".txt" and Path(text).is_file():
        text = Path(text).read_text(encoding="utf-8")
    verdict = check_answer(exercise.name, text)
    reason = verdict.reason.select(selected)
    if as_json:
        fields = {"exercise": exercise.name, "right": verdict.right, "reason": reason}
        click.echo(json.dumps(fields, ensure_ascii=False))
    else:
        click.echo(f"{(RIGHT if verdict.right else WRONG)[selected]} {reason}")
    if not verdict.right:
        sys.exit(1)
