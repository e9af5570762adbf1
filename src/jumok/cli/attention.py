"""The commands ``jumok attend`` and ``jumok mask``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok import defaults
from jumok.bilingual_text import Texts

from .command import add_picture_options, add_shading_options, check_picture_paths, json_option
from .command_output import CommandOutput
from .help import Command

if TYPE_CHECKING:
    from jumok.lab.steps.sentence_attention import SentenceAttention

TEXTS = Texts(__file__)
MAX_POSITIONS = 256  # queries or keys of a drawn mask


@click.command(cls=Command)
@click.argument("text")
@click.option("--source", metavar="TEXT")
@click.option("--heads", default=defaults.ATTEND_HEADS, show_default=True)
@click.option("--groups", type=int)
@click.option("--width", default=defaults.ATTEND_WIDTH, show_default=True)
@click.option("--head-width", type=int)
@click.option("--value-width", type=int)
@click.option("--projection-bias/--no-projection-bias", default=True)
@click.option("--output-map/--no-output-map", default=True)
@click.option("--mask", "mask_expression", metavar="EXPRESSION")
@click.option("--score", default=defaults.ATTEND_SCORE, show_default=True)
@click.option("--bias", default=defaults.ATTEND_BIAS, show_default=True)
@click.option("--projection", default=defaults.ATTEND_PROJECTION, show_default=True)
@click.option("--backend", default=defaults.ATTEND_BACKEND, show_default=True)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1))
@click.option("--head", type=int)
@add_picture_options
@add_shading_options
@json_option
def attend(
    text: str,
    source: str | None,
    mask_expression: str | None,
    head: int | None,
    png: Path | None,
    svg: Path | None,
    scale: str,
    skip_first: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """The command ``jumok attend``."""
    from jumok.attention.mask import parse
    from jumok.errors import ArgumentError
    from jumok.lab.steps.sentence_attention import attend_sentence

    paths = check_picture_paths(png, svg)
    mask = None if mask_expression is None else parse(mask_expression)
    sentence = attend_sentence(text, source=source, mask=mask, **settings)
    heads = len(sentence.weights)
    if head is not None and not -heads <= head < heads:
        raise ArgumentError(f"there is no head {head}; this attention has heads 0 to {heads - 1}, and -1 is the last")
    index = None if head is None else head % heads
    output = CommandOutput(as_json)
    figures = [_draw_figure(sentence, index, path, scale, skip_first, output) for path in paths]
    if as_json:
        row = {field.name: getattr(sentence, field.name) for field in fields(sentence)}
        output.print_json({**row, "weights": sentence.weights.tolist(), "pictures": figures})
        return
    _print_sentence(sentence, index or 0, output)
    output.print_written(figures)


@click.command(cls=Command)
@click.argument("expression")
@click.option("--queries", type=click.IntRange(1, MAX_POSITIONS))
@click.option("--keys", type=click.IntRange(1, MAX_POSITIONS))
@add_picture_options
@json_option
def mask(
    expression: str, queries: int | None, keys: int | None, png: Path | None, svg: Path | None, as_json: bool
) -> None:
    """The command ``jumok mask``."""
    from jumok.attention.mask import parse
    from jumok.attention.mask.notation import draw, evaluate_cells

    paths = check_picture_paths(png, svg)
    parsed = parse(expression)
    output = CommandOutput(as_json)
    figures = []
    if paths:
        from jumok.draw import AXIS_NAMES, save_mask

        size = min(max(parsed.drawing_size, 4), MAX_POSITIONS)  # a picture shows more than a terminal
        cells = evaluate_cells(parsed, queries or size, keys or size)
        caption = ""
        if queries is None and keys is None and parsed.drawing_size > size:
            caption = output.select(TEXTS("figure.first_positions", size=size, positions=parsed.drawing_size))
        texts: dict[str, Any] = {"title": repr(parsed), "caption": caption, "axis_names": AXIS_NAMES[output.language]}
        figures = [str(save_mask(path, cells, **texts)) for path in paths]
    if as_json:
        allowed = evaluate_cells(parsed, queries, keys)
        output.print_json({"mask": repr(parsed), "allowed": allowed, "pictures": figures})
        return
    output.print(draw(parsed, queries, keys))
    output.print_written(figures)


def _draw_figure(
    sentence: SentenceAttention, head: int | None, path: Path, scale: str, skip_first: bool, output: CommandOutput
) -> str:
    """Draw one head, or a grid of all heads, and return the path."""
    from jumok import draw

    subject = TEXTS("figure.heads", count=len(sentence.weights)) if head is None else TEXTS("figure.head", head=head)
    title = output.select(TEXTS("figure.title", subject=subject, mask=sentence.mask))
    save = draw.save_head_grid if head is None else draw.save_heat_map
    weights = sentence.weights if head is None else sentence.weights[head]
    names = draw.AXIS_NAMES[output.language]
    words = sentence.tokens, sentence.source
    return str(save(path, weights, *words, title=title, scale=scale, skip_first=skip_first, axis_names=names))


def _print_sentence(sentence: SentenceAttention, head: int, output: CommandOutput) -> None:
    is_cross = sentence.source != sentence.tokens
    arrow = f"  ->  {' '.join(sentence.source)}" if is_cross else ""
    output.print(f"\n{' '.join(sentence.tokens)}{arrow}")
    values: dict[str, dict[str, Any]] = {
        "parameters": {"parameters": sentence.parameters},
        "score": {"score": sentence.score, "width": sentence.head_width, "mask": sentence.mask},
        "query": {"shape": sentence.query_shape},
        "key": {"shape": sentence.key_shape},
        "value": {"shape": sentence.value_shape},
        "weights": {"shape": [1, *sentence.weights.shape], "error": sentence.row_error},
        "output": {"shape": sentence.output_shape},
    }
    if sentence.backend != defaults.ATTEND_BACKEND:
        values["backend"] = {"backend": sentence.backend, "difference": sentence.difference}
    rows = [(TEXTS(f"rows.{name}"), TEXTS(f"values.{name}", **row)) for name, row in values.items()]
    output.print_table("ll", rows)
    output.print()
    title = output.select(TEXTS("figure.head_of", head=head, count=len(sentence.weights)))
    output.print_heat_map(sentence.weights[head], sentence.tokens, sentence.source, title)
    if is_cross:
        return
    output.print(TEXTS("future.title"))
    for token, weight in zip(sentence.tokens, sentence.future, strict=True):
        output.print(f"  {weight:.6f}  {token}")
    output.print(TEXTS("future.some" if any(sentence.future) else "future.none"))
