"""jumok models, jumok run."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from .arguments import content, inputs
from .command import Command


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
    from jumok.models.registry import describe_families

    rows = describe_families()
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
  jumok run my-vit cat.png dog.jpg --json
  jumok run my-numbers 10,20,30,40,50
""",
)
@click.argument("model")
@click.argument("given", nargs=-1)
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
def run(model: str, given: tuple[str, ...], stop: tuple[str, ...], as_json: bool, **settings: Any) -> None:
    """Let MODEL (a name of the catalogue, a folder, a .gguf file) do what it is for with what is GIVEN: continue a
    text, translate it, fill its mask, embed or classify it; classify, embed or caption a picture; predict numbers.

    GIVEN is one or several: texts, .txt or .md files, or - for standard input; paths of pictures (PNG, JPEG, WebP, GIF,
    BMP); .safetensors files with an image's regions; numbers such as 10,20,30."""
    told = inputs(given)
    from jumok.checkpoint import load
    from jumok.tasks import WRITES, pieces, purpose, reads
    from jumok.tasks import run as run_model

    loaded = load(model)
    kind, read = purpose(loaded), reads(loaded)
    if read in ("text", "numbers"):
        told = [content(one) for one in told]
    if read == "numbers" and all("," not in one for one in told):
        told = [",".join(told)]  # 10 20 30, written without commas, are one sequence
    generation = {name: value for name, value in settings.items() if value is not None}
    generation = {name: value for name, value in generation.items() if not (name == "chat" and not value)}
    if kind not in WRITES:
        plain = {"limit": 128, "beams": 1}
        generation = {name: value for name, value in generation.items() if plain.get(name) != value}
        if stop:
            generation["stop"] = stop
    for one in told:
        if read == "text" and loaded.tokenizer is not None:
            _say_unknown(loaded, one)
        if read in ("pictures", "regions") and len(told) > 1 and not as_json:
            click.echo(f"{one}:")
        if kind not in WRITES:
            _print_answer(kind, one, run_model(loaded, one, **generation), as_json)
            continue
        streamed = pieces(loaded, one, stops=stop, **generation)
        if as_json:
            click.echo(json.dumps({"input": one, "output": "".join(streamed)}, ensure_ascii=False))
            continue
        for piece in streamed:
            click.echo(piece, nl=False)
            sys.stdout.flush()
        click.echo()


def _say_unknown(loaded: Any, text: str) -> None:
    """A model answers to letters that it never saw as well; whoever asked should know."""
    from jumok.tasks.model_inputs import text_of, unknown_in

    ids = loaded.tokenizer.encode(text_of(loaded, text))
    unknown = unknown_in(loaded, ids)
    if unknown:
        click.echo(f"jumok: {unknown:,} of {len(ids):,} tokens are unknown to this model's tokenizer", err=True)


def _print_answer(kind: str, given: str, answer: Any, as_json: bool) -> None:
    told = answer.tolist() if hasattr(answer, "tolist") else answer
    if as_json:
        click.echo(json.dumps({"input": given, kind: told}, ensure_ascii=False))
    elif kind == "fill":
        for place, rows in enumerate(told):
            if len(told) > 1:
                click.echo(f"masked place {place + 1}")
            for row in rows:
                click.echo(f"{row['share']:6.3f}  {row['token']}")
    elif kind == "embed":
        shown = " ".join(f"{number:.4f}" for number in told[:8])
        click.echo(f"{len(told)} numbers: {shown} ... (--json prints all)")
    elif kind in ("predict", "score"):
        click.echo(" ".join(f"{number:g}" for number in told))
    else:
        for row in told[:5]:
            click.echo(f"{row['share']:6.3f}  {_shown(row)}")


def _shown(row: dict[str, Any]) -> str:
    """A class by its name, or its number. A name comes from a file: nothing in it may steer the terminal."""
    if row["name"] is None:
        return f"class {row['class']}"
    return "".join(letter if letter.isprintable() else " " for letter in row["name"])
