"""The words of the everyday sentences (``everyday_words.toml``), with the inflection that their English needs."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumok.data.datasets.korean import words
from jumok.data.datasets.korean.predicates import Predicate
from jumok.data.datasets.korean.words import VOWELS, Place, Subject, Tense, Time, choose_particle

LEXICON: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
TENSES: tuple[Tense, ...] = ("present", "past", "future")


@dataclass(frozen=True)
class Verb:
    """A verb of the file of words, which explains the fields."""

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


@dataclass(frozen=True)
class Noun:
    """A noun with the group that its counter and its adjectives depend on."""

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


def _list_verbs() -> list[Verb]:
    old = [
        Verb(
            verb.stem, verb.english, verb.past, objects=verb.objects, locations=verb.locations,
            particle=verb.particle, is_state=verb.is_state, is_stative=verb.stem in ("살", "좋아하", "사랑하"),
        )
        for verb in words.VERBS
    ]  # fmt: skip
    fields: list[dict[str, Any]] = [
        {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in row.items()}
        for row in LEXICON["verbs"]["list"]
    ]
    return [*old, *(Verb(**row) for row in fields)]


def _list_nouns() -> dict[str, list[Noun]]:
    groups = {name: {noun.korean: noun.english for noun in nouns} for name, nouns in words.OBJECTS.items()}
    for source in (LEXICON["objects"], LEXICON["object_groups"]):
        for name, rows in source.items():
            groups[name] = {**groups.get(name, {}), **dict(rows)}
    return {name: [Noun(*row, name) for row in rows.items()] for name, rows in groups.items()}


def _list_places() -> dict[str, list[Place]]:
    locations = {name: list(group) for name, group in words.PLACES.items() if name != "anywhere"}
    for name, rows in LEXICON["places"].items():
        locations[name] = [*locations.get(name, []), *(Place(*row) for row in rows)]
    locations["anywhere"] = [location for group in locations.values() for location in group]
    return locations


VERBS, NOUNS, PLACES = _list_verbs(), _list_nouns(), _list_places()
PEOPLE = LEXICON["people"]
FAMILY = [*words.FAMILY, *(Subject(korean, f"My {english}", "singular") for korean, english in PEOPLE["family"])]
OTHERS = [*words.PEOPLE, *(Subject(*row) for row in PEOPLE["others"])]
HONORED = [subject for subject in [*FAMILY, *OTHERS] if subject.korean in PEOPLE["honored"]]
ME, YOU, WE, HE, SHE, THEY = words.PRONOUNS
IT = Subject("그것", "It", "singular")  # also the weather, without a Korean subject
_FEMALE = ("지은", "서연", "유진", "어머니", "할머니", "이모", "엄마", "누나", "여동생", "딸", "아내")
PEOPLE_ADJECTIVES = [
    *((adjective.stem, adjective.english) for adjective in words.ADJECTIVES),
    *map(tuple, LEXICON["adjectives"]["people"]),
]
FEELINGS: list[list[str]] = LEXICON["adjectives"]["feelings"]
QUALITIES = {
    group: [tuple(row) for row in entry["adjectives"]] for entry in LEXICON["qualities"] for group in entry["groups"]
}
THING_STEMS = {stem for rows in QUALITIES.values() for stem, _ in rows}
WEATHER = LEXICON["weather"]
NUMBERS: dict[str, list[list[str]]] = LEXICON["numbers"]


def _list_times() -> dict[Tense, list[Time]]:
    times: dict[Tense, list[Time]] = {tense: [time for time in words.TIMES if tense in time.tenses] for tense in TENSES}
    data = LEXICON["times"]
    for tense in TENSES:
        rows = [
            *([*data[tense]] if tense != "present" else []),
            *([f"{korean}|에", english] for korean, english in data["parts"]),
            *([f"{korean}|에", english] for korean, english in data["seasons"]),
            *([f"{korean}|에", f"in {english}"] for korean, english in NUMBERS["months"] if tense != "present"),
        ]
        times[tense] = [*times[tense], *(Time(korean, english, (tense,)) for korean, english in rows)]
    return times


TIMES = _list_times()
_SOON = ("today", "tomorrow", "tonight", "this weekend", "next week")  # "I have to work tomorrow"
NOW = [Time(korean, english, ("present",)) for korean, english in LEXICON["times"]["present"]]


def capitalize(text: str) -> str:
    """Return the text with a capital letter, the other letters as they are."""
    return text[0].upper() + text[1:]


def lower_first(subject: Subject) -> str:
    """Return the English subject as it is written inside a sentence."""
    english = subject.english
    is_name = english == "I" or subject in words.NAMES or english.split()[0] in PROPER
    return english if is_name else english[0].lower() + english[1:]


PROPER = {"Seoul", "Busan", "Jeju", "London", "Paris", "Korea", "America", "Japan", "China", "England", "Korean", "TV",
           "Minsu", "Jieun", "English", "Chinese"}  # fmt: skip


def add_ing(base: str) -> str:
    """Return the form with -ing: "swimming"."""
    if base in ("swim", "run", "sit", "get", "plan"):
        return f"{base}{base[-1]}ing"
    return f"{base[:-1]}ing" if base.endswith("e") and base != "be" and not base.endswith("ee") else f"{base}ing"


def add_plural(noun: str) -> str:
    """Return the plural: "glasses"."""
    first, last = noun.rpartition(" ")[::2]
    irregular = LEXICON["plurals"].get(last)
    if irregular:
        return f"{first} {irregular}".strip()
    if last.endswith("y") and last[-2] not in VOWELS:
        return f"{noun[:-1]}ies"
    return f"{noun}es" if last.endswith(("s", "x", "ch", "sh", "to")) else f"{noun}s"


def add_article(phrase: str) -> str:
    """Return the phrase with an article: "an apple"."""
    return f"{'an' if phrase[0] in VOWELS else 'a'} {phrase}"


def mark(korean: str, particle: str) -> str:
    """Attach a particle that depends on the final consonant."""
    pairs = {"을": ("을", "를"), "이": ("이", "가"), "은": ("은", "는"), "과": ("과", "와"), "으로": ("으로", "로")}
    if particle == "으로" and words.get_final(korean) == words.FINAL_RIEUL:
        return f"{korean}|로"
    return f"{korean}|{choose_particle(korean, *pairs.get(particle, (particle, particle)))}"


def compare(adjective: str) -> str:
    """Return the comparative of an adjective."""
    if adjective in LEXICON["comparatives"]:
        return str(LEXICON["comparatives"][adjective])
    if adjective.endswith("y") and len(adjective) <= 6:
        return f"{adjective[:-1]}ier"
    if len(adjective) > 6 or adjective in ("bored", "famous", "honest", "boring", "tired"):
        return f"more {adjective}"
    if adjective in ("big", "hot", "sad"):
        return f"{adjective}{adjective[-1]}er"
    return f"{adjective}r" if adjective.endswith("e") else f"{adjective}er"


def superlative(adjective: str) -> str:
    """Return the superlative of an adjective."""
    special = {"good": "best", "bad": "worst", "far": "farthest"}.get(adjective)
    comparative = compare(adjective)
    return special or (f"most {adjective}" if comparative.startswith("more ") else f"{comparative[:-2]}est")
