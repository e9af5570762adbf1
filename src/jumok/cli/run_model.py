"""The command ``jumok run``: run a model on its task, and print its answer, transcript or subtitles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from jumok import defaults
from jumok.bilingual_text import Text, Texts

from .arguments import read_arguments, read_if_text_file
from .command import json_option, list_given_options, show_progress
from .command_output import CommandOutput
from .help import Command

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded
    from jumok.tasks.speech import Segment, TranscriptionSettings

TEXTS = Texts(__file__)
CLASSES_SHOWN = 5
NUMBERS_SHOWN = 8
AUDIO_OPTIONS = ("spoken", "translate", "srt", "vtt", "words")  # only a model of audio understands them


@click.command(cls=Command)
@click.argument("model")
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@click.option("--limit", default=defaults.NEW_TOKENS, show_default=True, type=click.IntRange(1))
@click.option("--temperature", type=click.FloatRange(0))
@click.option("--top-k", type=click.IntRange(1))
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True))
@click.option("--min-p", type=click.FloatRange(0, 1, min_open=True))
@click.option("--repetition", type=click.FloatRange(0, min_open=True))
@click.option("--seed", type=click.IntRange(0))
@click.option("--beams", default=defaults.BEAMS, show_default=True, type=click.IntRange(1))
@click.option("--stop", "stops", multiple=True, metavar="TEXT")
@click.option("--chat", is_flag=True)
@click.option("--spoken", metavar="CODE")
@click.option("--translate", is_flag=True)
@click.option("--srt", is_flag=True)
@click.option("--vtt", is_flag=True)
@click.option("--words", is_flag=True)
@json_option
@click.pass_context
def run(context: click.Context, /, model: str, inputs: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """The command ``jumok run``."""
    texts = read_arguments(inputs)

    from jumok.checkpoint import load
    from jumok.tasks import parse_settings, read_input, run_task, stream_answer

    output = CommandOutput(as_json)
    loaded = load(model)
    reads, task = loaded.model.reads, loaded.model.task
    chosen_options = {name: options[name] for name in list_given_options(context) if name in options}
    if reads == "audio":
        _print_transcripts(loaded, texts, chosen_options, output)
        return
    _refuse_audio_options(chosen_options, loaded.family)
    settings = parse_settings(loaded, chosen_options)
    if reads in ("text", "numbers"):
        texts = [read_if_text_file(text) for text in texts]
    if reads == "numbers" and all("," not in text for text in texts):
        texts = [",".join(texts)]  # "10 20 30", written without commas, is one sequence

    for text in texts:
        model_input = read_input(loaded, text, chat=settings.chat)
        if model_input.warning is not None:
            output.warn(model_input.warning)
        if reads in ("image", "regions") and len(texts) > 1 and not as_json:
            output.print(f"{text}:")

        messages: list[str] = []  # printed after the text, which may still be on an unfinished line
        if loaded.model.answers == "text" and not as_json:
            for piece in stream_answer(loaded, model_input, settings, messages.append):
                click.echo(piece, nl=False)
            output.print()
            for message in messages:
                output.warn(message)
            continue

        answer = run_task(loaded, [model_input], settings, output.warn)[0]
        if task == "embed":
            answer = answer.tolist()
        if as_json:
            key = "output" if loaded.model.answers == "text" else task
            row = {"input": text, key: answer}
            if model_input.unknown_words:
                row["unknown_words"] = list(model_input.unknown_words)
            output.print_json(row)
        else:
            _print_answer(task, answer, output)


def _print_answer(task: str, answer: list[Any], output: CommandOutput) -> None:
    if task == "fill":
        for number, candidates in enumerate(answer, start=1):
            if len(answer) > 1:
                output.print(TEXTS("masked_position", number=number))
            for row in candidates:
                output.print(f"{row['share']:6.3f}  {row['token']}")
    elif task == "embed":
        numbers = " ".join(f"{number:.4f}" for number in answer[:NUMBERS_SHOWN])
        output.print(TEXTS("embedding", count=len(answer), numbers=numbers))
    elif task == "classify":
        for row in answer[:CLASSES_SHOWN]:
            output.print(f"{row['share']:6.3f}  {output.select(_name_class(row))}")
    else:  # score and predict
        output.print(" ".join(f"{number:g}" for number in answer))


def _name_class(row: dict[str, Any]) -> str | Text:
    """Return a class's name, or its number. Names come from a file, so control characters are removed."""
    if row["name"] is None:
        return TEXTS("class", number=row["class"])
    return "".join(letter if letter.isprintable() else " " for letter in row["name"])


def _refuse_audio_options(options: dict[str, Any], family: str) -> None:
    """Raise an error if an option for audio was given to another model."""
    from jumok.errors import ArgumentError

    for name in AUDIO_OPTIONS:
        if name in options:
            raise ArgumentError(f"--{name} is for models that transcribe audio; this {family} model does not")


