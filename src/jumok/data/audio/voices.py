"""Voices of the two synthesisers."""

from __future__ import annotations

from dataclasses import dataclass

from jumok.data.audio import espeak, flite
from jumok.data.audio.utterance import Utterance


@dataclass(frozen=True)
class Voice:
    """A voice of a synthesiser.

    Attributes:
        synthesiser: "espeak" or "flite".
        name: Its name, such as "en-us+f4" or "slt".
        speed: The factor on its usual speed.
        pitch: The factor on its usual pitch; a voice whose pitch cannot be changed keeps its own.
    """

    synthesiser: str
    name: str
    speed: float = 1.0
    pitch: float = 1.0

    def speak(self, text: str) -> Utterance:
        """Return a text, spoken by this voice; ArgumentError if the synthesiser is not installed."""
        if self.synthesiser == "espeak":
            return espeak.speak(text, self.name, speed=self.speed, pitch=self.pitch)
        pitch = 1.0 if self.name in flite.FIXED_PITCH else self.pitch
        return flite.speak(text, self.name, speed=self.speed, pitch=pitch)
