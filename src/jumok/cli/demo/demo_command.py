"""The command ``jumok demo``: print each step, and leave the pictures and a page in a folder."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.command import Command, json_option, language_option, select_language

from .demo_texts import SENTENCES, TEXTS, DemoTexts

if TYPE_CHECKING:
    from .demo_steps import CrossAttention, TrainedLine

HEADS_SHOWN = 3


@click.command(
    cls=Command,
    short_help="Translate, look at attention, train a GPT and ablate its heads, in two minutes.",
    epilog="""Examples:
  jumok demo
  jumok demo --language ko
  jumok demo --quick --out pictures
""",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="The folder for the pictures, the page and the trained model.",
)
@language_option
@click.option("--quick", is_flag=True, help="Train for a moment only; the GPT then writes nonsense.")
@json_option
def demo(out: Path, language: str | None, quick: bool, as_json: bool) -> None:
    """Translate between Korean and English with the model that comes with the package, show where it looks, train a
    small GPT for about a minute, and show which of its heads matters. Nothing is downloaded."""
    out.mkdir(parents=True, exist_ok=True)
    language = select_language(language)
    texts = TEXTS[language]
    show = _discard if as_json else click.echo

    from jumok.checkpoint import load
    from jumok.tasks import run
    from jumok.training.progress import SilentDisplay

    from . import demo_steps

    translator = load("translator")
    show(f"{texts.translate}\n")
    translations = run(translator, list(SENTENCES))
    for source, translation in zip(SENTENCES, translations, strict=True):
        show(f"  {source}\n    → {translation}")
    show(f"\n{texts.translator.format(parameters=translator.model.parameter_count)}")

    show(f"\n{texts.attention}\n")
    attention = demo_steps.capture_cross_attention(translator, SENTENCES[0], out, language)
    show(_render_map(attention))
    show(texts.attention_map.format(heads=attention.heads, site=attention.site))

    text, count = demo_steps.write_training_text(language, out, quick=quick)
    steps = demo_steps.QUICK_STEPS if quick else demo_steps.STEPS
    show(f"\n{texts.train.format(sentences=count, steps=steps)}\n")
    display = SilentDisplay() if as_json else None
    gpt = demo_steps.train_and_ablate(text, texts.prompt, out, display, quick=quick)
    if as_json:
        fields = _to_json(dict(zip(SENTENCES, translations, strict=True)), attention, gpt)
        click.echo(json.dumps(fields, ensure_ascii=False))
    else:
        _print_gpt(texts, gpt)
        _print_end(texts, attention, gpt, text)


def _discard(line: str) -> None:
    """Print nothing: with --json, only the JSON is printed."""


def _render_map(attention: CrossAttention) -> str:
    from jumok import draw

    is_terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return draw.render_terminal_heat_map(
        attention.weights,
        attention.written,
        attention.read,
        color=is_terminal,
        width=shutil.get_terminal_size().columns if is_terminal else None,
    )


def _print_gpt(texts: DemoTexts, gpt: TrainedLine) -> None:
    strongest = gpt.effects[0]
    head = {"layer": strongest.layer, "head": strongest.head}
    click.echo(texts.trained.format(parameters=gpt.parameters, loss=gpt.loss))
    click.echo(f"{texts.line} {gpt.line}")

    click.echo(f"\n{texts.look}\n")
    click.echo(texts.metric.format(clean=gpt.effects.clean))
    for effect in gpt.effects.top(HEADS_SHOWN):
        click.echo(f"  {texts.head_effect.format(layer=effect.layer, head=effect.head, effect=effect.effect)}")
    click.echo(f"{texts.without_head.format(**head)} {gpt.line_without}")
    click.echo(texts.looked.format(**head))
    for position, letter, weight in gpt.keys:
        click.echo(f"  {weight:.2f}  {letter!r}  ({gpt.line[:position]}[{letter}]{gpt.line[position + 1 :]})")


def _print_end(texts: DemoTexts, attention: CrossAttention, gpt: TrainedLine, text: Path) -> None:
    click.echo(f"\n{texts.pictures} {', '.join([attention.picture, *gpt.pictures])}")
    click.echo(texts.page.format(page=attention.page))
    click.echo(texts.next)
    click.echo(f'  jumok run translator "{texts.own_sentence}"')
    click.echo(f'  jumok look {shlex.quote(gpt.folder)} "{gpt.line}"')
    click.echo(f"  jumok train text --data {shlex.quote(str(text))} --steps 5000")


def _to_json(translations: dict[str, str], attention: CrossAttention, gpt: TrainedLine) -> dict[str, Any]:
    return {
        "translations": translations,
        "attention": {
            "site": attention.site,
            "written": attention.written,
            "read": attention.read,
            "weights": attention.weights.tolist(),
        },
        "gpt": {
            "folder": gpt.folder,
            "parameters": gpt.parameters,
            "loss": gpt.loss,
            "line": gpt.line,
            "effects": [effect.to_json() for effect in gpt.effects],
            "line_without": gpt.line_without,
        },
        "pictures": [attention.picture, *gpt.pictures],
        "page": attention.page,
    }
