"""Transcribe audio of any length: windows of 30 seconds, each beginning where the text of the last one ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.audio.log_mel import FRAMES_PER_SECOND, HOP, RATE, WINDOW
from jumok.errors import ArgumentError, describe_type
from jumok.models.speech import FRAMES_PER_POSITION

from .audio_window import compute_features, cut_features, read_samples, require_speech
from .transcript import Segment, Transcript, TranscriptionSettings, describe_foreign_speech
from .window_decoding import TokenRules, WindowText, decode_window, detect_language

SecondsProgress = Callable[[float, float], None]  # seconds transcribed, seconds in all


def transcribe(
    loaded: Loaded,
    samples: Float[Tensor, " sample"],
    settings: TranscriptionSettings | None = None,
    progress: SecondsProgress | None = None,
) -> Transcript:
    """Return the transcript of a recording.

    Args:
        loaded: A speech model with its tokenizer.
        samples: The audio, mono, at 16,000 samples per second; ``jumok.data.audio.audio_files.read_audio`` reads files.
        progress: Called after each window with the seconds that are done and the seconds in all.
    """
    transcription = _Transcription(loaded, samples, settings)
    segments = tuple(transcription.run(progress))
    warning = describe_foreign_speech(transcription.tokens, segments)
    return Transcript(segments, transcription.language, transcription.duration, warning)


def transcribe_segments(
    loaded: Loaded,
    samples: Float[Tensor, " sample"],
    settings: TranscriptionSettings | None = None,
    progress: SecondsProgress | None = None,
) -> Iterator[Segment]:
    """Yield the segments of a transcript, as ``transcribe`` returns it, as soon as their window is decoded."""
    return _Transcription(loaded, samples, settings).run(progress)


class _Transcription:
    """Transcribes a recording window by window."""

    def __init__(self, loaded: Loaded, samples: Tensor, settings: TranscriptionSettings | None) -> None:
        settings = TranscriptionSettings() if settings is None else settings
        if not isinstance(loaded, Loaded):
            raise ArgumentError(f"pass what jumok.load(...) returned, not {describe_type(loaded)}")
        if not isinstance(settings, TranscriptionSettings):
            raise ArgumentError(f"settings must be TranscriptionSettings(...), not {describe_type(settings)}")
        if not isinstance(samples, Tensor):
            raise ArgumentError(
                f"audio must be a tensor of samples at 16,000 per second, not {describe_type(samples)}; "
                "jumok.data.audio.audio_files.read_audio reads a file"
            )
        self.loaded, self.settings, self.language = loaded, settings, settings.language
        self.model, self.tokens = require_speech(loaded)
        self.tokenizer = loaded.require_tokenizer()
        samples = read_samples(samples)
        if len(samples) <= WINDOW // 2:
            raise ArgumentError(f"the audio is too short: {len(samples)} samples, {1000 * len(samples) / RATE:.0f} ms")
        self.duration = len(samples) / RATE
        self.timestamps = self.tokens.first_time is not None if settings.timestamps is None else settings.timestamps
        if not self.tokens.languages or self.language is not None:
            self._build_prompt()  # raises if it does not fit
        self.features = compute_features(samples, self.model).to(self.model.device)  # may be padded
        self.frame_count = min(self.features.shape[1], -(-len(samples) // HOP))  # frames of the recording

    def _build_prompt(self) -> list[int]:
        return self.tokens.build_prompt(self.language, task=self.settings.task, timestamps=self.timestamps)

    def run(self, progress: SecondsProgress | None) -> Iterator[Segment]:
        """Decode window after window."""
        rules = TokenRules(self.tokens, self.timestamps, self.model.config.vocabulary, self.model.device)
        seek = 0
        while seek < self.frame_count:
            with torch.inference_mode():
                window = cut_features(self.features, seek, self.model.config.frame_count)
                encoded = self.model.encode(window[None])
                if self.tokens.languages and self.language is None:
                    self.language = detect_language(self.model, encoded, self.tokens)
                text = decode_window(self.loaded, encoded, self._build_prompt(), rules, self.settings)
            segments, advance = self._split_segments(text, seek)
            yield from segments
            seek += advance
            if progress is not None:
                progress(min(seek, self.frame_count) / FRAMES_PER_SECOND, self.frame_count / FRAMES_PER_SECOND)

    def _split_segments(self, text: WindowText, seek: int) -> tuple[list[Segment], int]:
        """Return the segments of a window, and by how many frames to go on.

        A text that ends with one time is complete. After two times, the second of which begins a segment that the
        window cut off, the next window begins there.
        """
        window_frames = min(self.frame_count - seek, self.model.config.frame_count)
        if text.is_silent:
            return [], window_frames
        tokens = text.token_ids
        is_time = [self.tokens.time_of(token) is not None for token in tokens]
        cuts = [index + 1 for index in range(len(tokens) - 1) if is_time[index] and is_time[index + 1]]
        if not cuts or not self.timestamps:
            segment = self._build_segment(tokens, text, seek, window_frames)
            return ([] if segment is None else [segment]), window_frames

        is_complete = is_time[-2:] == [False, True]
        pieces = [tokens[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(tokens)], strict=True)]
        if not is_complete:
            pieces.pop()  # the window ends in the middle of this segment
        segments = [self._build_segment(piece, text, seek, window_frames) for piece in pieces]
        advance = window_frames
        if not is_complete:
            time = self.tokens.time_of(tokens[cuts[-1] - 1])
            assert time is not None
            advance = round(time * FRAMES_PER_SECOND)
        return [segment for segment in segments if segment is not None], max(advance, FRAMES_PER_POSITION)

    def _build_segment(
        self, tokens: tuple[int, ...], text: WindowText, seek: int, window_frames: int
    ) -> Segment | None:
        """Return a segment; None if it contains no text."""
        window = seek / FRAMES_PER_SECOND
        times = [time for time in map(self.tokens.time_of, tokens) if time is not None]
        words = tuple(token for token in tokens if self.tokens.time_of(token) is None)
        content = self.tokenizer.decode(words, special=False)
        if not any(letter.isalnum() for letter in content):  # Whisper writes "." for a hum
            return None
        length = window_frames / FRAMES_PER_SECOND
        has_start = self.tokens.time_of(tokens[0]) is not None
        start = times[0] if has_start else 0.0
        end = times[-1] if times and times[-1] > start else length
        return Segment(
            start=round(window + start, 2),
            end=round(window + min(end, max(length, start)), 2),
            text=content,
            token_ids=words,
            window=window,
            log_probability=text.log_probability,
            compression=text.compression,
            no_speech=text.no_speech,
            temperature=text.temperature,
        )