def _print_transcripts(loaded: Loaded, paths: list[str], options: dict[str, Any], output: CommandOutput) -> None:
    """Transcribe audio files and print the result."""
    from jumok.errors import ArgumentError
    from jumok.tasks.speech import parse_transcription_settings
    from jumok.tasks.speech.audio_window import read_samples

    options = dict(options)
    chosen_format = _choose_format(options, output.as_json)
    words = options.pop("words", False)
    if words and chosen_format == "text":
        raise ArgumentError("--words needs an output with times: --json, --srt or --vtt")
    if "spoken" in options:
        options["language"] = options.pop("spoken")
    if options.pop("translate", False):
        options["task"] = "translate"
    for name in options:
        if name not in ("language", "task", "beams"):
            raise ArgumentError(
                f"--{name.removesuffix('s') if name == 'stops' else name.replace('_', '-')} is not for audio; a "
                "transcription takes --spoken, --translate, --beams, --words, --srt, --vtt and --json"
            )
    settings = parse_transcription_settings(options)
    if chosen_format in ("srt", "vtt") and len(paths) > 1:
        raise ArgumentError(f"--{chosen_format} writes the subtitles of one file; give one file at a time")

    for path in paths:
        samples = read_samples(path)
        if chosen_format == "text":
            if len(paths) > 1:
                output.print(f"{path}:")
            _print_text(loaded, samples, settings, output)
        elif chosen_format == "json":
            _print_json(loaded, path, samples, settings, words, output)
        else:
            _print_subtitles(loaded, samples, settings, words, chosen_format, output)


def _choose_format(options: dict[str, Any], as_json: bool) -> str:
    """Return the format of the output, and remove its option."""
    from jumok.errors import ArgumentError

    chosen = [name for name in ("srt", "vtt") if options.pop(name, False)] + (["json"] if as_json else [])
    if len(chosen) > 1:
        raise ArgumentError(f"choose one of {', '.join('--' + name for name in chosen)}")
    return chosen[0] if chosen else "text"


def _print_text(loaded: Loaded, samples: Any, settings: TranscriptionSettings, output: CommandOutput) -> None:
    """Print each segment as soon as it is decoded, on a line of its own."""
    from jumok.tasks.speech import transcribe_segments

    segments = []
    for segment in transcribe_segments(loaded, samples, settings):
        output.print(segment.text.strip())
        segments.append(segment)
    if not segments:
        output.warn("no speech was found")
    _warn_of_foreign_speech(loaded, segments, output)


def _warn_of_foreign_speech(loaded: Loaded, segments: list[Segment], output: CommandOutput) -> None:
    from jumok.tasks.speech import describe_foreign_speech

    if loaded.speech_tokens is not None and (message := describe_foreign_speech(loaded.speech_tokens, segments)):
        output.warn(message)


def _print_json(
    loaded: Loaded, path: str, samples: Any, settings: TranscriptionSettings, words: bool, output: CommandOutput
) -> None:
    from jumok.tasks.speech import transcribe

    with show_progress("seconds", quiet=False) as bar:
        report = None if bar is None else lambda done, total: bar(int(done), int(total))
        transcript = transcribe(loaded, samples, settings, report)
    row: dict[str, Any] = {
        "input": path,
        "output": transcript.text,
        "language": transcript.language,
        "duration": round(transcript.duration, 3),
        "warning": transcript.warning,
        "segments": [segment.to_json() for segment in transcript.segments],
    }
    if words:
        from jumok.tasks.speech.word_times import find_word_times

        row["words"] = [word.to_json() for word in find_word_times(loaded, samples, transcript)]
    output.print_json(row)
    if transcript.warning is not None:
        output.warn(transcript.warning)


def _print_subtitles(
    loaded: Loaded,
    samples: Any,
    settings: TranscriptionSettings,
    words: bool,
    subtitle_format: str,
    output: CommandOutput,
) -> None:
    """Print each subtitle as soon as it is decoded."""
    from jumok.tasks.speech import Transcript, transcribe, transcribe_segments
    from jumok.tasks.speech.transcript import Cue, format_srt, format_vtt

    cues: Iterator[Cue] | list[Any]
    segments: list[Segment] = []
    if words:
        from jumok.tasks.speech.word_times import find_word_times

        transcript: Transcript = transcribe(loaded, samples, settings)
        cues = find_word_times(loaded, samples, transcript)
        segments.extend(transcript.segments)
    else:
        cues = _collect(transcribe_segments(loaded, samples, settings), segments)
    for block in format_srt(cues) if subtitle_format == "srt" else format_vtt(cues):
        click.echo(block, nl=False)
    _warn_of_foreign_speech(loaded, segments, output)


def _collect(stream: Iterator[Segment], segments: list[Segment]) -> Iterator[Segment]:
    """Yield segments, and keep them in a list."""
    for segment in stream:
        segments.append(segment)
        yield segment
