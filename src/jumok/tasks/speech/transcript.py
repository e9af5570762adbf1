"""What a transcription returns: segments and words with times, also as subtitles; and its settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from jumok import defaults
from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.errors import ArgumentError

MAX_BEAMS = 64  # each takes as long as a text of its own
SAMPLING_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
# Above the -1 that Whisper samples at: its texts for Korean speech begin at -0.8 (bench/audio/foreign_speech.py).
DOUBTFUL_LOG_PROBABILITY = -0.75
GREATEST_COMPRESSION = 2.4
VTT_HEADER = "WEBVTT\n\n"


@dataclass(frozen=True)
class TranscriptionSettings:
    """The settings of a transcription. The thresholds are those of Whisper (Radford et al. 2022, section 4.5).

    A window of audio is first decoded greedily. If its text is improbable or repeats itself, it is decoded again with
    sampling at higher and higher temperatures. If no attempt is better, the most probable text is kept.
    """

    language: str | None = None  # of the speech, such as "ko"; None detects it, or uses the model's only one
    task: str = "transcribe"  # or "translate" into English
    timestamps: bool | None = None  # the model writes times, which divide the text into segments; None = if it can
    beams: int = defaults.BEAMS  # of beam search; 1 = greedy
    temperatures: tuple[float, ...] = SAMPLING_TEMPERATURES  # of further attempts; () for none
    least_log_probability: float | None = -1.0  # a text whose tokens have a smaller average is decoded again
    greatest_compression: float | None = GREATEST_COMPRESSION  # a text that zlib compresses more repeats itself: again
    greatest_no_speech: float | None = 0.6  # a window with a larger probability, and an improbable text, is silent
    # whatever its text; the paper has no such rule, and Whisper writes a probable "you" for silence (test_silence.py)
    certain_no_speech: float | None = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.task not in ("transcribe", "translate"):
            raise ArgumentError(f'unknown task {self.task!r}; choose "transcribe" or "translate"')
        if not isinstance(self.beams, int) or not 1 <= self.beams <= MAX_BEAMS:
            raise ArgumentError(f"beams must be from 1 to {MAX_BEAMS}, not {self.beams!r}")
        if any(temperature <= 0 for temperature in self.temperatures):
            raise ArgumentError(f"temperatures must be above 0, not {self.temperatures}")


def parse_transcription_settings(options: Mapping[str, Any]) -> TranscriptionSettings:
    """Return the settings that options by name describe, fields of ``TranscriptionSettings``.

    >>> parse_transcription_settings({"beams": 5}).beams
    5
    """
    names = [field.name for field in fields(TranscriptionSettings)]
    for name in options:
        if name not in names:
            raise ArgumentError(f"unknown setting {name!r} of a transcription; choose from {', '.join(names)}")
    return TranscriptionSettings(**options)


@dataclass(frozen=True)
class Segment:
    """A piece of a transcript, usually a sentence or a part of one."""

    start: float  # in seconds
    end: float
    text: str  # a space at its beginning separates it from the segment before
    token_ids: tuple[int, ...]  # without special tokens
    window: float  # where the window of audio that the model read begins, in seconds
    log_probability: float  # the average over the tokens of the window
    compression: float  # the factor by which zlib compresses the text of the window
    no_speech: float | None  # the model's probability that there is no speech in the window, if it gives one
    temperature: float  # at which the window was decoded; 0 for the most probable tokens

    @property
    def is_doubtful(self) -> bool:
        """Whether the text of the window is improbable or repeats itself, or its most probable text did."""
        return (
            self.log_probability < DOUBTFUL_LOG_PROBABILITY
            or self.compression > GREATEST_COMPRESSION
            or self.temperature > 0
        )

    def to_json(self) -> dict[str, Any]:
        """Return the segment as a dictionary for JSON."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "token_ids"}
        rounded = {name: round(entry, 4) if isinstance(entry, float) else entry for name, entry in content.items()}
        return {**rounded, "token_ids": list(self.token_ids)}


@dataclass(frozen=True)
class Word:
    """A word of a transcript with its time.

    ``rows`` are the decoder's rows that write its tokens, if it reads the transcript of the window without times: each
    row writes the token after the one that it read.
    """

    text: str  # with its punctuation, without spaces around it
    start: float  # in seconds; from the cross-attention
    end: float  # when the next word begins, or the audio becomes quiet
    token_ids: tuple[int, ...]  # those of all words of a segment are the segment's
    probability: float  # the geometric mean over its tokens
    segment: int
    rows: range

    def to_json(self) -> dict[str, Any]:
        """Return the word as a dictionary for JSON."""
        content: dict[str, Any] = {"text": self.text, "start": round(self.start, 3), "end": round(self.end, 3)}
        return {**content, "probability": round(self.probability, 4), "segment": self.segment}


Cue = Segment | Word  # a text with its time


@dataclass(frozen=True)
class Transcript:
    """The text of a recording."""

    segments: tuple[Segment, ...]
    language: str | None  # its code; None if the model has only one
    duration: float  # of the audio, in seconds
    warning: str | None = None  # a sentence that says that the audio may be in a language that the model does not know

    @property
    def text(self) -> str:
        """The whole text; "" if there is no speech."""
        return "".join(segment.text for segment in self.segments).strip()


def describe_foreign_speech(tokens: SpeechTokens, segments: Sequence[Segment]) -> str | None:
    """Return a sentence if an English-only model may have heard another language; or None.

    Such a model writes English words for any speech. If most windows are doubtful, the audio may be in another
    language, or hard to understand. Whisper's English models have times, but no languages.
    """
    if tokens.languages or tokens.no_timestamps is None:
        return None
    windows = {segment.window: segment for segment in segments}.values()
    doubtful = [segment for segment in windows if segment.is_doubtful]
    if 2 * len(doubtful) <= len(windows) or not doubtful:
        return None
    log_probability = sum(segment.log_probability for segment in windows) / len(windows)
    return (
        f"this model knows English only, and its text is improbable or repeats itself ({log_probability:.2f} nats per "
        "token): the audio may be in another language (whisper-base of the catalogue knows 99)"
    )


def format_srt(cues: Iterable[Cue]) -> Iterator[str]:
    """Yield SubRip subtitles (.srt), one block for each cue."""
    for number, cue in enumerate(cues, start=1):
        times = f"{format_time(cue.start, ',')} --> {format_time(cue.end, ',')}"
        yield f"{number}\n{times}\n{_clean(cue.text)}\n\n"


def format_vtt(cues: Iterable[Cue]) -> Iterator[str]:
    """Yield WebVTT subtitles (.vtt): a header, then one block for each cue."""
    yield VTT_HEADER
    for cue in cues:
        text = _clean(cue.text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        yield f"{format_time(cue.start, '.')} --> {format_time(cue.end, '.')}\n{text}\n\n"


def format_time(seconds: float, separator: str) -> str:
    """Return a time as hours:minutes:seconds with milliseconds, after "," in SubRip and "." in WebVTT.

    >>> format_time(3725.5, ",")
    '01:02:05,500'
    """
    seconds, milliseconds = divmod(round(seconds * 1000), 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{separator}{milliseconds:03}"


def _clean(text: str) -> str:
    """Return a text on one line: an empty line or an arrow would end the cue."""
    return " ".join(text.split()).replace("-->", "->")
