"""Inflect English verbs, nouns and adjectives, with contractions or without."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Person = Literal["I", "you", "singular", "plural"]  # what a verb agrees with: "we" and "they" are plural
Tense = Literal["present", "past", "future"]

_IRREGULAR: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("irregular_forms.toml").read_text("utf-8")
)
_VOWELS = "aeiou"


@dataclass(frozen=True)
class Wording:
    """How an English sentence is written: "didn't" or "did not", and whether a time comes first in a statement."""

    is_contracted: bool = True
    time_first: bool = False

    def negate(self, auxiliary: str) -> str:
        """Return "didn't" or "did not"."""
        if self.is_contracted and auxiliary != "am":
            return {"will": "won't", "can": "can't"}.get(auxiliary, f"{auxiliary}n't")
        return f"{auxiliary} not"


def choose_be(person: Person, tense: Tense) -> str:
    """Return the form of "be"."""
    if tense == "past":
        return "was" if person in ("I", "singular") else "were"
    return {"I": "am", "singular": "is"}.get(person, "are")


def choose_auxiliary(person: Person, tense: Tense) -> str:
    """Return the auxiliary of questions and negations: "did", "does" or "do"."""
    if tense == "past":
        return "did"
    return "does" if person == "singular" else "do"


def conjugate(base: str, past: str, person: Person, tense: Tense) -> str:
    """Return the present or past of a verb.

    Args:
        past: The past; "" if it is regular.

    >>> [conjugate(base, "", "singular", tense) for base in ("have", "try", "stay") for tense in ("present", "past")]
    ['has', 'had', 'tries', 'tried', 'stays', 'stayed']
    """
    if tense == "past":
        return past or {"have": "had"}.get(base) or _add_ed(base)
    if person != "singular":
        return base
    return "has" if base == "have" else _add_s(base)


def _add_s(base: str) -> str:
    if base.endswith("y") and base[-2] not in _VOWELS:
        return f"{base[:-1]}ies"
    return f"{base}es" if base.endswith(("s", "x", "z", "ch", "sh", "o")) else f"{base}s"


def _add_ed(base: str) -> str:
    if base.endswith("y") and base[-2] not in _VOWELS:
        return f"{base[:-1]}ied"
    return f"{base}d" if base.endswith("e") else f"{base}ed"


def add_ing(base: str) -> str:
    """Return the form with -ing: "swimming"."""
    if base in ("swim", "run", "sit", "get", "plan"):
        return f"{base}{base[-1]}ing"
    return f"{base[:-1]}ing" if base.endswith("e") and base != "be" and not base.endswith("ee") else f"{base}ing"


def add_plural(noun: str) -> str:
    """Return the plural: "glasses"."""
    first, last = noun.rpartition(" ")[::2]
    irregular = _IRREGULAR["plurals"].get(last)
    if irregular:
        return f"{first} {irregular}".strip()
    if last.endswith("y") and last[-2] not in _VOWELS:
        return f"{noun[:-1]}ies"
    return f"{noun}es" if last.endswith(("s", "x", "ch", "sh", "to")) else f"{noun}s"


def add_article(phrase: str) -> str:
    """Return the phrase with an article: "an apple"."""
    return f"{'an' if phrase[0] in _VOWELS else 'a'} {phrase}"


def make_comparative(adjective: str) -> str:
    """Return the comparative of an adjective."""
    if adjective in _IRREGULAR["comparatives"]:
        return _IRREGULAR["comparatives"][adjective]
    if adjective.endswith("y") and len(adjective) <= 6:
        return f"{adjective[:-1]}ier"
    if len(adjective) > 6 or adjective in ("bored", "famous", "honest", "boring", "tired"):
        return f"more {adjective}"
    if adjective in ("big", "hot", "sad"):
        return f"{adjective}{adjective[-1]}er"
    return f"{adjective}r" if adjective.endswith("e") else f"{adjective}er"


def make_superlative(adjective: str) -> str:
    """Return the superlative of an adjective."""
    special = {"good": "best", "bad": "worst", "far": "farthest"}.get(adjective)
    comparative = make_comparative(adjective)
    return special or (f"most {adjective}" if comparative.startswith("more ") else f"{comparative[:-2]}est")


def capitalize(text: str) -> str:
    """Return the text with a capital letter, the other letters as they are."""
    return text[0].upper() + text[1:]
