"""The command ``jumok demo``: print each step, and leave the pictures and a page in a folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.bilingual_text import Texts

from .command import json_option
from .command_output import CommandOutput
from .help import Command

if TYPE_CHECKING:
    from .demo_steps import CrossAttention, TrainedLine

TEXTS = Texts(__file__)
SENTENCES = (  # that the demo translates; the attention of the first one is drawn
    "나는 매일 학교에 간다",
    "고양이는 어제 부엌에서 잤다",
    "너는 어디에서 꽃을 샀니?",
    "My mother drinks coffee at home every morning",
    "The students didn't read the newspaper last week",
    "Will you come to Seoul tomorrow?",
)
HEADS_SHOWN = 3


@click.command(cls=Command)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo"), show_default=True)
@click.option("--quick", is_flag=True)
@json_option
def demo(out: Path, quick: bool, as_json: bool) -> None:
    """The command ``jumok demo``."""
    out.mkdir(parents=True, exist_ok=True)
    output = CommandOutput(as_json)

    from jumok.checkpoint import load
    from jumok.tasks import run
    from jumok.training.displays import SilentDisplay

    from . import demo_steps

    translator = load("translator")
    translations = dict(zip(SENTENCES, run(translator, list(SENTENCES)), strict=True))
    if not as_json:
        output.print(TEXTS("translate"))
        for source, translation in translations.items():
            output.print(f"  {source}\n    → {translation}")
        output.print(TEXTS("translator", parameters=translator.model.parameter_count))

    attention = demo_steps.capture_cross_attention(translator, SENTENCES[0], out, output.language)
    text, count = demo_steps.write_training_text(output.language, out, quick=quick)
    if not as_json:
        _print_attention(attention, output)
        steps = demo_steps.QUICK_STEPS if quick else demo_steps.STEPS
        output.print(TEXTS("train", sentences=count, steps=steps))

    prompt = TEXTS("prompt").select(output.language)
    gpt = demo_steps.train_and_ablate(text, prompt, out, SilentDisplay() if as_json else None, quick=quick)
    if as_json:
        output.print_json(_to_json(translations, attention, gpt))
        return
    _print_gpt(gpt, output)
    output.print(TEXTS("pictures", names=", ".join([attention.picture, *gpt.pictures])))
    output.print(TEXTS("page", page=attention.page))
    output.print(TEXTS("next"))
    output.print(f'  jumok run translator "{TEXTS("own_sentence").select(output.language)}"')
    output.print(f'  jumok look {shlex.quote(gpt.folder)} "{gpt.line}"')
    output.print(f"  jumok train text --data {shlex.quote(str(text))} --steps 5000")


def _print_attention(attention: CrossAttention, output: CommandOutput) -> None:
    output.print(TEXTS("attention"))
    output.print_heat_map(attention.weights, attention.written, attention.read)
    output.print(TEXTS("attention_map", heads=attention.heads, site=attention.site))


def _print_gpt(gpt: TrainedLine, output: CommandOutput) -> None:
    strongest = gpt.effects[0]
    head = {"layer": strongest.layer, "head": strongest.head}
    output.print(TEXTS("trained", parameters=gpt.parameters, loss=gpt.loss))
    output.print(TEXTS("line", line=gpt.line))
    output.print(TEXTS("look"))
    output.print(TEXTS("metric", clean=gpt.effects.clean))
    for effect in gpt.effects.top(HEADS_SHOWN):
        output.print(TEXTS("head_effect", layer=effect.layer, head=effect.head, effect=effect.effect))
    output.print(TEXTS("without_head", **head, line=gpt.line_without))
    output.print(TEXTS("looked", **head))
    for position, letter, weight in gpt.keys:
        output.print(f"  {weight:.2f}  {letter!r}  ({gpt.line[:position]}[{letter}]{gpt.line[position + 1 :]})")


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
