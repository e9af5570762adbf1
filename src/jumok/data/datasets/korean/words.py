"""The words of the generated Korean-English sentences: those of the simple ones, in ``words.toml``."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jumok.data.datasets.korean.english_inflection import Person, Tense
from jumok.data.datasets.korean.korean_inflection import Predicate

Form = Literal["statement", "negation", "question", "negative question"]
FORMS: tuple[Form, ...] = ("statement", "negation", "question", "negative question")
NEGATIVE: tuple[Form, ...] = ("negation", "negative question")
QUESTIONS: tuple[Form, ...] = ("question", "negative question")
TENSES: tuple[Tense, ...] = ("present", "past", "future")


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
    """A thing or a person as an object, with the group that its counter and its adjectives depend on."""

    korean: str
    english: str
    group: str

    @property
    def bare(self) -> str:
        """The English noun without its article."""
        return re.sub(r"^(an?|the) ", "", self.english)

    @property
    def is_countable(self) -> bool:
        """Whether it has "a" in English."""
        return self.english.startswith(("a ", "an "))


@dataclass(frozen=True)
class Verb:
    """What someone does; the files of words explain the fields."""

    stem: str
    english: str
    past: str = ""
    ing: str = ""
    objects: tuple[str, ...] = ()
    locations: tuple[str, ...] = ("anywhere",)
    particle: str = "에서"
    object_particle: str = "을"
    is_state: bool = False
    is_stative: bool = False
    is_adjective: bool = False
    antonym: str = ""

    @property
    def predicate(self) -> Predicate:
        """The Korean predicate."""
        return Predicate(self.stem, "adjective" if self.is_adjective else "verb")

    def phrase_place(self, location: Place) -> str:
        """Return the English phrase for where the verb happens, or for where someone goes."""
        return location.to if self.particle == "에" and not self.is_state else location.at


def list_verbs(rows: list[dict[str, Any]]) -> list[Verb]:
    """Return the verbs of a file of words."""
    fields: list[dict[str, Any]] = [
        {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in row.items()} for row in rows
    ]
    return [Verb(**row) for row in fields]


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


WHO = Subject("누가", "Who", "singular")
PRONOUNS = [Subject(*row) for row in _WORDS["pronouns"]]
ME, YOU, WE, HE, SHE, THEY = PRONOUNS
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
NOUNS = {group: [Noun(korean, english, group) for korean, english in rows] for group, rows in _WORDS["objects"].items()}

DAYS: list[list[str]] = _WORDS["days"]
TIMES = [
    *_list_times(_TIMES["any_tense"], *TENSES),
    *_list_times(_TIMES["present"], "present"),
    *_list_times([[f"{korean}|마다", f"every {english}"] for korean, english in DAYS], "present"),
    *_list_times([[f"{korean}|에", f"on {english}"] for korean, english in DAYS], "past", "future"),
    *_list_times(_TIMES["past"], "past"),
    *_list_times(_TIMES["future"], "future"),
]
ADVERBS: list[tuple[str, str]] = [(korean, english) for korean, english in _WORDS["adverbs"]]
VERBS = list_verbs(_WORDS["verbs"])
ADJECTIVES: list[tuple[str, str]] = [(stem, english) for stem, english in _WORDS["adjectives"]]
THING_ADJECTIVES: list[tuple[str, str]] = [(stem, english) for stem, english in _WORDS["thing_adjectives"]]
# these keep their capital letter inside a sentence
PROPER = {"Seoul", "Busan", "Jeju", "London", "Paris", "Korea", "America", "Japan", "China", "England", "Korean", "TV",
          "English", "Chinese", *(name.english for name in NAMES)}  # fmt: skip


def lower_first(subject: Subject) -> str:
    """Return the English subject as it is written inside a sentence."""
    english = subject.english
    return english if english == "I" or english.split()[0] in PROPER else english[0].lower() + english[1:]
