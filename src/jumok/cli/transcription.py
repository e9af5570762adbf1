"""Print transcripts for ``jumok run``: text as it is decoded, JSON, or subtitles."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from .command import show_progress

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded
    from jumok.tasks.speech import Segment, TranscriptionSettings

#: options of ``jumok run`` that only a model of audio understands, with their names on the command line
AUDIO_OPTIONS = {
    "language": "--language",
    "translate": "--translate",
    "srt": "--srt",
    "vtt": "--vtt",
    "words": "--words",
}


def refuse_audio_options(options: dict[str, Any], family: str) -> None:
    """Raise an error if an option for audio was given to another model."""
    from jumok.errors import ArgumentError

    for name, option in AUDIO_OPTIONS.items():
        if name in options:
            raise ArgumentError(f"{option} is for models that transcribe audio; this {family} model does not")


def print_transcripts(loaded: Loaded, paths: list[str], options: dict[str, Any], as_json: bool) -> None:
    """Transcribe audio files and print the result."""
    from jumok.errors import ArgumentError
    from jumok.tasks.speech import parse_transcription_settings
    from jumok.tasks.speech.audio_window import read_samples

    options = dict(options)
    output = _choose_format(options, as_json)
    words = options.pop("words", False)
    if words and output == "text":
        raise ArgumentError("--words needs an output with times: --json, --srt or --vtt")
    if options.pop("translate", False):
        options["task"] = "translate"
    for name in options:
        if name not in ("language", "task", "beams"):
            raise ArgumentError(
                f"--{name.removesuffix('s') if name == 'stops' else name.replace('_', '-')} is not for audio; a "
                "transcription takes --language, --translate, --beams, --words, --srt, --vtt and --json"
            )
    settings = parse_transcription_settings(options)
    if output in ("srt", "vtt") and len(paths) > 1:
        raise ArgumentError(f"--{output} writes the subtitles of one file; give one file at a time")

    for path in paths:
        samples = read_samples(path)
        if output == "text":
            _print_text(loaded, path if len(paths) > 1 else None, samples, settings)
        elif output == "json":
            _print_json(loaded, path, samples, settings, words)
        else:
            _print_subtitles(loaded, samples, settings, words, output)


def _choose_format(options: dict[str, Any], as_json: bool) -> str:
    """Return the format of the output, and remove its option."""
    from jumok.errors import ArgumentError

    chosen = [name for name in ("srt", "vtt") if options.pop(name, False)] + (["json"] if as_json else [])
    if len(chosen) > 1:
        raise ArgumentError(f"choose one of {', '.join('--' + name for name in chosen)}")
    return chosen[0] if chosen else "text"


def _print_text(loaded: Loaded, title: str | None, samples: Any, settings: TranscriptionSettings) -> None:
    """Print each segment as soon as it is decoded, on a line of its own."""
    from jumok.tasks.speech import transcribe_segments

    if title is not None:
        click.echo(f"{title}:")
    segments = []
    for segment in transcribe_segments(loaded, samples, settings):
        click.echo(segment.text.strip())
        sys.stdout.flush()
        segments.append(segment)
    if not segments:
        click.echo("jumok: no speech was found", err=True)
    _print_warning(loaded, segments)


def _print_warning(loaded: Loaded, segments: list[Segment]) -> None:
    from jumok.tasks.speech import describe_foreign_speech

    if loaded.speech_tokens is not None and (message := describe_foreign_speech(loaded.speech_tokens, segments)):
        click.echo(f"jumok: {message}", err=True)


def _print_json(loaded: Loaded, path: str, samples: Any, settings: TranscriptionSettings, words: bool) -> None:
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
    click.echo(json.dumps(row, ensure_ascii=False))
    if transcript.warning is not None:
        click.echo(f"jumok: {transcript.warning}", err=True)


def _print_subtitles(loaded: Loaded, samples: Any, settings: TranscriptionSettings, words: bool, output: str) -> None:
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
    for block in format_srt(cues) if output == "srt" else format_vtt(cues):
        click.echo(block, nl=False)
        sys.stdout.flush()
    _print_warning(loaded, segments)


def _collect(stream: Iterator[Segment], segments: list[Segment]) -> Iterator[Segment]:
    """Yield segments, and keep them in a list."""
    for segment in stream:
        segments.append(segment)
        yield segment
