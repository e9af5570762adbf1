"""Texts that people read, in English and in Korean: in Python, or in a TOML file beside the code."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jumok.defaults import LANGUAGES
from jumok.errors import ArgumentError


@dataclass(frozen=True)
class Text:
    """A text in both languages."""

    english: str
    korean: str

    def select(self, language: str) -> str:
        """Return the text in one language, "en" or "ko"."""
        if language not in LANGUAGES:
            raise ArgumentError(f"unknown language {language!r}; choose one of {', '.join(LANGUAGES)}")
        return self.korean if language == "ko" else self.english

    def fill(self, **values: object) -> Text:
        """Replace ``{name}`` by values, as ``str.format`` does; values that are texts are inserted in each language.

        >>> Text("{count} heads, {name}", "헤드 {count}개, {name}").fill(count=3, name=Text("mean", "평균")).korean
        '헤드 3개, 평균'
        """
        languages = [
            {name: value.select(language) if isinstance(value, Text) else value for name, value in values.items()}
            for language in LANGUAGES
        ]
        return Text(self.english.format(**languages[0]), self.korean.format(**languages[1]))


def parse_text(entry: Mapping[str, Any] | str) -> Text:
    """Return the text of a table with the keys ``en`` and ``ko``, or of a string that serves both languages."""
    return Text(entry, entry) if isinstance(entry, str) else Text(entry["en"], entry["ko"])


def join_texts(texts: Sequence[Text]) -> Text:
    """Return texts in a row, with commas, in both languages."""
    return Text(*(", ".join(text.select(language) for text in texts) for language in LANGUAGES))


def join_numbers(numbers: Mapping[Text, str]) -> Text:
    """Return "NAME NUMBER, NAME NUMBER" in both languages."""
    return join_texts([Text(f"{name.english} {number}", f"{name.korean} {number}") for name, number in numbers.items()])


class Texts:
    """The texts of a TOML file beside a module, by name; ``group.name`` for a text in a group.

    A text is a table with the keys ``en`` and ``ko``, or a string that is the same in both languages. A list of texts
    is a table with two lists, or one list.
    """

    def __init__(self, module_file: str) -> None:
        self._path = Path(module_file).with_suffix(".toml")

    @cached_property
    def _entries(self) -> dict[str, Any]:  # read when the first text is needed
        return tomllib.loads(self._path.read_text("utf-8"))

    def __call__(self, name: str, /, **values: object) -> Text:
        """Return a text, with its ``{name}`` replaced by values."""
        return parse_text(self._get_entry(name)).fill(**values)

    def list(self, name: str, /, **values: object) -> tuple[Text, ...]:
        """Return the texts of a list, in order; the same list may serve both languages."""
        entry = self._get_entry(name)
        english, korean = (entry, entry) if isinstance(entry, list) else (entry["en"], entry["ko"])
        return tuple(Text(*pair).fill(**values) for pair in zip(english, korean, strict=True))

    def group(self, name: str, /, **values: object) -> dict[str, Text]:
        """Return the texts of a group by name."""
        return {key: parse_text(entry).fill(**values) for key, entry in self._get_entry(name).items()}

    def select(self, name: str, language: str, /, **values: object) -> dict[str, str]:
        """Return the texts of a group in one language by name, for the labels of a picture."""
        return {key: text.select(language) for key, text in self.group(name, **values).items()}

    def _get_entry(self, name: str) -> Any:
        entry = self._entries
        for part in name.split("."):
            entry = entry[part]
        return entry
