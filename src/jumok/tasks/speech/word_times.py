"""When each word of a transcript was spoken, from the cross-attention: a head that listens in time reads, for each
token, the moment of the audio at which its word begins.

    one forward pass of the decoder with the text -> weights of the timing heads, [token, 20 ms of audio], averaged
        -> a row for a pause before each word -> dynamic time warping -> the start of each word

The weights are used as they are: measured by ``bench/word_times.py``, neither normalising them over tokens nor a median
filter over time reduces the error, but rows for pauses do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.audio.log_mel import FRAMES_PER_SECOND, HOP, RATE
from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.errors import ArgumentError
from jumok.lens import Edit, Lens
from jumok.models.speech import FRAMES_PER_POSITION, Speech

from .spoken_words import WordTokens, group_spoken_words
from .time_warping import find_row_starts
from .transcribe import compute_features
from .transcript import Segment, Transcript

POSITIONS_PER_SECOND = FRAMES_PER_SECOND // FRAMES_PER_POSITION  # 50: one each 20 ms
SAMPLES_PER_POSITION = HOP * FRAMES_PER_POSITION

# A moment that no token gives a larger weight belongs to a pause.
PAUSE_WEIGHT = 0.02

# A word lasts until the next word, or until the audio is quiet for a while: at most 20% of the way from quiet to loud.
QUIET_POSITIONS = 5  # 100 ms; the closure of a plosive is shorter
QUIET_LEVEL = 0.2
QUIET_QUANTILE, LOUD_QUANTILE = 0.1, 0.9  # of the loudness of a window

Heads = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Word:
    """A word of a transcript with its time.

    Args:
        text: The word with its punctuation, without spaces around it.
        start: When it begins, in seconds; from the cross-attention.
        end: When it ends, in seconds: when the next word begins, or the audio becomes quiet.
        token_ids: Its tokens. Those of all words of a segment are the segment's.
        probability: The model's probability of a token of this word: the geometric mean over its tokens.
        segment: The number of its segment in the transcript.
    """

    text: str
    start: float
    end: float
    token_ids: tuple[int, ...]
    probability: float
    segment: int

    def to_json(self) -> dict[str, Any]:
        """Return the word as a dictionary for JSON."""
        content: dict[str, Any] = {"text": self.text, "start": round(self.start, 3), "end": round(self.end, 3)}
        return {**content, "probability": round(self.probability, 4), "segment": self.segment}


def find_word_times(
    loaded: Loaded,
    samples: Float[Tensor, " sample"],
    transcript: Transcript,
    *,
    heads: Heads | None = None,
    edits: Edit | Sequence[Edit] = (),
) -> list[Word]:
    """Return the words of a transcript with their times.

    Args:
        loaded: The speech model that made the transcript.
        samples: The audio that was transcribed, mono, at 16,000 samples per second.
        transcript: The transcript.
        heads: The cross-attention heads to use, as (decoder block, head). Default: those that the model's folder names
            as timing heads, or all.
        edits: Edits of the forward pass that reads the text.

    Returns:
        All words in order. No word begins before the one before it, and none lies outside the audio.

    Raises:
        ArgumentError: If the model does not transcribe audio, a head does not exist, or the transcript is of another
            recording.
    """
    model, speech_tokens = loaded.model, loaded.speech_tokens
    if not isinstance(model, Speech) or speech_tokens is None:
        raise ArgumentError(f"this {loaded.family} model reads {loaded.model.reads}; it has no words with times")
    if abs(transcript.duration - len(samples) / RATE) > 1 / POSITIONS_PER_SECOND:
        raise ArgumentError(
            f"the transcript is of {transcript.duration:.2f} s of audio, but {len(samples) / RATE:.2f} s are given"
        )
    selected = _select_heads(model, speech_tokens, heads)
    if not transcript.segments:
        return []

    features = compute_features(samples, model).to(model.device)
    windows = [list(window) for _, window in groupby(enumerate(transcript.segments), lambda pair: pair[1].window)]
    starts = [segments[0][1].window for segments in windows]
    words: list[Word] = []
    with Lens(loaded) as lens:
        for segments, start, stop in zip(windows, starts, [*starts[1:], transcript.duration], strict=True):
            window = _Window.prepare(features, start, stop, model)
            words += _find_times_in_window(lens, window, segments, selected, edits, transcript)
    return words


@dataclass(frozen=True)
class _Window:
    """The audio that the model reads at once.

    Args:
        features: Its log-mel spectrogram, a batch of one.
        start: Where it begins, in seconds.
        positions: The number of positions of 20 ms in which words may begin.
    """

    features: Tensor
    start: float
    positions: int

    @classmethod
    def prepare(cls, features: Tensor, start: float, stop: float, model: Speech) -> _Window:
        """Cut a window out of the spectrogram of the recording; ``stop`` is where the next one begins."""
        first, length = round(start * FRAMES_PER_SECOND), model.config.frame_count
        window = features[:, first : first + length]
        window = functional.pad(window, (0, length - window.shape[1]))[None]
        samples = round((stop - start) * RATE)
        return cls(window, start, max(1, min(model.config.source_length, -(-samples // SAMPLES_PER_POSITION))))

    def compute_loudness(self) -> Float[Tensor, " position"]:
        """Return the mean of the log-mel bands in each position."""
        frames = self.features[0, :, : FRAMES_PER_POSITION * self.positions].mean(0)
        return frames.unflatten(0, (-1, FRAMES_PER_POSITION)).mean(1)


def _select_heads(model: Speech, speech_tokens: SpeechTokens, heads: Heads | None) -> Heads:
    """Return the heads to use, and check that they exist."""
    blocks, count = model.config.decoder_layers, model.config.decoder_heads
    every = [(block, head) for block in range(blocks) for head in range(count)]
    selected = (speech_tokens.timing_heads or every) if heads is None else heads
    unknown = [head for head in selected if tuple(head) not in every]
    if unknown or not selected:
        reason = f"{tuple(unknown[0])} does not exist" if unknown else "none are given"
        raise ArgumentError(
            f"the timing heads are pairs (decoder block, head) from (0, 0) to ({blocks - 1}, {count - 1}); {reason}"
        )
    return selected


def _find_times_in_window(
    lens: Lens,
    window: _Window,
    segments: list[tuple[int, Segment]],
    heads: Heads,
    edits: Edit | Sequence[Edit],
    transcript: Transcript,
) -> list[Word]:
    """Return the words of the segments that the model wrote for one window."""
    loaded = lens.loaded
    assert isinstance(loaded, Loaded) and loaded.speech_tokens is not None
    prompt = loaded.speech_tokens.build_prompt(transcript.language, timestamps=False)
    ids = [token_id for _, segment in segments for token_id in segment.token_ids]
    capture = lens.run(window.features, [*prompt, *ids], edits=edits, logits=True)

    # The token at position i is chosen by the query at position i - 1, which is the one that listens to it.
    queries, keys = slice(len(prompt) - 1, len(prompt) - 1 + len(ids)), slice(0, window.positions)
    weights = torch.stack([capture.tile(f"decoder.{block}.cross", head, queries, keys) for block, head in heads])
    chosen = capture.logits[0, queries].float().log_softmax(-1)[range(len(ids)), ids]

    spans: list[tuple[int, WordTokens]] = []
    for number, segment in segments:
        offset = spans[-1][1].stop if spans else 0
        for word in group_spoken_words(loaded.require_tokenizer(), segment.token_ids, transcript.language):
            positions = (offset + position for position in word[1:])
            spans.append((number, WordTokens(word.text, *positions)))
    starts, last_heard = align_words(weights.float().mean(0), [word for _, word in spans])
    ends = _find_ends(window.compute_loudness().cpu(), starts, last_heard)

    words: list[Word] = []
    for (number, word), first, last in zip(spans, starts, ends, strict=True):
        start = round(window.start + first / POSITIONS_PER_SECOND, 2)
        end = min(round(window.start + last / POSITIONS_PER_SECOND, 2), transcript.duration)
        probability = float(chosen[word.start : word.stop].mean().exp())
        words.append(Word(word.text, start, end, tuple(ids[word.start : word.stop]), probability, number))
    return words


def align_words(weights: Float[Tensor, "token position"], words: Sequence[WordTokens]) -> tuple[list[int], list[int]]:
    """Return the position of the audio at which each word begins, and the one at which the attention leaves it.

    Args:
        weights: The weights of the query that chooses each token, averaged over heads.
        words: The words; together they have all tokens, in order.
    """
    pause = weights.new_full((weights.shape[1],), PAUSE_WEIGHT)
    rows: list[Tensor] = []
    first_rows: list[int] = []
    next_rows: list[int] = []  # the row after the last spoken token: punctuation or a pause
    for word in words:
        rows.append(pause)
        first_rows.append(len(rows))
        next_rows.append(len(rows) + word.spoken_stop - word.start)
        rows += list(weights[word.start : word.stop])
    starts = find_row_starts(torch.stack([*rows, pause]))
    return [starts[row] for row in first_rows], [starts[row] for row in next_rows]


def _find_ends(loudness: Float[Tensor, " position"], starts: list[int], last_heard: list[int]) -> list[int]:
    """Return the position at which each word ends: the next word begins, or the audio stays quiet after the attention
    has left the word. Heads that listen to the beginning of a word leave it early."""
    quiet, loud = loudness.quantile(torch.tensor([QUIET_QUANTILE, LOUD_QUANTILE])).tolist()
    is_quiet = (loudness <= quiet + QUIET_LEVEL * (loud - quiet)).tolist()
    ends: list[int] = []
    for start, heard, following in zip(starts, last_heard, [*starts[1:], len(is_quiet)], strict=True):
        end = heard
        while end < following and not all(is_quiet[end : end + QUIET_POSITIONS]):
            end += 1
        ends.append(max(min(end, following), start + 1))
    return ends
