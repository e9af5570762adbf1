"""Measure the error of word starts: recognised words are matched with the spoken ones, and only matched words count."""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, median

import torch

from jumok.checkpoint import Loaded
from jumok.models.speech import Speech
from jumok.tasks.speech import Transcript, transcribe
from jumok.tasks.speech.audio_window import POSITIONS_PER_SECOND
from jumok.tasks.speech.word_times import Heads, WindowWeights, align_words, read_word_weights

from .timed_speech import TimedSpeech

RESAMPLES = 1000  # of the bootstrap
LARGEST_ERROR = 0.5  # seconds: a larger error counts as this one in a mean
CANDIDATES = 6  # single heads whose 63 combinations are tried


def normalise_word(text: str) -> str:
    """Return a word in lower case without punctuation.

    >>> normalise_word("O'Clock,")
    "o'clock"
    """
    return re.sub(r"[^\w']", "", text.lower())


def match_words(recognised: Sequence[str], spoken: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of the words that two texts share, in order.

    >>> match_words(["The", "fairy", "crosses"], ["the", "ferry", "crosses,"])
    [(0, 0), (2, 2)]
    """
    texts = [normalise_word(word) for word in recognised], [normalise_word(word) for word in spoken]
    blocks = difflib.SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks()
    return [(block.a + index, block.b + index) for block in blocks for index in range(block.size)]


def count_word_errors(recognised: Sequence[str], spoken: Sequence[str]) -> int:
    """Return the number of words to insert, delete and replace to turn one text into the other.

    >>> count_word_errors(["a", "cat", "sat"], ["The", "cat", "sat", "down."])
    2
    """
    texts = [normalise_word(word) for word in recognised], [normalise_word(word) for word in spoken]
    distances = list(range(len(texts[1]) + 1))
    for row, word in enumerate(texts[0], 1):
        diagonal, distances[0] = distances[0], row
        for column, other in enumerate(texts[1], 1):
            cheapest = min(distances[column] + 1, distances[column - 1] + 1, diagonal + (word != other))
            diagonal, distances[column] = distances[column], cheapest
    return distances[-1]


@dataclass(frozen=True, eq=False)
class HeardSpeech:
    """What a model heard, with the weights of all heads of its cross-attention.

    Attributes:
        matches: The positions of shared words: in the transcript, and in the speech; only words with a known start.
    """

    speech: TimedSpeech
    transcript: Transcript
    windows: tuple[WindowWeights, ...]
    matches: tuple[tuple[int, int], ...]

    @classmethod
    def listen(cls, loaded: Loaded, speech: TimedSpeech) -> HeardSpeech:
        """Transcribe audio, and record the weights of all heads in a forward pass with the text."""
        transcript = transcribe(loaded, speech.samples)
        windows = read_word_weights(loaded, speech.samples, transcript, list_heads(loaded))
        recognised = [word.text for window in windows for word in window.words]
        pairs = match_words(recognised, [word.text for word in speech.words])
        matches = tuple(pair for pair in pairs if speech.words[pair[1]].start is not None)
        return cls(speech, transcript, tuple(windows), matches)

    def measure_errors(self, rows: Sequence[int], *, pauses: bool = True) -> list[float]:
        """Return the error of each matched word's start in seconds; positive = too late.

        Args:
            rows: The heads, as positions in ``list_heads``.
            pauses: Whether the alignment has rows for pauses.
        """
        starts: list[float] = []
        for window in self.windows:
            positions, _ = align_words(window.weights[list(rows)].mean(0), window.words, pauses=pauses)
            starts += [window.start + position / POSITIONS_PER_SECOND for position in positions]
        return [starts[recognised] - (self.speech.words[spoken].start or 0.0) for recognised, spoken in self.matches]

    def measure_monotony(self, row: int) -> float:
        """Return the share of tokens whose largest weight is not before that of the token before.

        Args:
            row: The head, as a position in ``list_heads``.
        """
        steps = [window.weights[row].argmax(-1).diff() >= 0 for window in self.windows]
        return float(torch.cat(steps).double().mean()) if steps else 1.0


def list_heads(loaded: Loaded) -> Heads:
    """Return all heads of the cross-attention, as (decoder block, head)."""
    assert isinstance(loaded.model, Speech)
    config = loaded.model.config
    return [(block, head) for block in range(config.decoder_layers) for head in range(config.decoder_heads)]


def compute_errors(recordings: Sequence[HeardSpeech], rows: Sequence[int], *, pauses: bool = True) -> list[float]:
    """Return the errors of all matched words; see ``HeardSpeech.measure_errors``.

    Args:
        rows: The heads, as positions in ``list_heads``.
        pauses: Whether the alignment has rows for pauses.
    """
    return [error for speech in recordings for error in speech.measure_errors(rows, pauses=pauses)]


def compute_median(errors: Sequence[float]) -> float:
    """Return the median of the errors' absolute values in seconds.

    Args:
        errors: The errors; at least one.
    """
    return median(map(abs, errors))


def compute_interval(errors: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return a 95% confidence interval of the median absolute error, by the bootstrap (Efron 1979).

    Args:
        errors: The errors; at least one.
    """
    draw = random.Random(seed)
    medians = sorted(compute_median(draw.choices(errors, k=len(errors))) for _ in range(RESAMPLES))
    return medians[RESAMPLES // 40], medians[-RESAMPLES // 40 - 1]


def choose_heads(recordings: Sequence[HeardSpeech], head_count: int, candidates: int = CANDIDATES) -> list[int]:
    """Return the heads that have the smallest median start error together, of all choices among the best single heads.

    Several choices have the same median to the millisecond; of these, the one with the smallest mean is returned.
    """

    def measure(rows: Sequence[int]) -> tuple[float, float]:
        errors = compute_errors(recordings, rows)
        return round(compute_median(errors), 3), mean(min(abs(error), LARGEST_ERROR) for error in errors)

    best = sorted(range(head_count), key=lambda head: measure([head]))[:candidates]
    choices = [list(rows) for count in range(1, len(best) + 1) for rows in combinations(best, count)]
    chosen: list[int] = min(choices, key=lambda rows: measure(rows))
    return sorted(chosen)
