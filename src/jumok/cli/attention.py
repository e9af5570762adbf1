"""jumok attend, jumok mask, jumok demo."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .command import Command

if TYPE_CHECKING:
    from jumok.lab.sentence_attention import SentenceAttention


@click.command(
    cls=Command,
    short_help="One attention over the words of a text.",
    epilog="""Examples:
  jumok attend "the cat sat on the mat" --mask causal --picture cat.png
  jumok attend "나는 오늘 학교에 갔다" --score additive --heads 4
  jumok attend "la maison bleue" --source "the blue house" --json
  jumok attend "a b c d e f" --mask "causal & window(2)" --backend blocked
""",
)
@click.argument("text")
@click.option("--source", metavar="TEXT", help="Attend from TEXT to this other sentence (cross-attention).")
@click.option("--heads", default=2, show_default=True, help="How many heads.")
@click.option("--groups", type=int, help="Key/value heads, fewer than heads.  [default: as many]")
@click.option("--width", default=32, show_default=True, help="Width of the model.")
@click.option("--mask", "who", metavar="EXPRESSION", help="Who may attend to whom: causal, window(3), ... with & | ~.")
@click.option(
    "--score",
    default="scaled_dot",
    show_default=True,
    help="scaled_dot, dot, general, additive, concat, kernel or favor.",
)
@click.option("--bias", default="none", show_default=True, help="none, alibi or t5.")
@click.option("--projection", default="fused", show_default=True, help="fused, batched or single.")
@click.option(
    "--backend",
    default="explicit",
    show_default=True,
    help="Compute the output this way too, and say how far it is from the formula.",
)
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1), help="Nothing is trained: what is drawn."
)
@click.option("--head", default=0, show_default=True, help="Which head to print.")
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False), help="Write the head's map (.png or .svg).")
@click.option("--grid", type=click.Path(path_type=Path, dir_okay=False), help="Write all heads' maps (.png or .svg).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
def attend(
    text: str,
    source: str | None,
    who: str | None,
    head: int,
    picture: Path | None,
    grid: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """One attention over the words of TEXT: its shapes, its weights, and the future check. Nothing is trained."""
    from jumok.attention import mask
    from jumok.errors import ArgumentError
    from jumok.lab.sentence_attention import attend_sentence

    chosen = None if who is None else mask.parse(who)
    found = attend_sentence(text, source=source, mask=chosen, **settings)
    if not 0 <= head < len(found.weights):
        raise ArgumentError(f"there is no head {head}; this attention has heads 0 to {len(found.weights) - 1}")
    pictures = _drawn(found, head, picture, grid)
    if as_json:
        click.echo(json.dumps(_plain(found, pictures), ensure_ascii=False))
    else:
        _print_sentence(found, head, pictures)


@click.command(
    cls=Command,
    short_help="Draw a mask.",
    epilog="""Examples:
  jumok mask "causal & window(3)"
  jumok mask "window(2) | global_at([0]) | random_keys(1, 7, 12)" --queries 12 --keys 12
  jumok mask "blocks((2, 2), grid=(4, 4), shift=(1, 1))" --json
""",
)
@click.argument("expression")
@click.option("--queries", type=click.IntRange(1, 256), help="How many queries to draw.  [default: what shows it]")
@click.option("--keys", type=click.IntRange(1, 256), help="How many keys to draw.  [default: what shows it]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
def mask(expression: str, queries: int | None, keys: int | None, as_json: bool) -> None:
    """Draw a mask. Words: causal, window, prefix, padding, documents, global_at, random_keys, blocks, edge; & | ~."""
    from jumok.attention.mask import parse
    from jumok.attention.mask.notation import cells, draw

    parsed = parse(expression)
    if as_json:
        click.echo(json.dumps({"mask": repr(parsed), "allowed": cells(parsed, queries, keys)}))
    else:
        click.echo(draw(parsed, queries, keys))


@click.command(
    cls=Command,
    short_help="A first look, in English and Korean.",
    epilog="""Examples:
  jumok demo
  jumok demo --out pictures
""",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="The folder for the pictures.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
def demo(out: Path, as_json: bool) -> None:
    """A causal multi-head attention on an English and a Korean sentence: maps, pictures, and the future check."""
    from jumok.lab.sentence_attention import DEMO_SENTENCES, attend_demo_sentence

    out.mkdir(parents=True, exist_ok=True)
    told = []
    for language, text in DEMO_SENTENCES.items():
        found = attend_demo_sentence(text)
        pictures = _drawn(found, 0, out / f"{language}.png", out / f"{language}-heads.png")
        told.append(_plain(found, pictures))
        if not as_json:
            _print_sentence(found, 0, pictures)
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))


def _drawn(found: SentenceAttention, head: int, picture: Path | None, grid: Path | None) -> list[str]:
    from jumok import draw

    made = []
    rows, columns = found.tokens, found.source
    if picture is not None:
        title = f"head {head}, untrained; mask: {found.mask}"
        made.append(str(draw.save_heat_map(picture, found.weights[head], rows, columns, title=title)))
    if grid is not None:
        title = f"{len(found.weights)} heads, untrained; mask: {found.mask}"
        made.append(str(draw.save_head_grid(grid, found.weights, rows, columns, title=title)))
    return made


def _plain(found: SentenceAttention, pictures: list[str]) -> dict[str, Any]:
    told = {name: getattr(found, name) for name in found.__dataclass_fields__}
    return {**told, "weights": found.weights.tolist(), "pictures": pictures}


def _print_sentence(found: SentenceAttention, head: int, pictures: list[str]) -> None:
    from jumok import draw

    def line(name: str, text: object) -> None:
        click.echo(f"{name:<12} {text}")

    crossed = found.source != found.tokens
    click.echo(f"\n{' '.join(found.tokens)}" + (f"  ->  {' '.join(found.source)}" if crossed else ""))
    line("parameters", f"{found.parameters:,}, untrained: this shows the mechanism, not a language")
    line("score", f"{found.score}, heads {found.head_width} wide; mask: {found.mask}")
    line("query", f"{found.query_shape}  batch head query head_width")
    line("key, value", f"{found.key_shape}  batch group key head_width")
    line("weights", f"{[1, *found.weights.shape]}  batch head query key; rows sum to 1 within {found.row_error:.0e}")
    line("output", f"{found.output_shape}  batch query width")
    if found.backend != "explicit":
        line("backend", f"{found.backend}: largest difference from the explicit formula {found.difference:.1e}")
    click.echo()
    terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    click.echo(
        draw.render_terminal_heat_map(
            found.weights[head],
            found.tokens,
            found.source,
            title=f"head {head} of {len(found.weights)}",
            color=terminal,
            width=shutil.get_terminal_size().columns if terminal else None,
        )
    )
    if not crossed:
        click.echo("\nfuture check: each token's weight on later tokens, the largest of all heads")
        for token, weight in zip(found.tokens, found.future, strict=True):
            click.echo(f"  {weight:.6f}  {token}")
        click.echo(
            "  nobody sees the future" if not any(found.future) else "  the future is seen: the mask is not causal"
        )
    for picture in pictures:
        line("picture", picture)
