"""Commands for lessons: ``jumok experiment``, ``jumok cost`` and ``jumok check``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.bilingual_text import Text
from jumok.lab.experiments import EXPERIMENTS, run_experiment

from .command import add_picture_options, check_picture_paths, json_option, show_progress
from .command_output import CommandOutput
from .help import Command
from .page_hint import EXAMPLE, EXPERIMENT_HINTS, print_page_hint

if TYPE_CHECKING:
    from jumok.lab.exercises import Verdict
    from jumok.lab.result import Result

EXCEPTIONS = Text("\nWhere it did not come out:", "\n결과가 다르게 나온 경우:")
NOTES = Text("\nNote:", "\n참고:")
RIGHT = Text("Right. {reason}", "맞습니다. {reason}")
WRONG = Text("Not yet. {reason}", "아직 아닙니다. {reason}")
TRAINING = Text("training", "학습 중")
LOSSES = Text(
    "loss on text that is not in the training, in nats per character:", "학습에 쓰지 않은 글의 손실(글자당 nats):"
)
HOW = Text("Answer: jumok check {name} ANSWER", "답하기: jumok check {name} 답")
HOW_FILE = Text("Answer: jumok check {name} FILE.py", "답하기: jumok check {name} 파일.py")


@click.command(cls=Command)
@click.argument("name", required=False)
@click.option("--quick", is_flag=True)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1))
@add_picture_options
@json_option
def experiment(name: str | None, quick: bool, seed: int, png: Path | None, svg: Path | None, as_json: bool) -> None:
    """The command ``jumok experiment``."""
    output = CommandOutput(as_json)
    paths = check_picture_paths(png, svg)
    if name is None:
        summaries = {key: entry.summary for key, entry in EXPERIMENTS.items()}
        if as_json:
            output.print_json([{"experiment": key, "summary": text.english} for key, text in summaries.items()])
        else:
            output.print_table("ll", summaries.items())
        return

    summary = output.select(EXPERIMENTS[name].summary) if name in EXPERIMENTS else name
    with show_progress(summary, as_json) as progress:
        outcome = run_experiment(name, quick=quick, seed=seed, progress=progress)
    if not as_json:
        output.print(f"{name}: {summary}\n")
    _print_result(outcome, paths, EXCEPTIONS, output, {"experiment": name, "quick": quick})
    if not as_json and name in EXPERIMENT_HINTS:
        print_page_hint(EXAMPLE, EXPERIMENT_HINTS[name])


@click.command(cls=Command)
@click.argument("model", required=False)
@click.option("--width", type=click.IntRange(1))
@click.option("--heads", type=click.IntRange(1))
@click.option("--layers", type=click.IntRange(1))
@click.option("--hidden", type=click.IntRange(1))
@click.option("--vocabulary", type=click.IntRange(1))
@click.option("--tokens", type=click.IntRange(1))
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1))
@click.option("--measure", is_flag=True)
@add_picture_options
@json_option
def cost(
    model: str | None,
    width: int | None,
    heads: int | None,
    layers: int | None,
    hidden: int | None,
    vocabulary: int | None,
    tokens: int | None,
    batch: int,
    measure: bool,
    png: Path | None,
    svg: Path | None,
    as_json: bool,
) -> None:
    """The command ``jumok cost``."""
    from jumok.checkpoint.load import read_config
    from jumok.lab.cost.cost_report import report_cost
    from jumok.models.gpt import GPTConfig

    output = CommandOutput(as_json)
    paths = check_picture_paths(png, svg)
    sizes = {"width": width, "heads": heads, "layers": layers, "hidden": hidden, "vocabulary": vocabulary}
    if model is not None:
        if contradicting := [f"--{name}" for name, number in sizes.items() if number is not None]:
            raise click.UsageError(f"{model} has its own sizes; remove {', '.join(contradicting)}")
        config = read_config(model)
        if measure and not isinstance(config, GPTConfig):
            raise click.UsageError("--measure times layers of one width; give it with --width instead of a model")
    else:
        chosen_width, chosen_heads = width or 512, heads or 8
        if chosen_width % chosen_heads:
            raise click.UsageError(f"a width of {chosen_width} cannot be split evenly into {chosen_heads} heads")
        config = GPTConfig(
            vocabulary=vocabulary or 50257,
            length=tokens or 1024,
            width=chosen_width,
            heads=chosen_heads,
            layers=layers or 6,
            hidden=hidden or 4 * chosen_width,
        )
    with show_progress("measuring", as_json) as progress:
        report = report_cost(config, tokens, batch, measure=measure, progress=progress)
    _print_result(report, paths, NOTES, output)


@click.command(
    cls=Command,
    # negative numbers are answers, not options
    context_settings={"ignore_unknown_options": True},
)
@click.argument("name", metavar="[EXERCISE]", required=False)
@click.argument("answer", metavar="[ANSWER | FILE]", nargs=-1, type=click.UNPROCESSED)
@click.option("--train", type=click.Choice(["korean", "shakespeare"]))
@json_option
def check(name: str | None, answer: tuple[str, ...], train: str | None, as_json: bool) -> None:
    """The command ``jumok check``."""
    from jumok.lab.exercises import EXERCISES, ModelExercise, ProgramExercise, check_answer, find_exercise

    output = CommandOutput(as_json)
    if train is not None and not (name is not None and answer and isinstance(find_exercise(name), ModelExercise)):
        raise click.UsageError("--train needs a file with a GPT: jumok check gpt-3 my_gpt.py --train korean")
    documents = {exercise.partition("-")[0] for exercise in EXERCISES}
    if name is None or name.lower() in documents:
        chosen = [entry for key, entry in EXERCISES.items() if name is None or key.startswith(f"{name.lower()}-")]
        if as_json:
            output.print_json([{"exercise": entry.name, "question": entry.question.english} for entry in chosen])
            return
        for entry in chosen:
            output.print(f"{entry.name}  {output.select(entry.question).splitlines()[0]}")
        return

    exercise = find_exercise(name)
    if not answer:
        how = HOW_FILE if isinstance(exercise, ProgramExercise | ModelExercise) else HOW
        if as_json:
            output.print_json({"exercise": exercise.name, "question": exercise.question.english})
        else:
            output.print(f"{exercise.name}  {output.select(exercise.question)}")
            output.print(how.fill(name=exercise.name))
        return

    text = " ".join(answer)
    if not isinstance(exercise, ProgramExercise) and Path(text).suffix == ".txt" and Path(text).is_file():
        text = Path(text).read_text(encoding="utf-8")
    verdict = check_answer(exercise.name, text)
    fields: dict[str, Any] = {"exercise": exercise.name, "right": verdict.right, "reason": verdict.reason.english}
    if verdict.parts:
        fields["questions"] = [{"right": part.right, "reason": part.reason.english} for part in verdict.parts]
    if not as_json:
        output.print(_fill_verdict(verdict))
        for number, part in enumerate(verdict.parts, 1):
            output.print(f"{number}. {_fill_verdict(part).select(output.language)}")
    if train is not None and verdict.right:
        assert isinstance(exercise, ModelExercise)
        fields |= _train_file(Path(text), exercise.step, train, output)
    if as_json:
        output.print_json(fields)
    if not verdict.right:
        sys.exit(1)


def _fill_verdict(verdict: Verdict) -> Text:
    return (RIGHT if verdict.right else WRONG).fill(reason=verdict.reason)


def _train_file(path: Path, step: int, text: str, output: CommandOutput) -> dict[str, Any]:
    from jumok.lab.exercises.gpt_training import train_file

    with show_progress(output.select(TRAINING), output.as_json) as progress:
        trained = train_file(path, step, text, output.language, progress)
    files = [str(file) for file in (trained.picture, trained.folder) if file is not None]
    if not output.as_json:
        output.print(LOSSES)
        output.print_table("lr", [(name, f"{loss:.3f}") for name, loss in trained.losses.items()], indent=2)
        output.print_written(files)
    return {"losses": trained.losses, "files": files}


def _print_result(
    result: Result, paths: Sequence[Path], heading: Text, output: CommandOutput, fields: Mapping[str, Any] | None = None
) -> None:
    """Draw the pictures, and print the tables, the sentences and the exceptions of a result.

    Args:
        heading: The line above the exceptions.
        fields: What JSON contains besides the result.
    """
    pictures = [str(result.save_picture(path, output.language)) for path in paths]
    if output.as_json:
        output.print_json({**(fields or {}), **result.to_json("en"), "pictures": pictures})
        return
    for table in result.tables:
        if table.title is not None:
            output.print(table.title)
        headings, *rows = table.select_language(output.language)
        output.print_table("l" + "r" * (len(headings) - 1), rows, headings)
        output.print()
    for text in result.sentences:
        output.print(text)
    if result.exceptions:
        output.print(heading)
        for text in result.exceptions:
            output.print(f"- {output.select(text)}")
    output.print_written(pictures)
