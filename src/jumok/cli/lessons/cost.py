"""The command ``jumok cost``: parameters, operations and memory of a Transformer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jumok.cli.command import (
    Command,
    add_picture_options,
    check_picture_paths,
    json_option,
    language_option,
    select_language,
    show_progress,
)

from .result_output import print_outcome

if TYPE_CHECKING:
    from jumok.lab.result import Result

HEADINGS = {"en": "Note:", "ko": "참고:"}


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
    from jumok.checkpoint.read_config import read_config
    from jumok.lab.cost.cost_report import report_cost, report_family_cost
    from jumok.models.gpt import GPTConfig

    selected = select_language(language)
    paths = check_picture_paths(png, svg)
    sizes = {"width": width, "heads": heads, "layers": layers, "hidden": hidden, "vocabulary": vocabulary}
    if model is not None:
        if contradicting := [f"--{name}" for name, number in sizes.items() if number is not None]:
            raise click.UsageError(f"{model} has its own sizes; remove {', '.join(contradicting)}")
        config = read_config(model)
        if not isinstance(config, GPTConfig):
            if measure:
                raise click.UsageError("--measure times layers of one width; give it with --width instead of a model")
            report = report_family_cost(config, tokens, batch, with_growth=bool(paths))
            _print_report(report, paths, selected, as_json)
            return
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
        gpt_report = report_cost(config, tokens or config.length, batch, measure=measure, progress=progress)
    _print_report(gpt_report, paths, selected, as_json)


def _print_report(report: Result, paths: list[Path], selected: str, as_json: bool) -> None:
    pictures = [str(report.save_picture(path, selected)) for path in paths]
    if as_json:
        click.echo(json.dumps({**report.to_json(selected), "pictures": pictures}, ensure_ascii=False))
        return
    print_outcome(report, selected, HEADINGS[selected])
    for picture in pictures:
        click.echo(f"wrote {picture}")
