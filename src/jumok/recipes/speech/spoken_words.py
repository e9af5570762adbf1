"""The words and the voices of the recipe ``listen``. Voices of validation and report are never heard in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jumok.data.audio.synthesis import Utterance, espeak, flite

LANGUAGES = ("en", "ko")

WORDS: dict[str, tuple[str, ...]] = {
    "en": (
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "yes", "no", "stop", "go",
        "left", "right", "up", "down", "open", "close", "red", "green", "blue", "water", "music", "house", "apple",
        "morning", "hello", "thanks",
    ),
    "ko": (
        "영", "공", "일", "이", "삼", "사", "오", "육", "칠", "팔", "구", "하나", "둘", "셋", "넷", "다섯", "여섯",
        "일곱", "여덟", "아홉", "열", "네", "아니요", "시작", "정지", "왼쪽", "오른쪽", "음악", "사과", "안녕",
    ),
}  # fmt: skip


class Voice(NamedTuple):
    """A voice of a synthesiser.

    Attributes:
        synthesiser: "espeak" or "flite".
    """

    synthesiser: str
    name: str

    def speak(self, text: str, speed: float, pitch: float) -> Utterance:
        """Speak a text.

        Args:
            pitch: The factor on its own pitch, where that can be changed.
        """
        if self.synthesiser == "espeak":
            return espeak.speak(text, self.name, speed=speed, pitch=pitch)
        return flite.speak(text, self.name, speed=speed, pitch=1.0 if self.name in flite.FIXED_PITCH else pitch)


VoicesByLanguage = Mapping[str, tuple[Voice, ...]]


def _list_espeak_voices(languages: tuple[str, ...], variants: tuple[str, ...]) -> tuple[Voice, ...]:
    """Return each variant in one of the languages, in turn; "" is the language's own voice."""
    names = (f"{languages[index % len(languages)]}+{variant}" for index, variant in enumerate(variants))
    return tuple(Voice("espeak", name.removesuffix("+")) for name in names)


def _list_flite_voices(*names: str) -> tuple[Voice, ...]:
    return tuple(Voice("flite", name) for name in names)


# variants of espeak-ng change formants, pitch and tone; these give the same samples every time
_TRAINING_VARIANTS = (
    "", "m1", "m2", "m4", "m5", "m6", "m8", "f1", "Annie", "linda", "steph", "steph2", "Andy", "john", "adam",
    "grandma", "Gene", "anika", "belinda", "edward",
)  # fmt: skip
_ENGLISH = ("en-us", "en-gb", "en-us", "en-gb-scotland", "en-gb-x-rp")

VOICES: dict[str, VoicesByLanguage] = {
    "training": {
        # flite sounds closer to a person than espeak-ng does: its voices speak as often as all of espeak-ng's
        "en": _list_espeak_voices(_ENGLISH, _TRAINING_VARIANTS) + 5 * _list_flite_voices("slt", "awb", "kal"),
        "ko": _list_espeak_voices(("ko",), _TRAINING_VARIANTS),
    },
    "validation": {
        "en": _list_espeak_voices(("en-us",), ("m7", "aunty")),
        "ko": _list_espeak_voices(("ko",), ("m7", "aunty")),
    },
    "held-out": {
        "en": _list_espeak_voices(("en-us",), ("m3", "f4", "Mike")) + _list_flite_voices("rms"),
        "ko": _list_espeak_voices(("ko",), ("m3", "f4", "Mike")),
    },
}


def select_voices(synthesisers: str) -> dict[str, VoicesByLanguage]:
    """Return the voices of each part and language."""
    if synthesisers == "both":
        return dict(VOICES)
    return {
        part: {
            language: tuple(voice for voice in voices if voice.synthesiser == synthesisers)
            for language, voices in by_language.items()
        }
        for part, by_language in VOICES.items()
    }
