"""jumok models, jumok run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from .base import Command


@click.command(
    cls=Command,
    short_help="List the families of models.",
    epilog="""Examples:
  jumok models
  jumok models --json
""",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
def models(as_json: bool) -> None:
    """The families of models, each with what it is and how many parameters its default config has."""
    from jumok.models.registry import described

    rows = described()
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        click.echo(f"{row['family']:<12} {row['parameters']:>13,} parameters by default   {row['what']}")


@click.command(
    cls=Command,
    short_help="Use a model for what it is for.",
    epilog="""Examples:
  jumok run smollm2 "The capital of Korea is"
  jumok run smollm2 "Why is the sky blue?" --chat --limit 200
  echo "Once upon a time" | jumok run smollm2 -
  jumok run minilm sentence.txt --json
  jumok run my-folder "나는 오늘" --temperature 0.8 --top-p 0.9 --seed 1
""",
)
@click.argument("model")
@click.argument("text", nargs=-1)
@click.option("--limit", default=128, show_default=True, type=click.IntRange(1), help="At most so many new tokens.")
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    help="0 takes the likeliest token.  [default: 0; 1 with options that draw]",
)
@click.option("--top-k", type=click.IntRange(1), help="Draw from the so many likeliest tokens.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="Draw from the fewest with this share.")
@click.option(
    "--min-p", type=click.FloatRange(0, 1, min_open=True), help="Draw from those this likely beside the likeliest."
)
@click.option(
    "--repetition", type=click.FloatRange(0, min_open=True), help="Divide the logits of what is there already."
)
@click.option("--seed", type=click.IntRange(0), help="The same seed draws the same text.")
@click.option("--beams", default=1, show_default=True, type=click.IntRange(1), help="Beam search with so many beams.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be given several times.")
@click.option("--chat", is_flag=True, help="The text is a message to an instructed model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
def run(model: str, text: tuple[str, ...], stop: tuple[str, ...], as_json: bool, **settings: Any) -> None:
    """Let MODEL (a name of the catalogue, a folder, a .gguf file) do what it is for with TEXT: continue it, translate
    it, fill its mask, embed it, classify it. TEXT may be a file, several, or - for standard input."""
    from jumok.checkpoint import load
    from jumok.run import pieces, purpose
    from jumok.run import run as run_model

    given = _given(text)
    loaded = load(model)
    kind = purpose(loaded)
    generation = {name: value for name, value in settings.items() if value is not None}
    generation = {name: value for name, value in generation.items() if not (name == "chat" and not value)}
    if kind not in ("continue", "translate"):
        plain = {"limit": 128, "beams": 1}
        changed = {name: value for name, value in generation.items() if plain.get(name) != value}
        if stop:
            changed["stop"] = stop
        _print_answers(kind, given, run_model(loaded, given, **changed), as_json)
        return
    for one in given:
        streamed = pieces(loaded, one, stops=stop, **generation)
        if as_json:
            click.echo(json.dumps({"input": one, "output": "".join(streamed)}, ensure_ascii=False))
            continue
        for piece in streamed:
            click.echo(piece, nl=False)
            sys.stdout.flush()
        click.echo()


def _given(text: tuple[str, ...]) -> list[str]:
    """The texts meant: words as they are, the content of files, or standard input."""
    from jumok.errors import ArgumentError

    if not text or text == ("-",):
        if sys.stdin.isatty():
            raise ArgumentError("there is no text; give it as an argument, as a file, or on standard input")
        told = sys.stdin.read()
        if not told.strip():
            raise ArgumentError("standard input is empty; there is nothing to do")
        return [told.rstrip("\n")]
    found = []
    for one in text:
        path = Path(one)
        if len(one) < 256 and path.suffix in (".txt", ".md") and path.is_file():
            try:
                found.append(path.read_text(encoding="utf-8").rstrip("\n"))
            except UnicodeDecodeError as wrong:
                raise ArgumentError(f"{path} is not UTF-8 text (byte {wrong.start}); save it as UTF-8") from None
        else:
            found.append(one)
    return found


def _print_answers(kind: str, given: list[str], answers: Any, as_json: bool) -> None:
    for one, answer in zip(given, answers, strict=True):
        told = answer.tolist() if hasattr(answer, "tolist") else answer
        if as_json:
            click.echo(json.dumps({"input": one, kind.split()[0]: told}, ensure_ascii=False))
        elif kind == "fill":
            for place, rows in enumerate(told):
                if len(told) > 1:
                    click.echo(f"masked place {place + 1}")
                for row in rows:
                    click.echo(f"{row['share']:6.3f}  {row['token']}")
        elif kind == "embed":
            shown = " ".join(f"{number:.4f}" for number in told[:8])
            click.echo(f"{len(told)} numbers: {shown} ... (--json prints all)")
        else:
            for place, share in sorted(enumerate(told), key=lambda pair: -pair[1])[:5]:
                click.echo(f"{share:6.3f}  class {place}")
