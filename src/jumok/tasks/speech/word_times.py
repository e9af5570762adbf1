"""When each word of a transcript was spoken, from the cross-attention: a head that listens in time reads, for each
token, the moment of the audio at which its word begins.

    one forward pass of the decoder with the text -> weights of the timing heads, [token, 20 ms of audio], averaged
        -> a row for a pause before each word -> dynamic time warping -> the start of each word

The weights are used as they are: measured by ``bench/audio/word_times.py``, neither normalising them over tokens nor a
median filter over time reduces the error, but rows for pauses do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.lens import Edit
from jumok.models.speech import Speech

from .audio_window import POSITIONS_PER_SECOND
from .spoken_words import WordTokens
from .time_warping import find_row_starts
from .transcript import Transcript
from .word_weights import Heads, WindowWeights, read_word_weights

# A moment that no token gives a larger weight belongs to a pause.
PAUSE_WEIGHT = 0.02

# A word lasts until the next word, or until the audio is quiet for a while: at most 20% of the way from quiet to loud.
QUIET_POSITIONS = 5  # 100 ms; the closure of a plosive is shorter
QUIET_LEVEL = 0.2
QUIET_QUANTILE, LOUD_QUANTILE = 0.1, 0.9  # of the loudness of a window


@dataclass(frozen=True)
class Word:
    """A word of a transcript with its time.

    Args:
        text: The word with its punctuation, without spaces around it.
        start: When it begins, in seconds; from the cross-attention.
        end: When it ends, in seconds: when the next word begins, or the audio becomes quiet.
        token_ids: Its tokens. Those of all words of a segment are the segment's.
        probability: The model's probability of a token of this word: the geometric mean over its tokens.
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
        heads: The cross-attention heads to use, as (decoder block, head). Default: those that the model's folder names
            as timing heads, or all.
        edits: Edits of the forward pass that reads the text.

    Returns:
        All words in order. No word begins before the one before it, and none lies outside the audio.

    Raises:
        ArgumentError: If the model does not transcribe audio, a head does not exist, or the transcript is of another
            recording.
    """
    windows = read_word_weights(loaded, samples, transcript, _select_heads(loaded, heads), edits)
    return [word for window in windows for word in _locate_words(window, transcript.duration)]


def align_words(
    weights: Float[Tensor, "token position"], words: Sequence[WordTokens], *, pauses: bool = True
) -> tuple[list[int], list[int]]:
    """Return the position of the audio at which each word begins, and the one at which the attention leaves it.

    Args:
        weights: The weights of the query that chooses each token, averaged over heads.
        pauses: Whether a pause may come before a word. Without pauses, silence becomes a part of a word.
    """
    rows: list[Tensor] = []
    first_rows: list[int] = []
    next_rows: list[int] = []  # the row after the last spoken token: punctuation, a pause or the next word
    pause = [weights.new_full((weights.shape[1],), PAUSE_WEIGHT)] if pauses else []
    for word in words:
        rows += pause
        first_rows.append(len(rows))
        next_rows.append(len(rows) + word.spoken_stop - word.start)
        rows += list(weights[word.start : word.stop])
    row_starts = find_row_starts(torch.stack([*rows, *pause]))
    row_starts.append(weights.shape[1])  # after the last row
    return [row_starts[row] for row in first_rows], [row_starts[row] for row in next_rows]


def _select_heads(loaded: Loaded, heads: Heads | None) -> Heads:
    if heads is not None or not isinstance(loaded.model, Speech) or loaded.speech_tokens is None:
        return heads or ()
    config = loaded.model.config
    every = [(block, head) for block in range(config.decoder_layers) for head in range(config.decoder_heads)]
    return loaded.speech_tokens.timing_heads or every


def _locate_words(window: WindowWeights, duration: float) -> list[Word]:
    """Return the words of a window with their times; the audio has ``duration`` seconds."""
    starts, attention_ends = align_words(window.weights.mean(0), window.words)
    ends = _find_ends(window.loudness, starts, attention_ends)
    words: list[Word] = []
    for word, segment, first, last in zip(window.words, window.segments, starts, ends, strict=True):
        start = round(window.start + first / POSITIONS_PER_SECOND, 2)
        end = min(round(window.start + last / POSITIONS_PER_SECOND, 2), duration)
        probability = float(window.log_probabilities[word.start : word.stop].mean().exp())
        token_ids = window.token_ids[word.start : word.stop]
        words.append(Word(word.text, start, end, token_ids, probability, segment))
    return words


def _find_ends(loudness: Float[Tensor, " position"], starts: list[int], attention_ends: list[int]) -> list[int]:
    """Return the position at which each word ends: the next word begins, or the audio stays quiet after the attention
    has left the word. Heads that listen to the beginning of a word leave it early."""
    quiet, loud = loudness.quantile(torch.tensor([QUIET_QUANTILE, LOUD_QUANTILE])).tolist()
    is_quiet = (loudness <= quiet + QUIET_LEVEL * (loud - quiet)).tolist()
    ends: list[int] = []
    for start, attention_end, following in zip(starts, attention_ends, [*starts[1:], len(is_quiet)], strict=True):
        end = attention_end
        while end < following and not all(is_quiet[end : end + QUIET_POSITIONS]):
            end += 1
        ends.append(max(min(end, following), start + 1))
    return ends
