"""Draw what a clause consists of: subjects, noun phrases, times, places, manners, and the action itself."""

from __future__ import annotations

import random
from typing import Any

from jumok.data.datasets.korean import words
from jumok.data.datasets.korean.clauses import Clause, Mode
from jumok.data.datasets.korean.english_inflection import Person, Tense, add_article, add_plural, capitalize
from jumok.data.datasets.korean.everyday_words import (
    FAMILY,
    IT,
    LEXICON,
    NOUNS,
    NOW,
    NUMBERS,
    OTHERS,
    PLACES,
    QUALITIES,
    SOON,
    TIMES_BY_TENSE,
    VERBS,
)
from jumok.data.datasets.korean.korean_inflection import Predicate, mark
from jumok.data.datasets.korean.words import (
    HE,
    ME,
    NEGATIVE,
    PROPER,
    QUESTIONS,
    SHE,
    THEY,
    WE,
    YOU,
    Form,
    Noun,
    Place,
    Subject,
    Time,
    Verb,
)

FORM_SHARES = (5, 3, 4, 1)


def draw_subject(generator: random.Random, form: Form) -> Subject:
    """Draw who; questions are mostly to you, and never about me."""
    if form in QUESTIONS and generator.random() < 0.6:
        return YOU
    groups = ([ME], words.PRONOUNS, words.NAMES, FAMILY, OTHERS)
    subject = generator.choice(generator.choices(groups, (4, 4, 2, 3, 2))[0])
    return YOU if form in QUESTIONS and subject in (ME, WE) else subject


def can_count(noun: Noun) -> bool:
    """Whether a noun can follow a number: it has a Korean counter and, if it has no plural, an English container."""
    counter = find_counter(noun)
    return bool(counter) and (noun.is_countable or len(counter) > 1)


def draw_count(generator: random.Random, noun: Noun) -> tuple[str, str]:
    """Return a noun with a number in both languages: 커피 두 잔, two cups of coffee."""
    counter = find_counter(noun)
    number_korean, number = generator.choice(NUMBERS["counts"][:6])
    unit = counter[1] if len(counter) > 1 else noun.bare
    english = f"{number} {unit if number == 'one' else add_plural(unit)}"
    return f"{noun.korean} {number_korean} {counter[0]}", english + f" of {noun.bare}" * (len(counter) > 1)


def find_counter(noun: Noun) -> list[str]:
    """Return the Korean counter and the English container of a noun, if it has them."""
    is_other_text = noun.group == "texts" and noun.korean not in LEXICON["verb_lists"]["counted_books"]
    counter: list[str] = LEXICON["counters"].get(noun.group, [])
    return [] if is_other_text else counter


def draw_noun_phrase(generator: random.Random, noun: Noun) -> tuple[str, str]:
    """Return a noun, perhaps with a number, a determiner or an adjective, in both languages."""
    share = generator.random()
    if share < 0.12 and can_count(noun):
        return draw_count(generator, noun)
    if not noun.is_countable or share > 0.35:
        return noun.korean, noun.english
    if share < 0.2:
        korean, english = generator.choice((("이", "this"), ("저", "that")))
        return f"{korean} {noun.korean}", f"{english} {noun.bare}"
    if share < 0.27:
        return f"내 {noun.korean}", f"my {noun.bare}"
    if noun.group in QUALITIES:
        stem, adjective = generator.choice([*QUALITIES[noun.group], ("새", "new")])
        korean = stem if stem == "새" else Predicate(stem, "adjective").connect("은")
        korean = f"{stem}|는" if stem.endswith("있") else korean
        return f"{korean} {noun.korean}", add_article(f"{adjective} {noun.bare}")
    return noun.korean, noun.english


