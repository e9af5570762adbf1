"""Synthesised speech with known word starts: two sentences with pauses before them, in several voices."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data.audio.synthesis import SpokenWord, Utterance, espeak, flite
from jumok.data.audio.synthesis.utterance import SYNTHESIS_RATE

PAUSES = (0.2, 1.5)  # seconds, the shortest and the longest
NOISE = 0.001  # standard deviation; digital silence does not occur in recordings

SYNTHESISERS: dict[str, Callable[..., Utterance]] = {"espeak": espeak.speak, "flite": flite.speak}

#: heads are chosen on these sentences ...
CALIBRATION_TEXTS = (
    "The old ferry crosses the river every morning, even when the fog is thick.",
    "My sister keeps eleven hens behind the house, and each of them has a name.",
    "Please leave the keys under the blue pot before you walk to the station.",
    "Nobody expected the orchestra to play the second piece without a conductor.",
    "After the storm the village had no light, so we told stories until midnight.",
    "He opened the window, listened for a moment, and closed it again without a word.",
    "The baker on our street sells warm bread from five o'clock in the morning.",
    "Engineers measured the bridge twice, because the first result looked too good.",
    "If you follow the narrow path along the lake, you will find an empty cabin.",
    "Our teacher drew a circle on the board and asked us to guess its area.",
    "She packed a lamp, three books, some rope, and a jar of honey.",
    "The train to the coast was late again, but the view was worth the wait.",
    "In autumn the hills turn yellow first, then red, and finally brown.",
    "A small engine drives the pump, which brings water up from the valley.",
    "They painted the kitchen green last summer and regretted it by winter.",
    "I have never understood why cats prefer a box to an expensive bed.",
    "The museum opens at ten and closes at six, except on Monday.",
    "Under the table lay a letter that somebody had forgotten years ago.",
)

#: ... and scored on these, in other voices
SCORING_TEXTS = (
    "Every winter the lake freezes, and the children cross it on their way to school.",
    "Grandmother wrote the recipe on the back of an envelope and hid it in a drawer.",
    "The radio tower on the island can be seen from almost every roof in town.",
    "Before the meeting began, an old man asked for a glass of water.",
    "We counted forty boats in the harbour, but only one of them had a sail.",
    "The carpenter looked at the broken chair, smiled, and went to fetch his tools.",
    "Turn left at the church, cross the market, and ring the bell at the second door.",
    "Her answer was short, clear, and completely different from mine.",
    "A gardener knows that patience is cheaper than fertilizer.",
    "The last bus leaves at eleven, so do not stay for another cup of tea.",
    "Astronomers found a faint star where nobody had looked before.",
    "Your coat is hanging in the hall, next to the yellow umbrella.",
    "It rained for nine days, and on the tenth the cellar was full of frogs.",
    "The judge read the paper slowly, folded it, and asked everyone to stand.",
    "Most of the passengers were asleep when the ship entered the canal.",
    "I borrowed a ladder from the neighbour to pick the apples at the top.",
)


@dataclass(frozen=True)
class Voice:
    """A voice of a synthesiser.

    Attributes:
        synthesiser: "espeak" or "flite".
        name: Its name, such as "en-us+f4" or "slt".
        speed: The factor on its usual speed.
        pitch: The factor on its usual pitch.
    """

    synthesiser: str
    name: str
    speed: float = 1.0
    pitch: float = 1.0

    def speak(self, text: str) -> Utterance:
        """Return a text, spoken by this voice.

        Raises:
            ArgumentError: If the synthesiser is not installed.
        """
        return SYNTHESISERS[self.synthesiser](text, self.name, speed=self.speed, pitch=self.pitch)


CALIBRATION_VOICES = (
    Voice("espeak", "en-us"),
    Voice("espeak", "en-gb+m3", speed=0.9),
    Voice("espeak", "en-us+f4", speed=0.95, pitch=1.1),
)
SCORING_VOICES = {
    "espeak": (Voice("espeak", "en-gb"), Voice("espeak", "en-us+m1", speed=0.9, pitch=0.9)),
    "flite": (Voice("flite", "slt"), Voice("flite", "rms")),
}


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
    """Speak texts with a pause of random length before each of them, and faint noise throughout.

    Raises:
        ArgumentError: If the synthesiser is not installed.
    """
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
    """Speak each pair of consecutive texts in each voice, with pauses.

    Args:
        texts: The texts; the last one is left out if their number is odd.
    """
    pairs = [texts[index : index + 2] for index in range(0, len(texts) - 1, 2)]
    jobs = [(pair, voice) for pair in pairs for voice in voices]
    return [speak_with_pauses(pair, voice, seed + number) for number, (pair, voice) in enumerate(jobs)]


def _shift(time: float | None, offset: float) -> float | None:
    return None if time is None else time + offset
