"""The words of the generated Korean-English sentences, and their regular inflection.

The words are in ``korean_english_words.toml``, with irregular forms only.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Person = Literal["I", "you", "singular", "plural"]  # the English agreement: "we" and "they" are plural
Tense = Literal["present", "past", "future"]


@dataclass(frozen=True)
class Subject:
    """Who acts: in Korean without a particle, in English as at the beginning of a sentence."""

    korean: str
    english: str
    person: Person


@dataclass(frozen=True)
class Place:
    """Where something happens, or where someone goes, with the English phrases for being and for going there."""

    korean: str
    at: str
    to: str


@dataclass(frozen=True)
class Time:
    """When something happens."""

    korean: str
    english: str
    tenses: tuple[Tense, ...]


@dataclass(frozen=True)
class Noun:
    """A thing or a person as an object."""

    korean: str
    english: str


@dataclass(frozen=True)
class Verb:
    """What someone does; the fields are explained in the file of the words."""

    stem: str
    past_stem: str
    english: str
    past: str = ""
    objects: tuple[str, ...] = ()
    locations: tuple[str, ...] = ("anywhere",)
    particle: str = "에서"
    future: str = ""
    is_state: bool = False


@dataclass(frozen=True)
class Adjective:
    """What someone or something is like."""

    stem: str
    past_stem: str
    english: str


_WORDS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_TIMES: dict[str, list[list[str]]] = _WORDS["times"]


def _list_singular(article: str, group: str) -> list[Subject]:
    return [Subject(korean, article + english, "singular") for korean, english in _WORDS[group]]


def _list_places(group: list[list[str]]) -> list[Place]:
    return [
        Place(korean, f"{preposition} {english}", english if english == "home" else f"to {english}")
        for korean, preposition, english in group
    ]


def _list_times(rows: list[list[str]], *tenses: Tense) -> list[Time]:
    return [Time(korean, english, tenses) for korean, english in rows]


PRONOUNS = [Subject(*row) for row in _WORDS["pronouns"]]
NAMES = _list_singular("", "names")
FAMILY = _list_singular("My ", "family")
OCCUPATIONS: list[list[str]] = _WORDS["occupations"]
PEOPLE = [
    *(Subject(korean, f"The {english}", "singular") for korean, english, _ in OCCUPATIONS),
    *(Subject(f"{korean}|들", f"The {plural}", "plural") for korean, _, plural in OCCUPATIONS[:8]),
    *(Subject(*row) for row in _WORDS["people"]),
]
ANIMALS = _list_singular("The ", "animals")

PLACES = {name: _list_places(group) for name, group in _WORDS["places"].items()}
PLACES["anywhere"] = [location for locations in list(PLACES.values()) for location in locations]
OBJECTS = {name: [Noun(*row) for row in group] for name, group in _WORDS["objects"].items()}

TIMES = [
    *_list_times(_TIMES["any_tense"], "present", "past", "future"),
    *_list_times(_TIMES["present"], "present"),
    *_list_times([[f"{korean}|마다", f"every {english}"] for korean, english in _WORDS["days"]], "present"),
    *_list_times([[f"{korean}|에", f"on {english}"] for korean, english in _WORDS["days"]], "past", "future"),
    *_list_times(_TIMES["past"], "past"),
    *_list_times(_TIMES["future"], "future"),
]
ADVERBS: list[list[str]] = _WORDS["adverbs"]
_VERB_FIELDS: list[dict[str, Any]] = [
    {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in verb.items()}
    for verb in _WORDS["verbs"]
]
VERBS = [Verb(**fields) for fields in _VERB_FIELDS]
ADJECTIVES = [Adjective(*row) for row in _WORDS["adjectives"]]
THING_ADJECTIVES = [Adjective(*row) for row in _WORDS["thing_adjectives"]]

FINAL_NIEUN, FINAL_RIEUL, FINAL_BIEUP = 4, 8, 17  # ㄴ, ㄹ and ㅂ among the 28 final consonants
VOWELS = "aeiou"
_FINALS = 28


def choose_particle(word: str, after_consonant: str, after_vowel: str) -> str:
    """Return the particle that follows a Korean word.

    >>> choose_particle("학생", "은", "는"), choose_particle("친구", "은", "는")
    ('은', '는')
    """
    return after_consonant if get_final(word) else after_vowel


def get_final(word: str) -> int:
    """Return the number of the final consonant of the last syllable; 0 = none."""
    code = ord(word[-1])
    assert ord("가") <= code <= ord("힣"), f"{word} does not end with Hangul"
    return (code - ord("가")) % _FINALS


def set_final(word: str, final: int) -> str:
    """Replace the final consonant of the last syllable."""
    return word[:-1] + chr(ord(word[-1]) - get_final(word) + final)


def conjugate_english(verb: Verb, subject: Subject, tense: Tense) -> str:
    """Return the present or past of a verb, with its preposition."""
    base, _, preposition = verb.english.partition(" ")
    if tense == "past":
        form = verb.past.split()[0] if verb.past else _add_ed(base)
    else:
        form = _add_s(base) if subject.person == "singular" else base
    return f"{form} {preposition}".strip()


def _add_s(base: str) -> str:
    if base.endswith("y") and base[-2] not in VOWELS:
        return f"{base[:-1]}ies"
    return f"{base}es" if base.endswith(("s", "x", "z", "ch", "sh", "o")) else f"{base}s"


def _add_ed(base: str) -> str:
    if base.endswith("y") and base[-2] not in VOWELS:
        return f"{base[:-1]}ied"
    return f"{base}d" if base.endswith("e") else f"{base}ed"
