"""Choose the heads that listen in time on calibration speech; the voices and sentences on which they are scored."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean

from jumok.data.audio.voices import Voice
from jumok.lab.experiments.setups.timed_speech import HeardSpeech, compute_errors, compute_median

SCORING_TEXTS: tuple[str, ...] = tuple(tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["scoring"])
CALIBRATION_VOICES = (
    Voice("espeak", "en-us"),
    Voice("espeak", "en-gb+m3", speed=0.9),
    Voice("espeak", "en-us+f4", speed=0.95, pitch=1.1),
)
SCORING_VOICES = {
    "espeak": (Voice("espeak", "en-gb"), Voice("espeak", "en-us+m1", speed=0.9, pitch=0.9)),
    "flite": (Voice("flite", "slt"), Voice("flite", "rms")),
}
RESAMPLES = 1000  # of the bootstrap
LARGEST_ERROR = 0.5  # seconds: a larger error counts as this one in a mean
CANDIDATES = 6  # single heads whose 63 combinations are tried


def compute_interval(errors: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return a 95% confidence interval of the median absolute error, by the bootstrap (Efron 1979)."""
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
