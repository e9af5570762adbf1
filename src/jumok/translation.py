"""Translate messages that the package writes in English, such as errors, by the templates of ``translation.toml``."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from jumok.reporting import get_reader_language

PLACEHOLDER = re.compile(r"\{(\w+)\}")
NAMES = "names"  # the group of translate_name; its words mean something else in a sentence
END = "; "  # of a sentence inside a message
TWO_WORDS = re.compile(r"(\S+) and (\S+)")
# no placeholder goes beyond a sentence, and the first word of a template is no place such as "data.csv:7: "
ANY_TEXT, FIRST_TEXT = r"(?:(?!; ).)*?", r"(?:(?!; |: ).)*?"


def translate(message: str, language: str | None = None) -> str:
    """Return a message in a language, by default the reader's; what no template matches remains in English.

    >>> translate("there is no folder notes; choose another folder", "ko")
    'notes 폴더가 없습니다. 다른 폴더를 고르세요'
    """
    return _translate(message) if (language or get_reader_language()) == "ko" else message


def _translate(message: str) -> str:
    if (korean := _fill_template(message)) is not None:
        return korean
    sentence, end, advice = message.partition(END)
    if end:
        parts = _translate(sentence), _translate(advice)
        return message if parts == (sentence, advice) else ". ".join(parts)
    location, colon, problem = message.partition(": ")  # such as "data.csv:7: the line is too long"
    return f"{location}: {_translate(problem)}" if colon else message


def _fill_template(message: str) -> str | None:
    """Return the Korean of the first template that matches a message, with its values; None if none does."""
    templates = read_templates()
    if message in templates:
        return templates[message]
    for template, korean in templates.items():
        parts = PLACEHOLDER.split(template)
        if len(parts) == 1 or not all(part in message for part in parts[::2]):  # faster than the pattern
            continue
        if match := _compile(template).fullmatch(message):
            values = {name: TWO_WORDS.sub(r"\1, \2", _translate(text)) for name, text in match.groupdict().items()}
            return "".join(values.get(part, part) for part in PLACEHOLDER.split(korean))
    return None


def translate_name(name: str, language: str | None = None) -> str:
    """Return the name of a metric, a setting or a column in a language, by default the reader's.

    >>> translate_name("bleu_beam_4", "ko"), translate_name("wrong_answers", "en"), translate_name("my_field", "ko")
    ('BLEU(빔 4개)', 'wrong_answers', 'my_field')
    """
    if (language or get_reader_language()) != "ko":
        return name
    names = _read_groups()[NAMES]
    if name in names:
        return names[name]
    for template, korean in names.items():
        if "{" in template and (match := _compile(template).fullmatch(name)):
            values = {field: translate_name(text, "ko") for field, text in match.groupdict().items()}
            return korean.format(**values)
    return name


@cache
def _read_groups() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@cache
def read_templates(*chosen: str) -> dict[str, str]:
    """Return the Korean of the templates of all or of the chosen groups, the one with most letters of its own first."""
    groups = [group for name, group in _read_groups().items() if (name in chosen if chosen else name != NAMES)]
    templates = {template: korean for group in groups for template, korean in group.items()}
    return dict(sorted(templates.items(), key=lambda entry: -len(PLACEHOLDER.sub("", entry[0]))))


@cache
def _compile(template: str) -> re.Pattern[str]:
    start, *parts = PLACEHOLDER.split(template)
    pattern = re.escape(start)
    for index, part in enumerate(parts):
        text = ANY_TEXT if index or start else FIRST_TEXT
        pattern += re.escape(part) if index % 2 else f"(?P<{part}>{text})"
    return re.compile(pattern, re.DOTALL)