def draw_clock(generator: random.Random, tense: Tense) -> Time:
    """Draw an hour, perhaps with minutes and the part of the day."""
    hour_korean, hour = generator.choice(NUMBERS["hours"])
    korean, english = f"{hour_korean} 시", f"{hour} o'clock"
    if generator.random() < 0.25:
        minute_korean, minute = generator.choice(NUMBERS["minutes"])
        korean = f"{hour_korean} 시 {minute_korean}" + ("" if minute_korean == "반" else " 분")
        english = f"{hour} {minute}"
    part = ("", "")
    if generator.random() < 0.4:
        if hour in ("one", "two", "three", "four", "five"):
            part = ("오후 ", " in the afternoon")
        elif hour in ("six", "seven", "eight", "nine") and generator.random() < 0.5:
            part = ("저녁 ", " in the evening")
        elif hour != "twelve":
            part = ("아침 ", " in the morning")
    return Time(f"{part[0]}{korean}|에", f"at {english}{part[1]}", (tense,))


def make_action(
    verb: Verb, subject: Subject, noun: Noun | None = None, location: Place | None = None, **fields: Any
) -> Clause:
    """Make a clause of a verb, an object and a place."""
    before, after = [], []
    if location is not None:
        before.append(f"{location.korean}|{verb.particle}")
    phrase = fields.pop("phrase", None) or (noun and (noun.korean, noun.english))
    if phrase:
        before.append("아무것|도" if phrase[0] == "아무것" else mark(phrase[0], verb.object_particle))
        after.append(phrase[1])
    extra_korean, extra_english = fields.pop("extra", ((), ()))
    manner = fields.pop("manner", None)
    if manner:
        before.append(manner[0])
        after.append(manner[1])
    after.extend(extra_english)
    if location is not None:
        position = len(after) - len(extra_english)
        after.insert(position, verb.phrase_place(location))
    key = f"{subject.english} {verb.stem} {noun.korean if noun else '-'} {location.korean if location else '-'}"
    values = {"key": key, "antonym": verb.antonym} | fields
    return Clause(
        subject, verb.predicate, verb.english, verb.past, verb.ing, (*extra_korean, *before), tuple(after), **values
    )


def _draw_object(generator: random.Random, verb: Verb, subject: Subject) -> Noun | None:
    if not verb.objects:
        return None
    nouns = [noun for group in verb.objects for noun in NOUNS[group]]
    same = {"I": ("me", "us"), "We": ("me", "us"), "You": ("you",), "He": ("him",), "She": ("her",)}
    excluded = same.get(subject.english, ())
    nouns = [noun for noun in nouns if noun.english not in excluded and noun.korean not in subject.korean]
    return generator.choice(nouns)


