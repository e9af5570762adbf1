"""The words of the everyday sentences: those of ``words``, and further ones in ``everyday_words.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from jumok.data.datasets.korean import words
from jumok.data.datasets.korean.english_inflection import Tense
from jumok.data.datasets.korean.words import TENSES, Noun, Place, Subject, Time

LEXICON: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _list_nouns() -> dict[str, list[Noun]]:
    groups = {name: {noun.korean: noun.english for noun in nouns} for name, nouns in words.NOUNS.items()}
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


VERBS = [*words.VERBS, *words.list_verbs(LEXICON["verbs"]["list"])]
NOUNS, PLACES = _list_nouns(), _list_places()
PEOPLE = LEXICON["people"]
FAMILY = [*words.FAMILY, *(Subject(korean, f"My {english}", "singular") for korean, english in PEOPLE["family"])]
OTHERS = [*words.PEOPLE, *(Subject(*row) for row in PEOPLE["others"])]
HONORED = [subject for subject in [*FAMILY, *OTHERS] if subject.korean in PEOPLE["honored"]]
IT = Subject("그것", "It", "singular")  # also the weather, without a Korean subject
FEMALE = ("지은", "서연", "유진", "어머니", "할머니", "이모", "엄마", "누나", "여동생", "딸", "아내")
PEOPLE_ADJECTIVES = [*words.ADJECTIVES, *map(tuple, LEXICON["adjectives"]["people"])]
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


TIMES_BY_TENSE = _list_times()
SOON = ("today", "tomorrow", "tonight", "this weekend", "next week")  # "I have to work tomorrow"
NOW = [Time(korean, english, ("present",)) for korean, english in LEXICON["times"]["present"]]
