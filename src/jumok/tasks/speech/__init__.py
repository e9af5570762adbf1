"""Speech to text: transcribe audio of any length in windows, with times, and write subtitles."""

from .transcribe import transcribe, transcribe_segments
from .transcript import (
    Segment,
    Transcript,
    TranscriptionSettings,
    Word,
    describe_foreign_speech,
    parse_transcription_settings,
)
from .word_times import find_word_times

__all__ = [
    "Segment",
    "Transcript",
    "TranscriptionSettings",
    "Word",
    "describe_foreign_speech",
    "find_word_times",
    "parse_transcription_settings",
    "transcribe",
    "transcribe_segments",
]