def _draw_extra(generator: random.Random, verb: Verb) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a companion or a means of transport."""
    share = generator.random()
    lists = LEXICON["verb_lists"]
    if share < 0.15 and verb.stem in lists["social"] and not verb.is_stative:
        person = generator.choice(
            [noun for noun in NOUNS["persons"] if noun.english not in ("me", "us", "you", "him", "her")]
        )
        return (mark(person.korean, "과"),), (f"with {person.english}",)
    if share < 0.35 and verb.stem in lists["vehicles"]:
        korean, english = generator.choice(
            (
                ("버스", "bus"),
                ("기차", "train"),
                ("택시", "taxi"),
                ("지하철", "subway"),
                ("비행기", "plane"),
                ("자동차", "car"),
                ("자전거", "bicycle"),
            )
        )
        return (mark(korean, "으로"),), (f"by {english}",)
    return (), ()


def _draw_manner(generator: random.Random, verb: Verb, subject: Subject) -> tuple[str, str] | None:
    data = LEXICON["adverbs"]
    if generator.random() > 0.18 or verb.is_stative or verb.is_adjective or verb.objects:
        return None
    allowed = {"a lot": data["many"], "hard": data["hard"], "well": data["well"]}
    if subject.person != "plural":
        allowed["together"] = []
    rows = [(korean, english) for korean, english in data["manner"] if verb.stem in allowed.get(english, [verb.stem])]
    return generator.choice(rows)


def draw_action_words(generator: random.Random, form: Form, mode: Mode) -> Clause:
    """Draw a verb with its subject, object and place, without a time."""
    verbs = [verb for verb in VERBS if not (mode == "progressive" and (verb.is_stative or verb.is_adjective))]
    verb = generator.choice(verbs)
    while mode and (
        verb.antonym == "없" or verb.object_particle == "이" or verb.stem in LEXICON["verb_lists"]["no_mode"]
    ):
        verb = generator.choice(verbs)
    subject = draw_subject(generator, form)
    noun = _draw_object(generator, verb, subject)
    location = None
    if verb.locations and (verb.particle == "에" or generator.random() < 0.3):
        location = generator.choice([location for group in verb.locations for location in PLACES[group]])
    phrase = draw_noun_phrase(generator, noun) if noun else None
    if phrase and form == "negation" and not verb.is_stative and verb.stem in _ANYTHING and generator.random() < 0.2:
        noun, phrase = Noun("아무것", "anything", ""), ("아무것", "anything")
    extra, manner = _draw_extra(generator, verb), _draw_manner(generator, verb, subject)
    return make_action(
        verb,
        subject,
        noun,
        location,
        phrase=phrase,
        extra=extra,
        manner=manner,
        mode=mode,
        is_negative=form in NEGATIVE,
    )


def _is_ambiguous(clause: Clause) -> bool:
    """Whether the English verb is the same in the present and in the past: "I read a book"."""
    return (
        clause.head == clause.past
        and not clause.is_negative
        and not clause.mode
        and clause.subject.person != "singular"
    )


def draw_action_time(generator: random.Random, clause: Clause, tense: Tense) -> Time | None:
    """Draw a time that makes the tense clear, if the verb needs one, or none."""
    is_ambiguous = _is_ambiguous(clause)
    if clause.mode == "progressive":
        return generator.choice(NOW) if tense == "present" and generator.random() < 0.4 else None
    if not is_ambiguous and generator.random() < 0.6:
        return None
    if generator.random() < 0.25 and not is_ambiguous and not clause.mode:
        return draw_clock(generator, tense)
    times = TIMES_BY_TENSE[tense]
    if clause.mode == "must" and tense == "present" and generator.random() < 0.3:
        day = generator.choice([["내일", "tomorrow"], *words.DAYS])
        return Time(f"{day[0]}|까지", f"by {day[1]}", (tense,))
    if clause.mode and tense == "present":
        return generator.choice([*NOW[:1], *[time for time in words.TIMES if time.english in SOON]])
    if is_ambiguous or tense != "present":
        times = [time for time in times if time in words.TIMES and time.english != "today"]
    return generator.choice(times)


_ANYTHING = ("먹", "마시", "사", "만들", "읽", "쓰", "팔", "하", "준비하", "가져오", "주문하")


def draw_thing(generator: random.Random) -> tuple[Subject, Noun | None, list[tuple[str, ...]]]:
    """Draw a thing or a place, and the adjectives that go with it."""
    group = generator.choice([*QUALITIES, "places"])
    rows = QUALITIES[group]
    if generator.random() < 0.2:
        return IT, None, [row for row in rows if row[1] not in ("hot", "cold", "dark")]  # these are of the weather
    if group == "places":
        location = generator.choice(
            [
                location
                for location in PLACES["anywhere"]
                if location.to.startswith("to the ") or location.to.removeprefix("to ") in PROPER
            ]
        )
        english = location.to.removeprefix("to ")
        return Subject(location.korean, capitalize(english), "singular"), None, rows
    noun = generator.choice(NOUNS[group])
    is_plural = (
        noun.bare.endswith("s") and not noun.is_countable and noun.bare not in ("news", "the news", "bus", "class")
    )
    person: Person = "plural" if is_plural and noun.bare not in ("bus", "class", "news") else "singular"
    determiner, english = generator.choice((("", "The"), ("", "The"), ("이 ", "This"), ("저 ", "That"), ("내 ", "My")))
    if determiner and person == "plural":
        determiner, english = "", "The"
    return Subject(f"{determiner}{noun.korean}", f"{english} {noun.bare}", person), noun, rows


def draw_shared_subject(generator: random.Random) -> Subject:
    """Draw who does both things of a connected sentence."""
    candidates = [subject for subject in [*words.NAMES, *FAMILY] if not subject.korean.startswith("내 ")]
    return generator.choices((ME, ME, WE, HE, SHE, THEY, generator.choice(candidates)), (3, 2, 2, 2, 2, 1, 4))[0]
