"""Commands for lessons: ``jumok experiment``, ``jumok cost`` and ``jumok check``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.lab.experiments import EXPERIMENTS, run_experiment

from .command import Command, json_option, language_option, select_language, show_progress
from .page_hint import EXAMPLE, EXPERIMENT_HINTS, print_page_hint
from .picture_options import add_picture_options, check_picture_paths

if TYPE_CHECKING:
    from jumok.lab.result import Result

EXCEPTIONS = {"en": "Where it did not come out:", "ko": "결과가 다르게 나온 경우:"}
NOTES = {"en": "Note:", "ko": "참고:"}
RIGHT = {"en": "Right.", "ko": "맞습니다."}
WRONG = {"en": "Not yet.", "ko": "아직 아닙니다."}
HOW = {"en": "Answer: jumok check {name} ANSWER", "ko": "답하기: jumok check {name} 답"}
HOW_FILE = {"en": "Answer: jumok check {name} FILE.py", "ko": "답하기: jumok check {name} 파일.py"}


@click.command(
    cls=Command,
    short_help="Show a lesson about Transformers with numbers.",
    epilog="""Examples:
  jumok experiment
  jumok experiment scale --quick
  jumok experiment scale --seed 1 --png scale.png --language ko
  jumok experiment scale --json
""",
)
@click.argument("name", required=False)
@click.option("--quick", is_flag=True, help="Use smaller settings: about a minute at most, instead of up to 20.")
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1), help="Seed of all random numbers."
)
@add_picture_options("the numbers")
@language_option
@json_option
def experiment(
    name: str | None,
    quick: bool,
    seed: int,
    png: Path | None,
    svg: Path | None,
    language: str | None,
    as_json: bool,
) -> None:
    """Run the experiment NAME: print its numbers, what they show, and where the lesson did not come out.

    Without NAME, list the experiments. The same seed gives the same numbers, except for measured times and memory."""
    selected = select_language(language)
    paths = check_picture_paths(png, svg)
    if name is None:
        summaries = {key: entry.summary.select(selected) for key, entry in EXPERIMENTS.items()}
        if as_json:
            rows = [{"experiment": key, "summary": summary} for key, summary in summaries.items()]
            click.echo(json.dumps(rows, ensure_ascii=False))
            return
        for key, summary in summaries.items():
            click.echo(f"{key:<10} {summary}")
        return

    summary = EXPERIMENTS[name].summary.select(selected) if name in EXPERIMENTS else name
    with show_progress(summary, as_json) as progress:
        outcome = run_experiment(name, quick=quick, seed=seed, progress=progress)
    if not as_json:
        click.echo(f"{name}: {summary}\n")
    print_result(outcome, paths, selected, EXCEPTIONS, {"experiment": name, "quick": quick} if as_json else None)
    if not as_json and name in EXPERIMENT_HINTS:
        print_page_hint(EXAMPLE, EXPERIMENT_HINTS[name], selected)


@click.command(
    cls=Command,
    short_help="Compute parameters, operations and memory of a Transformer.",
    epilog="""Examples:
  jumok cost tiny
  jumok cost translator --tokens 32
  jumok cost minilm --tokens 256
  jumok cost --width 512 --heads 8 --layers 6 --tokens 16384
  jumok cost smollm2 --tokens 2048 --batch 8 --json
  jumok cost --width 256 --measure
""",
)
@click.argument("model", required=False)
@click.option("--width", type=click.IntRange(1), help="The width of the model.  [default: 512]")
@click.option("--heads", type=click.IntRange(1), help="The number of heads.  [default: 8]")
@click.option("--layers", type=click.IntRange(1), help="The number of blocks.  [default: 6]")
@click.option("--hidden", type=click.IntRange(1), help="Inner width of the feed-forward network.  [default: 4 x width]")
@click.option("--vocabulary", type=click.IntRange(1), help="The number of different tokens.  [default: 50257]")
@click.option("--tokens", type=click.IntRange(1), help="The length of a text.  [default: the model's, or 1024]")
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="The number of texts.")
@click.option("--measure", is_flag=True, help="Time an RNN, a CNN and an attention layer of this width here.")
@add_picture_options("the cost over the length")
@language_option
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
    language: str | None,
    as_json: bool,
) -> None:
    """Compute what a model costs, and whether it fits into the memory of this machine, without running it. MODEL is a
    folder, a .gguf file, or a name from the catalogue; without MODEL, the options describe a GPT-2 of another size."""
    from jumok.checkpoint.load import read_config
    from jumok.lab.cost.cost_report import report_cost
    from jumok.models.gpt import GPTConfig

    selected = select_language(language)
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
    print_result(report, paths, selected, NOTES, {} if as_json else None)


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
    from jumok.lab.exercises import EXERCISES, ProgramExercise, check_answer, find_exercise

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


def print_result(
    result: Result, paths: Sequence[Path], language: str, headings: Mapping[str, str], fields: Mapping[str, Any] | None
) -> None:
    """Draw the pictures, and print the tables, the sentences and the exceptions of a result.

    Args:
        headings: The line above the exceptions, by language.
        fields: What JSON contains besides the result; None = print text.
    """
    pictures = [str(result.save_picture(path, language)) for path in paths]
    if fields is not None:
        click.echo(json.dumps({**fields, **result.to_json(language), "pictures": pictures}, ensure_ascii=False))
        return
    for table in result.tables:
        if table.title is not None:
            click.echo(table.title.select(language))
        click.echo(format_table(table.select_language(language)) + "\n")
    for text in result.sentences:
        click.echo(text.select(language))
    if result.exceptions:
        click.echo(f"\n{headings[language]}")
        for text in result.exceptions:
            click.echo(f"- {text.select(language)}")
    for picture in pictures:
        click.echo(f"wrote {picture}")


def format_table(lines: Sequence[Sequence[str]]) -> str:
    """Return headings and rows as text: the first column left-aligned, the others right-aligned."""
    from jumok.draw.cell_text import count_cells, pad  # imports numpy, which most commands do not need

    widths = [max(map(count_cells, column)) for column in zip(*lines, strict=True)]
    texts = []
    for first, *cells in lines:
        aligned = [" " * (width - count_cells(cell)) + cell for cell, width in zip(cells, widths[1:], strict=True)]
        texts.append("  ".join([pad(first, widths[0]), *aligned]).rstrip())
    return "\n".join(texts)
