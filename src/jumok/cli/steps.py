"""The command ``jumok steps``: attention step by step, on examples and on the user's own input."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok import defaults

from .arguments import load_and_prepare, parse_layer
from .command import add_picture_options, check_picture_paths, json_option, list_given_options, show_status
from .command_output import CommandOutput
from .help import Command
from .page_hint import EXAMPLE, STEPS, TRAINED_STEPS, print_page_hint

if TYPE_CHECKING:
    from jumok.lab.steps.formula_steps import Example, Matrix, Step

# The options that each kind of input takes, besides --language, --json and pictures.
MATRIX_OPTIONS = ("query", "key", "value")
OPTIONS_BY_INPUT = {
    "an example": (),
    "a sentence": ("source", "causal", "unscaled", "heads", "width", "seed"),
    "--scores": ("scores", "value", "source", "causal"),
    "--query, --key and --value": (*MATRIX_OPTIONS, "source", "causal", "unscaled"),
    "--model": ("model", "layer", "head"),
}
SHOWN_COLUMNS = 12  # a row with more numbers is printed with its middle left out
EDGE_COLUMNS = 6  # numbers printed at each end of such a row
CELL = 8  # terminal cells of a number
MAX_LABEL = 12  # terminal cells of a label


@click.command(cls=Command)
@click.argument("arguments", metavar="[EXAMPLE]... | [TEXT]", nargs=-1)
@click.option("--source", metavar="TEXT")
@click.option("--scores", metavar="MATRIX")
@click.option("--query", metavar="MATRIX")
@click.option("--key", metavar="MATRIX")
@click.option("--value", metavar="MATRIX")
@click.option("--causal", is_flag=True)
@click.option("--unscaled", is_flag=True)
@click.option("--heads", type=click.IntRange(1, 64))
@click.option("--width", type=click.IntRange(1, 4096))
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--model", metavar="MODEL")
@click.option("--layer", default="0", show_default=True)
@click.option("--head", type=int, default=0, show_default=True)
@add_picture_options
@json_option
@click.pass_context
def steps(
    context: click.Context,
    /,
    arguments: tuple[str, ...],
    png: Path | None,
    svg: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """The command ``jumok steps``."""
    paths = check_picture_paths(png, svg)
    output = CommandOutput(as_json)
    examples = _build_examples(context, arguments, options, as_json)
    if paths and len(examples) > 1:
        raise click.UsageError(f"a picture shows one example; name one of {', '.join(examples)}")
    figures = [_draw_weights(example, path, output.language) for path in paths for example in examples.values()]
    if as_json:
        fields = {name: _describe_as_json(example) for name, example in examples.items()}
        if figures:
            fields = {name: {**row, "pictures": figures} for name, row in fields.items()}
        output.print_json(fields)
        return
    for name, example in examples.items():
        _print_example(name, example, output)
    output.print_written(figures)
    if options["model"] is not None:
        print_page_hint((options["model"], *arguments), STEPS)
    elif "sentence" in examples and arguments and arguments[0] not in examples:
        print_page_hint((EXAMPLE[0], arguments[0]), TRAINED_STEPS)
    else:
        print_page_hint(EXAMPLE, TRAINED_STEPS)


def _build_examples(
    context: click.Context, arguments: tuple[str, ...], options: dict[str, Any], as_json: bool
) -> dict[str, Example]:
    """Return the examples that the arguments describe, by name."""
    if options["model"] is not None:
        _check_options(context, options, "--model")
        return {"model": _build_model_example(arguments, options, as_json)}
    if options["scores"] is not None:
        _check_options(context, options, "--scores")
        return {"scores": _build_score_example(arguments, options)}
    if any(options[name] is not None for name in MATRIX_OPTIONS):
        _check_options(context, options, "--query, --key and --value")
        return {"matrices": _build_matrix_example(arguments, options)}

    from jumok.lab.steps.document_examples import EXAMPLES, build_example

    is_sentence = len(arguments) == 1 and (len(arguments[0].split()) > 1 or options["source"] is not None)
    if is_sentence:
        _check_options(context, options, "a sentence")
        return {"sentence": _build_sentence_example(arguments[0], options)}
    for name in arguments:
        if name not in EXAMPLES:
            raise click.UsageError(
                f"unknown example {name!r}; choose one of {', '.join(EXAMPLES)}, or give a sentence in quotes"
            )
    _check_options(context, options, "an example")
    return {name: build_example(name) for name in arguments or EXAMPLES}


def _check_options(context: click.Context, options: dict[str, Any], kind: str) -> None:
    """Refuse options that this kind of input would ignore."""
    for name, option in list_given_options(context).items():
        if name not in options or name in OPTIONS_BY_INPUT[kind]:
            continue
        kinds = [other for other, names in OPTIONS_BY_INPUT.items() if name in names]
        raise click.UsageError(f"{option} does not apply to {kind}; it applies to {' or '.join(kinds)}")


def _build_sentence_example(text: str, options: dict[str, Any]) -> Example:
    from jumok.lab.steps.input_steps import build_multihead_steps, build_sentence_steps

    settings = {"source": options["source"], "causal": options["causal"], "scaled": not options["unscaled"]}
    settings |= {"seed": options["seed"]}
    if options["width"] is not None:
        settings["width"] = options["width"]
    if options["heads"] is None:
        return build_sentence_steps(text, **settings)
    return build_multihead_steps(text, heads=options["heads"], **settings)


def _build_score_example(arguments: tuple[str, ...], options: dict[str, Any]) -> Example:
    from jumok.lab.steps.input_steps import build_score_steps, parse_matrix

    values = None if options["value"] is None else parse_matrix(options["value"], "--value")
    labels = _split_labels(arguments, options["source"])
    return build_score_steps(
        parse_matrix(options["scores"], "--scores"), values=values, causal=options["causal"], **labels
    )


def _build_matrix_example(arguments: tuple[str, ...], options: dict[str, Any]) -> Example:
    from jumok.lab.steps.input_steps import build_matrix_steps, parse_matrix

    for name in MATRIX_OPTIONS:
        if options[name] is None:
            raise click.UsageError(f"--{name} is missing; give --query, --key and --value together")
    matrices = [parse_matrix(options[name], f"--{name}") for name in MATRIX_OPTIONS]
    labels = _split_labels(arguments, options["source"])
    return build_matrix_steps(*matrices, causal=options["causal"], scaled=not options["unscaled"], **labels)


def _split_labels(arguments: tuple[str, ...], source: str | None) -> dict[str, Any]:
    """Return the words that label queries and keys."""
    from jumok.lab.steps.sentence_attention import split_words

    words = split_words(" ".join(arguments)) if arguments else []
    return {"query_words": words, "key_words": [] if source is None else split_words(source)}


def _build_model_example(arguments: tuple[str, ...], options: dict[str, Any], as_json: bool) -> Example:
    from jumok.lab.steps.model_steps import KEPT, build_model_steps
    from jumok.lens import Lens
    from jumok.lens.lens_inputs import explain_failures

    if len(arguments) != 1:
        raise click.UsageError(f"--model reads one text, not {len(arguments)}; put the text in quotes")
    loaded, labelled = load_and_prepare((options["model"], arguments[0]), defaults.ANSWER_TOKENS, as_json)
    with show_status("reading", as_json), explain_failures(loaded.model), Lens(loaded) as lens:
        capture = lens.run(*labelled.positional, **labelled.named, keep=KEPT)
    layer = options["layer"]
    site = capture.sites.find(parse_layer(layer))
    sides = capture.sites.get_sides(site)
    return build_model_steps(
        capture, site, options["head"], labelled.get_labels(sides.queries), labelled.get_labels(sides.keys)
    )


def _describe_as_json(example: Example) -> dict[str, Any]:
    """Return an example as JSON fields."""
    return {
        "title": example.title.english,
        "words": example.words,
        "source": example.source,
        "steps": [_describe_step(step) for step in example.steps],
        "remark": example.remark.english,
    }


def _print_example(name: str, example: Example, output: CommandOutput) -> None:
    """Print an example: for each step its formula, shape, explanation and numbers."""
    language = output.language
    output.print(f"{name}: {example.title.select(language)}")
    if example.words:
        arrow = f"  ->  {' '.join(example.source)}" if example.source else ""
        output.print(f"  {' '.join(example.words)}{arrow}")
    for step in example.steps:
        output.print(f"  {step.heading.select(language)}  {step.shape}{_mark_shape(step, language)}")
        output.print(f"    {step.explanation.select(language)}")
        _print_numbers(step, output)
    if example.remark.select(language):
        output.print(f"  {example.remark.select(language)}")
    output.print()


def _draw_weights(example: Example, path: Path, language: str) -> str:
    """Draw the weights of an example as one map, or as a grid if it has several, and return the path."""
    from jumok import draw

    steps = [step for step in example.steps if step.is_weights]
    title = example.title.select(language)
    axis_names = draw.AXIS_NAMES[language]
    labels = list(steps[0].rows), list(steps[0].columns)
    if len(steps) == 1:
        return str(draw.save_heat_map(path, steps[0].matrix, *labels, title=title, axis_names=axis_names))
    titles = [_name_weights(example, step, language) for step in steps]
    patterns = [step.matrix.tolist() for step in steps]
    return str(draw.save_head_grid(path, patterns, *labels, titles=titles, title=title, axis_names=axis_names))


def _name_weights(example: Example, weights: Step, language: str) -> str:
    """Return the head of a map, or the line before the softmax."""
    head, is_head, _ = weights.heading.select(language).partition(":")
    if is_head:
        return head
    return example.steps[example.steps.index(weights) - 1].heading.select(language)  # compared by identity


def _describe_step(step: Step) -> dict[str, Any]:
    return {
        "formula": step.formula,
        "explanation": step.explanation.english,
        "shape": step.shape,
        "rows": list(step.rows),
        "columns": list(step.columns),
        "numbers": _replace_missing(step.numbers.tolist()),
        "printed": _list_printed(step),
        "printed_shape": None if step.printed_shape is None else list(step.printed_shape),
        "differs": step.differs,
        "differing_rows": step.differing_rows,
    }


def _list_printed(step: Step) -> list[list[float | None] | None] | None:
    """Return the printed numbers; None for a row, or for a whole step, of which the text prints nothing."""
    if step.printed is None:
        return None
    rows: list[list[float | None]] = _replace_missing(step.printed.tolist())
    return [row if any(cell is not None for cell in row) else None for row in rows]


def _replace_missing(numbers: Any) -> Any:
    """Replace -inf and NaN in nested lists by None, because JSON has neither."""
    if isinstance(numbers, list):
        return [_replace_missing(part) for part in numbers]
    return numbers if math.isfinite(numbers) else None


def _print_numbers(step: Step, output: CommandOutput) -> None:
    """Print the numbers of a step with the labels of rows and columns; the middle of long rows is left out."""
    from jumok.draw.cell_text import make_visible, truncate

    labels = [[truncate(make_visible(label), MAX_LABEL)] for label in step.rows] or [[] for _ in step.matrix]
    rows = []
    for index, numbers in enumerate(step.matrix.tolist()):
        cells = _leave_out_middle([_format_number(number).rjust(CELL) for number in numbers])
        rows.append([*labels[index], *cells, _mark_row(step, index, output.language)])
    headings = _leave_out_middle([truncate(make_visible(label), MAX_LABEL) for label in step.columns])
    if headings:
        headings = [*("" for _ in labels[0]), *headings, ""]
    alignment = "l" * len(labels[0])
    alignment += "r" * (len(rows[0]) - len(alignment) - 1) + "l"
    output.print_table(alignment, rows, headings, indent=4, gap=1)


def _leave_out_middle(cells: list[str]) -> list[str]:
    if len(cells) > SHOWN_COLUMNS:
        return [*cells[:EDGE_COLUMNS], "…", *cells[-EDGE_COLUMNS:]]
    return cells


def _format_number(number: float) -> str:
    if number == float("-inf"):
        return "."
    return f"{number:.3f}" if abs(number) < 1000 else f"{number:.3g}"


def _mark_row(step: Step, row: int, language: str) -> str:
    """Return the numbers that a text prints for a row if they differ by more than rounding, otherwise ""."""
    if step.printed is None or row not in step.differing_rows:
        return ""
    return f"  <- {_name_printed(language)} {_format_printed(step.printed, row)}"


def _mark_shape(step: Step, language: str) -> str:
    if step.printed_shape in (None, tuple(step.shape)):
        return ""
    return f"   <- {_name_printed(language)} {list(step.printed_shape or ())}"


def _name_printed(language: str) -> str:
    from jumok.lab.steps.formula_steps import TEXTS

    return TEXTS("printed").select(language)


def _format_printed(printed: Matrix, row: int) -> str:
    return " ".join("-" if math.isnan(number) else f"{number:.2f}" for number in printed[row].tolist())
