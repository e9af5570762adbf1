"""The commands ``jumok attend`` and ``jumok mask``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok import defaults

from .command import (
    Command,
    add_picture_options,
    add_shading_options,
    check_picture_paths,
    json_option,
    language_option,
)
from .command_output import CommandOutput

if TYPE_CHECKING:
    from jumok.lab.steps.sentence_attention import SentenceAttention

MAX_POSITIONS = 256  # queries or keys of a drawn mask


@click.command(
    cls=Command,
    short_help="Apply one untrained attention to the words of a text.",
    epilog="""Examples:
  jumok attend "the cat sat on the mat" --mask causal --png cat.png
  jumok attend "나는 오늘 학교에 갔다" --score additive --heads 4
  jumok attend "la maison bleue" --source "the blue house" --json
  jumok attend "a b c d e f" --mask "causal & window(2)" --backend blocked
""",
)
@click.argument("text")
@click.option("--source", metavar="TEXT", help="Attend from TEXT to this other sentence (cross-attention).")
@click.option("--heads", default=defaults.ATTEND_HEADS, show_default=True, help="The number of heads.")
@click.option("--groups", type=int, help="The number of key/value heads.  [default: as many as heads]")
@click.option("--width", default=defaults.ATTEND_WIDTH, show_default=True, help="The width of the model.")
@click.option(
    "--mask",
    "mask_expression",
    metavar="EXPRESSION",
    help="The mask: causal, window(3), ... combined with & | ~.",
)
@click.option(
    "--score",
    default=defaults.ATTEND_SCORE,
    show_default=True,
    help="scaled_dot, dot, general, additive, concat, kernel or favor.",
)
@click.option("--bias", default=defaults.ATTEND_BIAS, show_default=True, help="none, alibi or t5.")
@click.option("--projection", default=defaults.ATTEND_PROJECTION, show_default=True, help="fused, batched or single.")
@click.option(
    "--backend",
    default=defaults.ATTEND_BACKEND,
    show_default=True,
    help="Compute the output with this backend too, and print its difference from the explicit one.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0, 2**32 - 1),
    help="Seed of the random parameters.",
)
@click.option(
    "--head", type=int, help="Print and draw this head, counted from 0; -1 is the last.  [default: print 0, draw all]"
)
@add_picture_options("the head, or without --head all heads,")
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
    """Apply one untrained attention to the words of TEXT and print its shapes, its weights, and the weights on later
    words."""
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
    figures = [_draw_figure(sentence, index, path, scale=scale, skip_first=skip_first) for path in paths]
    output = CommandOutput(as_json)
    if as_json:
        row = {field.name: getattr(sentence, field.name) for field in fields(sentence)}
        output.print_json({**row, "weights": sentence.weights.tolist(), "pictures": figures})
        return
    _print_sentence(sentence, index or 0, output)
    output.print_written(figures)


@click.command(
    cls=Command,
    short_help="Draw a mask.",
    epilog="""Examples:
  jumok mask "causal & window(3)"
  jumok mask "window(2) | global_at([0]) | random_keys(1, 7, 12)" --queries 12 --keys 12
  jumok mask "blocks((2, 2), grid=(4, 4), shift=(1, 1))" --json
  jumok mask "causal & window(4)" --png mask.png
""",
)
@click.argument("expression")
@click.option(
    "--queries",
    type=click.IntRange(1, MAX_POSITIONS),
    help="The number of queries to draw.  [default: enough to show the mask]",
)
@click.option(
    "--keys",
    type=click.IntRange(1, MAX_POSITIONS),
    help="The number of keys to draw.  [default: enough to show the mask]",
)
@add_picture_options("the mask")
@language_option
@json_option
def mask(
    expression: str,
    queries: int | None,
    keys: int | None,
    png: Path | None,
    svg: Path | None,
    language: str | None,
    as_json: bool,
) -> None:
    """Draw the mask of EXPRESSION: causal, window, prefix, padding, documents, global_at, random_keys, blocks and
    edge, combined with & | ~."""
    from jumok.attention.mask import parse
    from jumok.attention.mask.notation import draw, evaluate_cells

    paths = check_picture_paths(png, svg)
    parsed = parse(expression)
    output = CommandOutput(as_json, language)
    figures = []
    if paths:
        from jumok.draw import AXIS_NAMES, save_mask

        size = min(max(parsed.drawing_size, 4), MAX_POSITIONS)  # a picture shows more than a terminal
        cells = evaluate_cells(parsed, queries or size, keys or size)
        caption = ""
        if queries is None and keys is None and parsed.drawing_size > size:
            count = f"{parsed.drawing_size:,}"
            is_korean = output.language == "ko"
            caption = f"위치 {count}개 중 처음 {size}개" if is_korean else f"the first {size} of {count} positions"
        axis_names = AXIS_NAMES[output.language]
        figures = [
            str(save_mask(path, cells, title=repr(parsed), caption=caption, axis_names=axis_names)) for path in paths
        ]
    if as_json:
        allowed = evaluate_cells(parsed, queries, keys)
        output.print_json({"mask": repr(parsed), "allowed": allowed, "pictures": figures})
        return
    output.print(draw(parsed, queries, keys))
    output.print_written(figures)


def _draw_figure(
    sentence: SentenceAttention, head: int | None, path: Path, *, scale: str = "linear", skip_first: bool = False
) -> str:
    """Draw one head, or a grid of all heads, and return the path."""
    from jumok import draw

    subject = f"{len(sentence.weights)} heads" if head is None else f"head {head}"
    title = f"{subject}, untrained; mask: {sentence.mask}"
    save = draw.save_head_grid if head is None else draw.save_heat_map
    weights = sentence.weights if head is None else sentence.weights[head]
    figure = save(path, weights, sentence.tokens, sentence.source, title=title, scale=scale, skip_first=skip_first)
    return str(figure)


def _print_sentence(sentence: SentenceAttention, head: int, output: CommandOutput) -> None:
    is_cross = sentence.source != sentence.tokens
    arrow = f"  ->  {' '.join(sentence.source)}" if is_cross else ""
    output.print(f"\n{' '.join(sentence.tokens)}{arrow}")
    weights_shape = [1, *sentence.weights.shape]
    rows = [
        ("parameters", f"{sentence.parameters:,}, untrained: the weights only show the mechanism"),
        ("score", f"{sentence.score}, heads {sentence.head_width} wide; mask: {sentence.mask}"),
        ("query", f"{sentence.query_shape}  batch head query head_width"),
        ("key, value", f"{sentence.key_shape}  batch group key head_width"),
        ("weights", f"{weights_shape}  batch head query key; rows sum to 1 within {sentence.row_error:.0e}"),
        ("output", f"{sentence.output_shape}  batch query width"),
    ]
    if sentence.backend != defaults.ATTEND_BACKEND:
        difference = f"largest difference from the explicit formula {sentence.difference:.1e}"
        rows.append(("backend", f"{sentence.backend}: {difference}"))
    output.print_table("ll", rows)
    output.print()
    title = f"head {head} of {len(sentence.weights)}"
    output.print_heat_map(sentence.weights[head], sentence.tokens, sentence.source, title)
    if is_cross:
        return
    output.print("\nfuture check: each token's weight on later tokens (maximum over the heads)")
    for token, weight in zip(sentence.tokens, sentence.future, strict=True):
        output.print(f"  {weight:.6f}  {token}")
    if any(sentence.future):
        output.print("  tokens attend to later tokens: the mask is not causal")
    else:
        output.print("  no token attends to later tokens")
