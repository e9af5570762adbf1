"""Speech with known word starts, and the error of the starts that a model's attention gives.

Words that the model recognised are matched with the spoken ones, and only matched words count.
"""

from __future__ import annotations

import difflib
import random
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.audio.utterance import SYNTHESIS_RATE, SpokenWord
from jumok.data.audio.voices import Voice
from jumok.models.speech import Speech
from jumok.tasks.speech import Transcript, transcribe
from jumok.tasks.speech.audio_window import POSITIONS_PER_SECOND
from jumok.tasks.speech.word_times import Heads, WindowWeights, align_words, read_word_weights

SENTENCES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
CALIBRATION_TEXTS: tuple[str, ...] = tuple(SENTENCES["calibration"])
PAUSES = (0.2, 1.5)  # seconds, the shortest and the longest
NOISE = 0.001  # standard deviation; digital silence does not occur in recordings


@dataclass(frozen=True, eq=False)
class TimedSpeech:
    """Audio whose words have known starts.

    Attributes:
        samples: The audio, mono, 16,000 samples per second.
        words: The words with their starts and ends; None where they are not known.
    """

    samples: Float[Tensor, " sample"]
    words: tuple[SpokenWord, ...]


def speak_with_pauses(texts: Sequence[str], voice: Voice, seed: int) -> TimedSpeech:
    """Speak texts with a pause of random length before each of them, and faint noise throughout."""
    lengths = random.Random(seed)
    parts: list[Tensor] = []
    words: list[SpokenWord] = []
    for text in texts:
        parts.append(torch.zeros(int(lengths.uniform(*PAUSES) * SYNTHESIS_RATE)))
        offset = sum(map(len, parts)) / SYNTHESIS_RATE
        utterance = voice.speak(text)
        words += [
            SpokenWord(word.text, _shift(word.start, offset), _shift(word.end, offset)) for word in utterance.words
        ]
        parts.append(utterance.samples)
    clean = torch.cat(parts)
    noise = torch.randn(len(clean), generator=torch.Generator().manual_seed(seed))
    return TimedSpeech(clean + NOISE * noise, tuple(words))


def speak_pairs(texts: Sequence[str], voices: Sequence[Voice], seed: int) -> list[TimedSpeech]:
    """Speak each pair of consecutive texts in each voice, with pauses; an odd last text is left out."""
    pairs = [texts[index : index + 2] for index in range(0, len(texts) - 1, 2)]
    jobs = [(pair, voice) for pair in pairs for voice in voices]
    return [speak_with_pauses(pair, voice, seed + number) for number, (pair, voice) in enumerate(jobs)]


def _shift(time: float | None, offset: float) -> float | None:
    return None if time is None else time + offset


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
        """Return the share of tokens whose largest weight is not before that of the token before."""
        steps = [window.weights[row].argmax(-1).diff() >= 0 for window in self.windows]
        return float(torch.cat(steps).double().mean()) if steps else 1.0


def list_heads(loaded: Loaded) -> Heads:
    """Return all heads of the cross-attention, as (decoder block, head)."""
    assert isinstance(loaded.model, Speech)
    config = loaded.model.config
    return [(block, head) for block in range(config.decoder_layers) for head in range(config.decoder_heads)]


def compute_errors(recordings: Sequence[HeardSpeech], rows: Sequence[int], *, pauses: bool = True) -> list[float]:
    """Return the errors of all matched words; see ``HeardSpeech.measure_errors``."""
    return [error for speech in recordings for error in speech.measure_errors(rows, pauses=pauses)]


def compute_median(errors: Sequence[float]) -> float:
    """Return the median of the errors' absolute values in seconds."""
    return median(map(abs, errors))
