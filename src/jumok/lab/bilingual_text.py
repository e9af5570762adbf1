"""Texts of lessons, in English and in Korean."""

from __future__ import annotations

from dataclasses import dataclass

from jumok.defaults import LANGUAGES
from jumok.errors import ArgumentError


@dataclass(frozen=True)
class Text:
    """A text in both languages."""

    english: str
    korean: str

    def select(self, language: str) -> str:
        """Return the text in one language.

        Args:
            language: "en" or "ko".

        Raises:
            ArgumentError: If there is no such language.
        """
        if language not in LANGUAGES:
            raise ArgumentError(f"unknown language {language!r}; choose one of {', '.join(LANGUAGES)}")
        return self.korean if language == "ko" else self.english
