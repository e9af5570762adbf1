"""The commands ``jumok models``, ``jumok run`` and ``jumok export``."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from jumok import defaults

from .arguments import read_arguments, read_if_text_file
from .command import Command, collect_given_options, json_option, show_status
from .transcription import print_transcripts, refuse_audio_options

CLASSES_SHOWN = 5
NUMBERS_SHOWN = 8


@click.command(
    cls=Command,
    short_help="List the model families, or say how far a model is supported.",
    epilog="""Examples:
  jumok models
  jumok models my-folder
  jumok models smollm2 facebook/opt-125m --json
""",
)
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@json_option
def models(names: tuple[str, ...], as_json: bool) -> None:
    """List the model families, each with a description and the number of parameters of its default config.

    With MODEL (a folder, a .gguf file, a name from the catalogue or the hub name of a model in the local cache): say
    how far it is supported. "own family": all commands and edits. "editable": a model of transformers whose attention
    the lens shows and edits. "maps only": the lens shows its attention. "refused": it is not opened, and why. A model
    of transformers is opened, and reads a short text or a blank image."""
    if names:
        _print_support_levels(names, as_json)
        return
    from jumok.models.registry import describe_families

    rows = describe_families()
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        click.echo(f"{row['family']:<12} {row['parameters']:>13,} parameters by default   {row['what']}")


def _print_support_levels(names: tuple[str, ...], as_json: bool) -> None:
    from jumok.checkpoint.resolve import resolve_model_path
    from jumok.checkpoint.transformers_folder import open_model
    from jumok.errors import JumokError
    from jumok.lens.huggingface.router import REFUSED, Support
    from jumok.lens.support_level import find_support_level

    rows: list[dict[str, Any]] = []
    for name in names:
        resolve_model_path(name)  # a name that does not exist is an error, not a level
        notes: list[str] = []
        with show_status(f"opening {name}", as_json):
            try:
                support = find_support_level(open_model(name, notes.append))
            except JumokError as error:
                support = Support(REFUSED, str(error))
        rows.append({"model": name, "level": support.level, "reason": support.reason, "notes": notes})
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        click.echo(f"{row['model']}: {row['level']} ({row['reason']})")
        for note in row["notes"]:
            click.echo(f"  {note}")


@click.command(
    cls=Command,
    short_help="Run a model on its task.",
    epilog="""Examples:
  jumok run smollm2 "The capital of Korea is"
  jumok run translator "나는 매일 학교에 간다"
  jumok run smollm2 "Why is the sky blue?" --chat --limit 200
  echo "Once upon a time" | jumok run smollm2 -
  jumok run minilm sentence.txt --json
  jumok run my-folder "나는 오늘" --temperature 0.8 --top-p 0.9 --seed 1
  jumok run my-vit cat.png dog.jpg --json
  jumok run my-numbers 10,20,30,40,50
  jumok run whisper-tiny-en talk.wav
  jumok run whisper-tiny-en talk.mp3 --srt > talk.srt
  jumok run my-whisper interview.flac --language ko --json
""",
)
@click.argument("model")
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@click.option(
    "--limit",
    default=defaults.NEW_TOKENS,
    show_default=True,
    type=click.IntRange(1),
    help="The largest number of new tokens; the text may exceed the model's context length.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    help="Divide the logits by this; 0 takes the most probable token.  [default: 0; 1 with a sampling option]",
)
@click.option("--top-k", type=click.IntRange(1), help="Sample from the k most probable tokens.")
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    help="Sample from the fewest tokens that together have this probability.",
)
@click.option(
    "--min-p",
    type=click.FloatRange(0, 1, min_open=True),
    help="Sample from tokens with at least this fraction of the largest probability.",
)
@click.option(
    "--repetition",
    type=click.FloatRange(0, min_open=True),
    help="Divide the logits of tokens that are already in the text by this.",
)
@click.option("--seed", type=click.IntRange(0), help="Seed of the sampling; the same seed gives the same text.")
@click.option(
    "--beams",
    default=defaults.BEAMS,
    show_default=True,
    type=click.IntRange(1),
    help="Beams of beam search; 1 = no beam search.",
)
@click.option("--stop", "stops", multiple=True, metavar="TEXT", help="End before this text; may be repeated.")
@click.option("--chat", is_flag=True, help="Apply the chat template of an instruction-tuned model.")
@click.option("--language", metavar="CODE", help="Audio: the spoken language, such as ko.  [default: detected]")
@click.option("--translate", is_flag=True, help="Audio: translate into English instead of transcribing.")
@click.option("--srt", is_flag=True, help="Audio: print subtitles in SubRip format.")
@click.option("--vtt", is_flag=True, help="Audio: print subtitles in WebVTT format.")
@click.option("--words", is_flag=True, help="Audio: with --json, --srt or --vtt, the times of single words.")
@json_option
@click.pass_context
def run(context: click.Context, /, model: str, inputs: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Run MODEL (a name from the catalogue, a folder, a .gguf file) on its task: continue a text, translate it, fill
    its masks, embed or classify it; classify, embed or caption an image; transcribe audio; predict numbers.

    An INPUT is a text, a .txt or .md file, or - for standard input; the path of an image (PNG, JPEG, WebP, GIF, BMP);
    a .safetensors file with an image's regions; an audio file (WAV, FLAC, OGG, MP3); or numbers such as 10,20,30.
    There may be several."""
    texts = read_arguments(inputs)

    from jumok.checkpoint import load
    from jumok.tasks import parse_settings, read_input, run_task, stream_answer

    loaded = load(model)
    reads, task = loaded.model.reads, loaded.model.task
    chosen_options = collect_given_options(context, *options)
    if reads == "audio":
        print_transcripts(loaded, texts, chosen_options, as_json)
        return
    refuse_audio_options(chosen_options, loaded.family)
    settings = parse_settings(loaded, chosen_options)
    if reads in ("text", "numbers"):
        texts = [read_if_text_file(text) for text in texts]
    if reads == "numbers" and all("," not in text for text in texts):
        texts = [",".join(texts)]  # "10 20 30", written without commas, is one sequence

    for text in texts:
        model_input = read_input(loaded, text, chat=settings.chat)
        if model_input.warning is not None:
            _print_messages([model_input.warning])
        if reads in ("image", "regions") and len(texts) > 1 and not as_json:
            click.echo(f"{text}:")

        messages: list[str] = []  # printed after the text, which may still be on an unfinished line
        if loaded.model.answers == "text" and not as_json:
            for piece in stream_answer(loaded, model_input, settings, messages.append):
                click.echo(piece, nl=False)
                sys.stdout.flush()
            click.echo()
            _print_messages(messages)
            continue

        answer = run_task(loaded, [model_input], settings, messages.append)[0]
        _print_messages(messages)
        if task == "embed":
            answer = answer.tolist()
        if as_json:
            key = "output" if loaded.model.answers == "text" else task
            row = {"input": text, key: answer}
            if model_input.unknown_words:
                row["unknown_words"] = list(model_input.unknown_words)
            click.echo(json.dumps(row, ensure_ascii=False))
        else:
            _print_answer(task, answer)


@click.command(
    cls=Command,
    short_help="Write a model in another format, such as Hugging Face's.",
    epilog="""Examples:
  jumok export runs/sentiment my-classifier
  jumok export runs/translate my-translator --format huggingface --json
  jumok export my-translator copy --format jumok
""",
)
@click.argument("model", metavar="RUN")
@click.argument("folder")
@click.option(
    "--format",
    "file_format",
    default=defaults.EXPORT_FORMAT,
    show_default=True,
    type=click.Choice(defaults.FORMATS),
    help="huggingface: transformers loads it; jumok: with checksums.",
)
@json_option
def export(model: str, folder: str, file_format: str, as_json: bool) -> None:
    """Write RUN (a run, a model folder, a .gguf file or a name from the catalogue) into the new folder FOLDER, with its
    tokenizer, image preparation and class names. A model that the format cannot express is refused."""
    from jumok.checkpoint import load, save
    from jumok.checkpoint.save import list_restrictions
    from jumok.checkpoint.tensor_files import read_json

    loaded = load(model)
    target = save(loaded, folder, format=file_format)
    restrictions = list_restrictions(loaded.model, file_format)
    architectures = read_json(target, "config.json").get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) else None
    if as_json:
        row = {
            "folder": folder,
            "format": file_format,
            "family": loaded.family,
            "architecture": architecture,
            "files": sorted(path.name for path in target.iterdir()),
            "restrictions": restrictions,
        }
        click.echo(json.dumps(row, ensure_ascii=False))
        return
    for message in restrictions:
        click.echo(f"jumok: {message}", err=True)
    if architecture is None:
        click.echo(f"{folder}: {loaded.family}; load it with jumok.load({folder!r})")
    else:
        click.echo(f"{folder}: load it with transformers.{architecture}.from_pretrained({folder!r})")


def _print_messages(messages: list[str]) -> None:
    for message in messages:
        click.echo(f"jumok: {message}", err=True)


def _print_answer(task: str, answer: list[Any]) -> None:
    if task == "fill":
        for number, candidates in enumerate(answer, start=1):
            if len(answer) > 1:
                click.echo(f"masked position {number}")
            for row in candidates:
                click.echo(f"{row['share']:6.3f}  {row['token']}")
    elif task == "embed":
        numbers = " ".join(f"{number:.4f}" for number in answer[:NUMBERS_SHOWN])
        click.echo(f"{len(answer)} numbers: {numbers} ... (--json prints all)")
    elif task == "classify":
        for row in answer[:CLASSES_SHOWN]:
            click.echo(f"{row['share']:6.3f}  {_name_class(row)}")
    else:  # score and predict
        click.echo(" ".join(f"{number:g}" for number in answer))


def _name_class(row: dict[str, Any]) -> str:
    """Return a class's name, or its number. Names come from a file, so control characters are removed."""
    if row["name"] is None:
        return f"class {row['class']}"
    return "".join(letter if letter.isprintable() else " " for letter in row["name"])
