"""The grammar of the everyday Korean-English sentences: clauses with modes, noun phrases, and two clauses together.

A ``Clause`` has a subject, a predicate, their complements, a mode ("want to", "can", "have to", "is ...ing") and a
negation; it is written in both languages, by the conjugation of ``korean_predicates`` and the word order of
``korean_english_words``. The ``draw_`` functions choose the words; the words are in ``korean_english_everyday.toml``.

A pair's Korean is in the plain style with a topic. Its variant is in one of four styles, perhaps without the subject (I
in a statement, you in a question), with an honorific, a short negation (안, 못), or a synonym.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from jumok.data.datasets import korean_english_words as words
from jumok.data.datasets.korean_english_words import (
    NEGATIVE,
    QUESTIONS,
    VOWELS,
    WHO,
    Form,
    Person,
    Place,
    Subject,
    Tense,
    Time,
    Wording,
    choose_particle,
)
from jumok.data.datasets.korean_predicates import Kind, Predicate, Style, attach

Mode = Literal["", "want", "can", "must", "progressive"]
LEXICON: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_TENSES: tuple[Tense, ...] = ("present", "past", "future")
_FORMS: tuple[Form, ...] = ("statement", "negation", "question", "negative question")
_FORM_SHARES = (5, 3, 4, 1)


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
_PEOPLE = LEXICON["people"]
_FAMILY = [*words.FAMILY, *(Subject(korean, f"My {english}", "singular") for korean, english in _PEOPLE["family"])]
_OTHERS = [*words.PEOPLE, *(Subject(*row) for row in _PEOPLE["others"])]
_HONORED = [subject for subject in [*_FAMILY, *_OTHERS] if subject.korean in _PEOPLE["honored"]]
_I, _YOU, _WE, _HE, _SHE, _THEY = words.PRONOUNS
_IT = Subject("그것", "It", "singular")  # also the weather, without a Korean subject
_FEMALE = ("지은", "서연", "유진", "어머니", "할머니", "이모", "엄마", "누나", "여동생", "딸", "아내")
_PEOPLE_ADJECTIVES = [
    *((adjective.stem, adjective.english) for adjective in words.ADJECTIVES),
    *map(tuple, LEXICON["adjectives"]["people"]),
]
_FEELINGS: list[list[str]] = LEXICON["adjectives"]["feelings"]
_QUALITIES = {
    group: [tuple(row) for row in entry["adjectives"]] for entry in LEXICON["qualities"] for group in entry["groups"]
}
_THING_STEMS = {stem for rows in _QUALITIES.values() for stem, _ in rows}
_WEATHER = LEXICON["weather"]
_NUMBERS: dict[str, list[list[str]]] = LEXICON["numbers"]


def _list_times() -> dict[Tense, list[Time]]:
    times: dict[Tense, list[Time]] = {
        tense: [time for time in words.TIMES if tense in time.tenses] for tense in _TENSES
    }
    data = LEXICON["times"]
    for tense in _TENSES:
        rows = [
            *([*data[tense]] if tense != "present" else []),
            *([f"{korean}|에", english] for korean, english in data["parts"]),
            *([f"{korean}|에", english] for korean, english in data["seasons"]),
            *([f"{korean}|에", f"in {english}"] for korean, english in _NUMBERS["months"] if tense != "present"),
        ]
        times[tense] = [*times[tense], *(Time(korean, english, (tense,)) for korean, english in rows)]
    return times


_TIMES = _list_times()
_SOON = ("today", "tomorrow", "tonight", "this weekend", "next week")  # "I have to work tomorrow"
_NOW = [Time(korean, english, ("present",)) for korean, english in LEXICON["times"]["present"]]


@dataclass(frozen=True)
class Manner:
    """How a Korean sentence is said."""

    style: Style = "plain"
    subject: Literal["topic", "subject", "dropped"] = "topic"
    time_first: bool = False
    is_short: bool = False  # 안 and 못 before the verb
    is_honorific: bool = False
    drops_particle: bool = False


_PLAIN, _CONTRACTED = Manner(), Wording()


@dataclass(frozen=True)
class Clause:
    """A clause in both languages; ``before`` and ``after`` are the Korean and the English complements.

    Attributes:
        head: The English verb, "be", or an impersonal verb of the weather.
        key: The words that decide the split.
    """

    subject: Subject
    predicate: Predicate
    head: str
    past: str = ""
    ing: str = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    mode: Mode = ""
    is_negative: bool = False
    time: Time | None = None
    frequency: tuple[str, str] | None = None
    antonym: str = ""
    key: str = ""
    drops: bool = False  # the subject follows from the predicate
    question_word: str = ""
    is_weather: bool = False

    # Korean

    def build_predicate(self, manner: Manner) -> Predicate:
        """Return the predicate with its mode and negation."""
        core, short = self.predicate, manner.is_short
        if manner.is_honorific and self.subject in (*_HONORED, _YOU):
            has = self.head == "have"  # 있으시: only a person 계시
            core = replace(core, text=attach(core.text, "으시")) if has else core.honor()
        if self.mode == "can" and self.is_negative:
            return core.negate(short=True, unable=True) if short else core.extend("을", " 수 없", "adjective")
        if self.mode == "must" and self.is_negative:
            return core.negate(short=short).extend("아도", " 되")
        if self.is_negative and self.mode == "" and self.antonym:
            return Predicate(self.antonym, core.kind)
        if self.is_negative and short and core.kind != "copula":
            core = core.negate(short=True)
        is_first = self.subject in (_I, _YOU, _WE)
        extended = {
            "": core,
            "want": core.extend("고", " 싶", "adjective") if is_first else core.extend("고", " 싶어 하"),
            "can": core.extend("을", " 수 있", "adjective"),
            "must": core.extend("아야", " 하"),
            "progressive": core.extend("고", " 있", "adjective"),
        }[self.mode] if core.kind != "copula" else core  # fmt: skip
        return extended.negate() if self.is_negative and (not short or core.kind == "copula") else extended

    def list_korean(self, manner: Manner, has_subject: bool = True) -> list[str]:
        """Return what comes before the predicate."""
        subject = self._mark_subject(manner) if has_subject else ""
        parts = [subject, self.time.korean if self.time else ""]
        before = [*self.before]
        if manner.drops_particle and before and before[-1].endswith(("|을", "|를")):
            before[-1] = before[-1][:-2]
        frequency = [self.frequency[0]] if self.frequency else []
        return [part for part in [*(parts[::-1] if manner.time_first else parts), *frequency, *before] if part]

    def _mark_subject(self, manner: Manner) -> str:
        subject, korean = self.subject, self.subject.korean
        if subject is WHO or not korean:
            return korean
        if subject is _IT and self.is_weather:
            return ""
        can_drop = subject is _I or subject is _YOU or self.drops
        if manner.subject == "dropped" and can_drop:
            return ""
        if manner.is_honorific and subject in _HONORED:
            return f"{korean}|께서" if manner.subject == "subject" else f"{korean}|께서|는"
        if subject is _I and manner.style in ("polite", "formal"):
            korean = "저"
        if manner.subject != "subject":
            return f"{korean}|{choose_particle(korean, '은', '는')}"
        special = {"나": "내|가", "저": "제|가", "너": "네|가"}.get(korean)
        return special or f"{korean}|{choose_particle(korean, '이', '가')}"

    def write_korean(self, tense: Tense, manner: Manner, is_question: bool) -> str:
        """Write the clause as a sentence, in pieces."""
        end = self.build_predicate(manner).finish(tense, manner.style, is_question)
        return " ".join([*self.list_korean(manner), end])

    # English

    def split_verb(self, tense: Tense, *, needs_auxiliary: bool) -> tuple[str, list[str]]:
        """Return the auxiliary, or "" if there is none, and the rest of the verb with its adverb."""
        person = self.subject.person
        adverb = [self.frequency[1]] if self.frequency else []
        base = self.head.split()
        ing = (self.ing or _add_ing(base[0])).split()[0]
        is_progressive = self.mode == "progressive" or (self.is_weather and tense == "present" and self.head != "be")
        if is_progressive:
            base = ["be", ing, *base[1:]]
        elif self.mode == "can":
            if tense != "future":
                return "can" if tense == "present" else "could", [*adverb, *base]
            base = ["be", "able", "to", *base]
        elif self.mode in ("want", "must"):
            base = ["want" if self.mode == "want" else "have", "to", *base]
        if tense == "future":
            return "will", [*adverb, *base]
        if base[0] == "be":
            return words.choose_be(person, tense), [*adverb, *base[1:]]
        if needs_auxiliary:
            return words.choose_auxiliary(self.subject, tense), [*adverb, *base]
        past = {"want": "wanted", "have": "had"}.get(base[0]) or self.past.partition(" ")[0]
        verb = words.Verb("", "", base[0], past)
        finite = "has" if base[0] == "have" and person == "singular" and tense == "present" else ""
        return "", [*adverb, finite or words.conjugate_english(verb, self.subject, tense), *base[1:]]

    def list_english(self, tense: Tense, wording: Wording, subject: str = "") -> list[str]:
        """Return the clause as words inside a sentence, with another subject if given."""
        auxiliary, remaining = self.split_verb(tense, needs_auxiliary=self.is_negative)
        if auxiliary:
            remaining = [wording.negate(auxiliary) if self.is_negative else auxiliary, *remaining]
        time = [self.time.english] if self.time else []
        return [subject or _lower_first(self.subject), *remaining, *self.after, *time]

    def write_english(self, tense: Tense, wording: Wording, form: Form) -> str:
        """Write the clause as a sentence."""
        if form not in QUESTIONS or self.subject is WHO:
            end = "?" if form in QUESTIONS else ""
            if self.time is not None and wording.time_first and not end:
                plain = replace(self, time=None).list_english(tense, wording)
                return _capitalize(" ".join([self.time.english, *plain]))
            return _capitalize(" ".join(self.list_english(tense, wording))) + end
        auxiliary, remaining = self.split_verb(tense, needs_auxiliary=True)
        parts = [*remaining, *self.after, *([self.time.english] if self.time else [])]
        return wording.ask(self.question_word, auxiliary, _lower_first(self.subject), form, parts)


@dataclass
class Draft:
    """Two functions that write a sentence, with what decides its split; ``everyday`` makes a pair of it."""

    write_korean: Callable[[Manner], str]
    write_english: Callable[[Wording], str]
    key: str
    pattern: str
    subject: Subject = field(default_factory=lambda: _IT)
    form: Form = "statement"
    is_polite: bool = False  # the Korean has an ending of its own
    variants: tuple[str, ...] = ()  # further Korean sentences, and English ones
    english_variants: tuple[str, ...] = ()


def _capitalize(text: str) -> str:
    return text[0].upper() + text[1:]


def _lower_first(subject: Subject) -> str:
    english = subject.english
    is_name = english == "I" or subject in words.NAMES or english.split()[0] in _PROPER
    return english if is_name else english[0].lower() + english[1:]


_PROPER = {"Seoul", "Busan", "Jeju", "London", "Paris", "Korea", "America", "Japan", "China", "England", "Korean", "TV",
           "Minsu", "Jieun", "English", "Chinese"}  # fmt: skip


def _add_ing(base: str) -> str:
    if base in ("swim", "run", "sit", "get", "plan"):
        return f"{base}{base[-1]}ing"
    return f"{base[:-1]}ing" if base.endswith("e") and base != "be" and not base.endswith("ee") else f"{base}ing"


def _add_plural(noun: str) -> str:
    first, last = noun.rpartition(" ")[::2]
    irregular = LEXICON["plurals"].get(last)
    if irregular:
        return f"{first} {irregular}".strip()
    if last.endswith("y") and last[-2] not in VOWELS:
        return f"{noun[:-1]}ies"
    return f"{noun}es" if last.endswith(("s", "x", "ch", "sh", "to")) else f"{noun}s"


def _add_article(phrase: str) -> str:
    return f"{'an' if phrase[0] in VOWELS else 'a'} {phrase}"


def _mark(korean: str, particle: str) -> str:
    """Attach a particle that depends on the final consonant."""
    pairs = {"을": ("을", "를"), "이": ("이", "가"), "은": ("은", "는"), "과": ("과", "와"), "으로": ("으로", "로")}
    if particle == "으로" and words.get_final(korean) == words.FINAL_RIEUL:
        return f"{korean}|로"
    return f"{korean}|{choose_particle(korean, *pairs.get(particle, (particle, particle)))}"


def _compare(adjective: str) -> str:
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


def _superlative(adjective: str) -> str:
    special = {"good": "best", "bad": "worst", "far": "farthest"}.get(adjective)
    comparative = _compare(adjective)
    return special or (f"most {adjective}" if comparative.startswith("more ") else f"{comparative[:-2]}est")


# Words


def _draw_subject(generator: random.Random, form: Form) -> Subject:
    if form in QUESTIONS and generator.random() < 0.6:
        return _YOU
    groups = ([_I], words.PRONOUNS, words.NAMES, _FAMILY, _OTHERS)
    subject = generator.choice(generator.choices(groups, (4, 4, 2, 3, 2))[0])
    return _YOU if form in QUESTIONS and subject in (_I, _WE) else subject


def _find_counter(noun: Noun) -> list[str] | None:
    """Return the Korean counter and the English container of a noun."""
    is_other_text = noun.group == "texts" and noun.korean not in LEXICON["verb_lists"]["counted_books"]
    return None if is_other_text else LEXICON["counters"].get(noun.group)


def _draw_noun_phrase(generator: random.Random, noun: Noun) -> tuple[str, str]:
    """Return a noun, perhaps with a number, a determiner or an adjective, in both languages."""
    share = generator.random()
    counter = _find_counter(noun)
    if share < 0.12 and counter and (noun.is_countable or len(counter) > 1):
        number_korean, number = generator.choice(_NUMBERS["counts"][:6])
        thing = noun.bare
        if len(counter) > 1:
            container = counter[1] if number == "one" else _add_plural(counter[1])
            english = f"{number} {container} of {thing}"
        else:
            english = f"{number} {thing if number == 'one' else _add_plural(thing)}"
        return f"{noun.korean} {number_korean} {counter[0]}", english
    if not noun.is_countable or share > 0.35:
        return noun.korean, noun.english
    if share < 0.2:
        korean, english = generator.choice((("이", "this"), ("저", "that")))
        return f"{korean} {noun.korean}", f"{english} {noun.bare}"
    if share < 0.27:
        return f"내 {noun.korean}", f"my {noun.bare}"
    if noun.group in _QUALITIES:
        stem, adjective = generator.choice([*_QUALITIES[noun.group], ("새", "new")])
        korean = stem if stem == "새" else Predicate(stem, "adjective").connect("은")
        korean = f"{stem}|는" if stem.endswith("있") else korean
        return f"{korean} {noun.korean}", _add_article(f"{adjective} {noun.bare}")
    return noun.korean, noun.english


def _draw_clock(generator: random.Random, tense: Tense) -> Time:
    hour_korean, hour = generator.choice(_NUMBERS["hours"])
    korean, english = f"{hour_korean} 시", f"{hour} o'clock"
    if generator.random() < 0.25:
        minute_korean, minute = generator.choice(_NUMBERS["minutes"])
        korean = f"{hour_korean} 시 {minute_korean}" + ("" if minute_korean == "반" else " 분")
        english = f"{hour} {minute}"
    part = ("", "")
    if generator.random() < 0.4:
        late = hour in ("six", "seven", "eight", "nine")
        part = (
            ("오후 ", " in the afternoon")
            if hour in ("one", "two", "three", "four", "five")
            else ("아침 ", " in the morning")
        )
        part = (
            ("저녁 ", " in the evening")
            if late and generator.random() < 0.5
            else part
            if hour != "twelve"
            else ("", "")
        )
    return Time(f"{part[0]}{korean}|에", f"at {english}{part[1]}", (tense,))


def _make_action(
    verb: Verb, subject: Subject, noun: Noun | None = None, location: Place | None = None, **fields: Any
) -> Clause:
    """Make a clause of a verb, an object and a place."""
    before, after = [], []
    if location is not None:
        before.append(f"{location.korean}|{verb.particle}")
    phrase = fields.pop("phrase", None) or (noun and (noun.korean, noun.english))
    if phrase:
        before.append("아무것|도" if phrase[0] == "아무것" else _mark(phrase[0], verb.object_particle))
        after.append(phrase[1])
    extra_korean, extra_english = fields.pop("extra", ((), ()))
    manner = fields.pop("manner", None)
    if manner:
        before.append(manner[0])
        after.append(manner[1])
    after.extend(extra_english)
    if location is not None:
        position = len(after) - len(extra_english)
        after.insert(position, location.to if verb.particle == "에" and not verb.is_state else location.at)
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
        return (_mark(person.korean, "과"),), (f"with {person.english}",)
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
        return (_mark(korean, "으로"),), (f"by {english}",)
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


def _draw_action_words(generator: random.Random, form: Form, mode: Mode) -> Clause:
    verbs = [verb for verb in VERBS if not (mode == "progressive" and (verb.is_stative or verb.is_adjective))]
    verb = generator.choice(verbs)
    while mode and (
        verb.antonym == "없" or verb.object_particle == "이" or verb.stem in LEXICON["verb_lists"]["no_mode"]
    ):
        verb = generator.choice(verbs)
    subject = _draw_subject(generator, form)
    noun = _draw_object(generator, verb, subject)
    location = None
    if verb.locations and (verb.particle == "에" or generator.random() < 0.3):
        location = generator.choice([location for group in verb.locations for location in PLACES[group]])
    phrase = _draw_noun_phrase(generator, noun) if noun else None
    if phrase and form == "negation" and not verb.is_stative and verb.stem in _ANYTHING and generator.random() < 0.2:
        noun, phrase = Noun("아무것", "anything", ""), ("아무것", "anything")
    extra, manner = _draw_extra(generator, verb), _draw_manner(generator, verb, subject)
    return _make_action(
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


def _draw_action_time(generator: random.Random, clause: Clause, tense: Tense) -> Time | None:
    is_ambiguous = _is_ambiguous(clause)
    if clause.mode == "progressive":
        return generator.choice(_NOW) if tense == "present" and generator.random() < 0.4 else None
    if not is_ambiguous and generator.random() < 0.6:
        return None
    if generator.random() < 0.25 and not is_ambiguous and not clause.mode:
        return _draw_clock(generator, tense)
    times = _TIMES[tense]
    if clause.mode == "must" and tense == "present" and generator.random() < 0.3:
        day = generator.choice([["내일", "tomorrow"], *words.DAYS])
        return Time(f"{day[0]}|까지", f"by {day[1]}", (tense,))
    if clause.mode and tense == "present":
        return generator.choice([*_NOW[:1], *[time for time in words.TIMES if time.english in _SOON]])
    if is_ambiguous or tense != "present":
        times = [time for time in times if time in words.TIMES and time.english != "today"]
    return generator.choice(times)


_ANYTHING = ("먹", "마시", "사", "만들", "읽", "쓰", "팔", "하", "준비하", "가져오", "주문하")


# Patterns


def draw_action(generator: random.Random) -> Draft:
    """나는 친구와 영화를 보고 싶다 = I want to watch a movie with my friend"""
    tense = generator.choices(_TENSES, (4, 4, 2))[0]
    form = generator.choices(_FORMS, _FORM_SHARES)[0]
    modes: tuple[Mode, ...] = ("", "want", "can", "must", "progressive")
    mode = generator.choices(modes, (6, 2, 2, 2, 2))[0]
    if mode == "progressive" and tense == "future":
        tense = "present"
    clause = _draw_action_words(generator, form, mode)
    clause = replace(clause, time=_draw_action_time(generator, clause, tense))
    if form == "statement" and not mode and clause.time is None and tense == "present" and generator.random() < 0.2:
        korean, english = generator.choice(words.ADVERBS)
        clause = replace(clause, frequency=(korean, english))
    if form in QUESTIONS and not clause.is_negative and generator.random() < 0.4:
        clause = _ask(generator, clause, tense)
    return Draft(
        lambda manner: clause.write_korean(tense, manner, form in QUESTIONS),
        lambda wording: clause.write_english(tense, wording, form),
        clause.key,
        f"{mode or 'action'}, {form}, {tense}",
        clause.subject,
        form,
    )


def _ask(generator: random.Random, clause: Clause, tense: Tense) -> Clause:
    """Return the clause with a question word."""
    location = next((i for i, part in enumerate(clause.before) if part.endswith(("|에", "|에서"))), None)
    is_going = _stem(clause) in ("가", "오") and tense == "present" and not clause.mode  # "where are you going?"
    if location is not None and not is_going and generator.random() < 0.5:
        korean, _, particle = clause.before[location].partition("|")
        at = next(entry for entry in PLACES["anywhere"] if entry.korean == korean)
        after = tuple(part for part in clause.after if part not in (at.at, at.to))
        new_before = tuple(f"어디|{particle}" if i == location else part for i, part in enumerate(clause.before))
        key = f"{clause.key.removesuffix(korean)}?"
        return replace(clause, before=new_before, after=after, question_word="Where", key=key)
    before = list(clause.before)
    choices = [("Why", "왜"), ("When", "언제"), ("What time", "몇 시|에")]
    object_index = next((i for i, part in enumerate(before) if part.endswith(("|을", "|를"))), None)
    if clause.time is not None or clause.mode == "progressive":
        choices = choices[:1]
    is_clear = (_stem(clause), clause.head) not in (("하", "play"), ("하", "speak"), ("쓰", "wear"))
    if object_index is not None and is_clear and generator.random() < 0.5:
        noun = before[object_index].split("|")[0]
        is_person = noun in [person.korean for group in ("persons", "people") for person in NOUNS[group]]
        before[object_index] = "누구|를" if is_person else "무엇|을"
        after = clause.after[1:]
        question_word = "Who" if is_person else "What"
        *first, _, last = clause.key.split(" ")
        key = " ".join([*first, "?", last])
        return replace(clause, before=tuple(before), after=after, question_word=question_word, key=key)
    question_word, korean = generator.choice(choices)
    return replace(clause, before=(korean, *before), question_word=question_word)


def draw_description(generator: random.Random) -> Draft:
    """이 가방은 저 가방보다 비싸다 = This bag is more expensive than that bag"""
    form = generator.choices(_FORMS, _FORM_SHARES)[0]
    tense = generator.choices(_TENSES, (6, 3, 1))[0]
    share = generator.random()
    if share < 0.12:
        stem, head, past = generator.choice(_FEELINGS)
        subject = _draw_subject(generator, form)
        clause = Clause(subject, Predicate(stem, "adjective"), head, past, key=f"{subject.english} {stem}")
        korean, adjective = stem, ""
    else:
        if share < 0.45:
            subject = _draw_subject(generator, form)
            korean, adjective = generator.choice(_PEOPLE_ADJECTIVES)
            thing, drops = None, False
        else:
            subject, thing, rows = _draw_thing(generator)
            korean, adjective = generator.choice(rows)
            drops = subject is _IT
        clause = Clause(
            subject, Predicate(korean, "adjective"), "be", after=(adjective,), key=f"{subject.english} {korean}",
            drops=drops,
        )  # fmt: skip
        if subject in (_I, _YOU) and korean in _THING_STEMS:  # "비싸요" is "it is expensive"
            clause = replace(clause, subject=_HE, key=f"He {korean}")
            subject = _HE
        clause = _modify(generator, clause, adjective, thing, form)
    clause = replace(clause, is_negative=form in NEGATIVE)
    if generator.random() < 0.2 and adjective:
        time = generator.choice(_NOW if tense == "present" else [time for time in words.TIMES if tense in time.tenses])
        clause = replace(clause, time=time)
    return Draft(
        lambda manner: clause.write_korean(tense, manner, form in QUESTIONS),
        lambda wording: clause.write_english(tense, wording, form),
        clause.key,
        f"adjective, {form}, {tense}",
        clause.subject,
        form,
    )


def _draw_thing(generator: random.Random) -> tuple[Subject, Noun | None, list[tuple[str, ...]]]:
    """Draw a thing or a place, and the adjectives that go with it."""
    group = generator.choice([*_QUALITIES, "places"])
    rows = _QUALITIES[group]
    if generator.random() < 0.2:
        return _IT, None, [row for row in rows if row[1] not in ("hot", "cold", "dark")]  # these are of the weather
    if group == "places":
        location = generator.choice(
            [
                location
                for location in PLACES["anywhere"]
                if location.to.startswith("to the ") or location.to.removeprefix("to ") in _PROPER
            ]
        )
        english = location.to.removeprefix("to ")
        return Subject(location.korean, _capitalize(english), "singular"), None, rows
    noun = generator.choice(NOUNS[group])
    is_plural = (
        noun.bare.endswith("s") and not noun.is_countable and noun.bare not in ("news", "the news", "bus", "class")
    )
    person: Person = "plural" if is_plural and noun.bare not in ("bus", "class", "news") else "singular"
    determiner, english = generator.choice((("", "The"), ("", "The"), ("이 ", "This"), ("저 ", "That"), ("내 ", "My")))
    if determiner and person == "plural":
        determiner, english = "", "The"
    return Subject(f"{determiner}{noun.korean}", f"{english} {noun.bare}", person), noun, rows


def _modify(generator: random.Random, clause: Clause, adjective: str, thing: Noun | None, form: Form) -> Clause:
    """Return a description with a degree, or as a comparison."""
    share = generator.random()
    if share < 0.3 and form != "negation":
        korean, english = generator.choice(LEXICON["adjectives"]["degrees"])
        return replace(clause, before=(korean,), after=(english, adjective))
    if share < 0.36 and clause.subject is not _IT:
        return replace(clause, before=("제일",), after=("the", _superlative(adjective)))
    if share < 0.5 and clause.subject is not _IT:
        if thing is not None:
            other = generator.choice([noun for noun in NOUNS[thing.group] if noun != thing] or [thing])
            korean, english = other.korean, f"the {other.bare}"
            if thing.is_countable and generator.random() < 0.4:
                is_that = clause.subject.english.startswith("That ")
                korean, english = (
                    f"{'이' if is_that else '저'} {thing.korean}",
                    f"{'this' if is_that else 'that'} {thing.bare}",
                )
        else:
            other_subject = generator.choice([*words.NAMES, *_FAMILY])
            korean, english = other_subject.korean, _lower_first(other_subject)
        if korean != clause.subject.korean:
            return replace(clause, before=(f"{korean}|보다",), after=(_compare(adjective), f"than {english}"))
    return clause


def _draw_weather_clause(generator: random.Random) -> Clause:
    share = generator.random()
    if share < 0.35:
        korean, english = generator.choice(_WEATHER["verbs"])
        return Clause(_IT, Predicate(korean), english, key=korean, is_weather=True)
    if share < 0.42:
        korean, english = _WEATHER["winds"][0]
        return Clause(_IT, Predicate(korean), "be", after=(english,), key=korean, is_weather=True)
    if share < 0.6:
        korean, english = generator.choice(_WEATHER["subjects"])
        return Clause(
            Subject("날씨", "The weather", "singular"), Predicate(korean, "adjective"), "be", after=(english,),
            key=f"날씨 {korean}",
        )  # fmt: skip
    korean, english = generator.choice(_WEATHER["adjectives"])
    return Clause(_IT, Predicate(korean, "adjective"), "be", after=(english,), key=korean, is_weather=True)


def draw_weather(generator: random.Random) -> Draft:
    """밖에 비가 온다 = It is raining outside"""
    clause = _draw_weather_clause(generator)
    form = generator.choices(_FORMS, (6, 2, 3, 1))[0]
    tense = generator.choices(_TENSES, (4, 3, 3))[0]
    if clause.head == "be" and clause.is_weather and generator.random() < 0.25 and form != "negation":
        korean, english = generator.choice(LEXICON["adjectives"]["degrees"][:3])
        clause = replace(clause, before=(korean,), after=(english, *clause.after))
    elif clause.head != "be" and generator.random() < 0.2:
        prefix, _, remaining = clause.predicate.text.rpartition(" ")
        clause = replace(clause, predicate=Predicate(f"{prefix} 많이 {remaining}"), after=("a lot",))
    if generator.random() < 0.3:
        korean, english = generator.choice(_WEATHER["where"])
        setting = f"{korean}|에" if clause.head != "be" or korean == "밖" else _mark(korean, "은")
        clause = replace(clause, before=(setting, *clause.before), after=(*clause.after, english))
    time = None
    if generator.random() < 0.6:
        time = generator.choice([*_NOW[:1], Time("오늘", "today", _TENSES)] if tense == "present" else _TIMES[tense])
        if (
            clause.head == "be"
            and clause.is_weather
            and tense == "present"
            and "|" not in time.korean
            and not any("|은" in part or "|는" in part for part in clause.before)
        ):
            time = replace(time, korean=_mark(time.korean, "은"))
    clause = replace(clause, time=time, is_negative=form in NEGATIVE)

    def write_korean(manner: Manner) -> str:
        subject: Any = "subject" if clause.subject.korean == "날씨" else manner.subject
        text = clause.write_korean(tense, replace(manner, subject=subject, time_first=True), form in QUESTIONS)
        return re.sub(r"^(오늘|지금|요즘)\|[은는]", r"\1", text) if manner.is_short else text

    return Draft(
        write_korean,
        lambda wording: clause.write_english(tense, wording, form),
        f"weather {clause.key} {time.english if time else '-'}",
        f"weather, {form}, {tense}",
        _IT,
        form,
    )


def draw_copula(generator: random.Random) -> Draft:
    """이것은 내 책이다 = This is my book"""
    form = generator.choices(_FORMS, _FORM_SHARES)[0]
    tense: Tense = "present"
    kind = generator.choice(("this", "this", "nation", "today", "name", "age", "price", "clock", "month"))
    time = None
    if kind == "this":
        noun = generator.choice(
            [
                noun
                for group in ("things", "texts", "machines", "fruit", "clothes", "tickets")
                for noun in NOUNS[group]
                if noun.is_countable
            ]
        )
        subject = Subject(
            *generator.choice((("이것", "This", "singular"), ("저것", "That", "singular"), ("그것", "It", "singular")))
        )
        korean, english = _draw_noun_phrase(generator, replace(noun, group="thing"))
        clause = Clause(
            subject, Predicate(korean, "copula"), "be", after=(english,), key=f"{subject.english} is {noun.korean}"
        )
    elif kind == "nation":
        subject = _draw_subject(generator, form)
        korean, english = generator.choice(_PEOPLE["nationalities"])
        clause = Clause(subject, Predicate(korean, "copula"), "be", after=(english,), key=f"{subject.english} {korean}")
        tense = "present"
    elif kind == "today":
        korean, english = generator.choice(words.DAYS)
        day_korean, day, tense = generator.choice(
            (("오늘", "Today", "present"), ("내일", "Tomorrow", "present"), ("어제", "Yesterday", "past"))
        )
        clause = Clause(
            Subject(day_korean, day, "singular"),
            Predicate(korean, "copula"),
            "be",
            after=(english,),
            key=f"{day} {korean}",
        )
    elif kind == "name":
        owner_korean, owner = generator.choice(
            (
                ("내", "My"),
                ("내", "My"),
                ("그의", "His"),
                ("그녀의", "Her"),
                ("내 남동생의", "My younger brother's"),
                ("내 친구의", "My friend's"),
            )
        )
        name = generator.choice(words.NAMES)
        clause = Clause(
            Subject(f"{owner_korean} 이름", f"{owner} name", "singular"),
            Predicate(name.korean, "copula"),
            "be",
            after=(name.english,),
            key=f"{owner} name {name.english}",
        )
    elif kind == "age":
        subject = _draw_subject(generator, form)
        korean, english = generator.choice(_NUMBERS["ages"])
        clause = Clause(
            subject,
            Predicate(f"{korean} 살", "copula"),
            "be",
            after=(english, "years", "old"),
            key=f"{subject.english} age {english}",
        )
    elif kind == "price":
        subject, _, _ = _draw_thing(generator)
        while subject.korean in [location.korean for location in PLACES["anywhere"]]:
            subject, _, _ = _draw_thing(generator)
        if generator.random() < 0.4:
            be = words.choose_be(subject.person, "present")
            topic, price = _mark(subject.korean, "은"), Predicate("얼마", "copula")
            return Draft(
                lambda manner: f"{topic} {price.finish('present', manner.style, True)}",
                lambda wording: f"How much {be} {_lower_first(subject)}?",
                f"price {subject.english}", "number, question, present", _IT, "question",
            )  # fmt: skip
        korean, english = generator.choice(_NUMBERS["prices"])
        clause = Clause(
            subject,
            Predicate(f"{korean} 원", "copula"),
            "be",
            after=(english, "won"),
            key=f"{subject.english} price {english}",
            drops=subject is _IT,
        )
    elif kind == "clock":
        clock = _draw_clock(generator, "present")
        korean = clock.korean.removesuffix("|에")
        clause = Clause(
            Subject("지금", "It", "singular"),
            Predicate(korean, "copula"),
            "be",
            after=(clock.english.removeprefix("at "), "now"),
            key=f"clock {clock.english}",
        )
    else:
        korean, english = generator.choice(_NUMBERS["months"])
        owner_korean, owner = generator.choice(
            (
                ("내 생일", "My birthday"),
                ("그의 생일", "His birthday"),
                ("그녀의 생일", "Her birthday"),
                ("시험", "The exam"),
                ("방학", "The vacation"),
            )
        )
        clause = Clause(
            Subject(owner_korean, owner, "singular"),
            Predicate(korean, "copula"),
            "be",
            after=("in", english),
            key=f"{owner} {english}",
        )
    clause = replace(clause, is_negative=form in NEGATIVE, time=time)
    final_tense = tense
    return Draft(
        lambda manner: clause.write_korean(final_tense, manner, form in QUESTIONS),
        lambda wording: clause.write_english(final_tense, wording, form),
        clause.key,
        f"{'number' if kind in ('age', 'price', 'clock', 'month') else 'is'}, {form}, {tense}",
        clause.subject,
        form,
    )


def draw_place(generator: random.Random) -> Draft:
    """은행은 학교 옆에 있다 = The bank is next to the school; 책상 위에 책이 있다 = There is a book on the desk"""
    form = generator.choices(_FORMS, _FORM_SHARES)[0]
    tense: Tense = generator.choices(_TENSES[:2], (4, 1))[0]
    if generator.random() < 0.2:
        return _draw_whereabouts(generator, form, tense)
    position_korean, position = generator.choice(LEXICON["positions"]["list"])
    locations = [location for location in PLACES["anywhere"] if location.to.startswith("to the ")]
    is_existence = generator.random() < 0.45
    inside, flat = ("가방", "그릇", "지갑"), ("책상", "의자", "침대", "탁자")
    furniture = [noun for noun in NOUNS["things"] if noun.korean in (inside if position == "in" else flat)]
    if is_existence or generator.random() < 0.3:
        if position in ("on", "under", "in") or generator.random() < 0.3:
            base = generator.choice(furniture)
            setting = (f"{base.korean} {position_korean}", f"{position} the {base.bare}")
            things = [noun for group in ("things", "texts", "fruit", "animals", "tickets") for noun in NOUNS[group]]
            things = [noun for noun in things if noun.korean not in flat]
        else:
            location = generator.choice(locations)
            setting = (f"{location.korean} {position_korean}", f"{position} {location.to.removeprefix('to ')}")
            things = NOUNS["animals"] + [
                Noun(p.korean, _add_article(p.to.removeprefix("to the ")), "places") for p in locations
            ]
            if generator.random() < 0.3:
                setting = ("근처", "nearby")
        thing = generator.choice([noun for noun in things if noun.is_countable and noun.korean not in setting[0]])
        phrase = (
            _draw_noun_phrase(generator, thing)
            if thing.group in LEXICON["counters"] and generator.random() < 0.4
            else (thing.korean, thing.english)
        )
        is_plural = phrase[1].split()[0] in [row[1] for row in _NUMBERS["counts"][1:]]
        if phrase[1].split()[0] in ("this", "that", "my"):
            phrase = (thing.korean, thing.english)
        key = f"there is {thing.korean} {setting[0]}"
        subject = Subject(thing.korean, f"The {thing.bare}", "singular")
        before, after = [f"{setting[0]}|에"], [setting[1]]
        if is_existence:
            subject = Subject("", "There", "plural" if is_plural else "singular")
            before, after = [*before, _mark(phrase[0], "이")], [phrase[1], *after]
    else:
        a, b = generator.sample(locations, 2)
        beside = [row for row in LEXICON["positions"]["list"] if row[1] not in ("on", "under", "in")]
        position_korean, position = generator.choice(beside)
        if form == "question" and generator.random() < 0.6:
            return _draw_where(generator, a, tense)
        subject = Subject(a.korean, _capitalize(a.to.removeprefix("to ")), "singular")
        before, after = [f"{b.korean} {position_korean}|에"], [position, b.to.removeprefix("to ")]
        key = f"{a.korean} {position} {b.korean}"
    clause = Clause(
        subject, Predicate("있", "adjective"), "be", before=tuple(before), after=tuple(after), antonym="없", key=key,
        is_negative=form in NEGATIVE,
    )  # fmt: skip
    return Draft(
        lambda manner: clause.write_korean(tense, manner, form in QUESTIONS),
        lambda wording: clause.write_english(tense, wording, form),
        clause.key, f"place, {form}, {tense}", clause.subject, form,
    )  # fmt: skip


def _draw_whereabouts(generator: random.Random, form: Form, tense: Tense) -> Draft:
    """어머니는 집에 계신다 = My mother is at home"""
    subject, location = _draw_subject(generator, form), generator.choice(PLACES["anywhere"])
    time = generator.choice([*_NOW[:1], Time("오늘", "today", _TENSES)] if tense == "present" else _TIMES[tense])
    clause = Clause(
        subject, Predicate("있", "adjective"), "be", antonym="없",
        before=(f"{location.korean}|에",), after=(location.at,),
        key=f"{subject.english} is {location.korean}", time=time if generator.random() < 0.4 else None,
        is_negative=form in NEGATIVE,
    )  # fmt: skip
    return Draft(
        lambda manner: clause.write_korean(tense, manner, form in QUESTIONS),
        lambda wording: clause.write_english(tense, wording, form),
        clause.key, f"place, {form}, {tense}", subject, form,
    )  # fmt: skip


def _draw_where(generator: random.Random, location: Place, tense: Tense) -> Draft:
    """화장실은 어디에 있니? = Where is the bathroom?"""
    nouns = [
        noun for group in ("things", "texts", "accessories", "animals") for noun in NOUNS[group] if noun.is_countable
    ]
    korean, english = location.korean, location.to.removeprefix("to ")
    if generator.random() < 0.4:
        noun = generator.choice(nouns)
        korean, english = generator.choice(
            ((noun.korean, f"the {noun.bare}"), (f"내 {noun.korean}", f"my {noun.bare}"))
        )
    be = words.choose_be("singular", tense)

    def write_korean(manner: Manner) -> str:
        if manner.is_short and tense == "present":
            return f"{_mark(korean, '이')} {Predicate('어디', 'copula').finish(tense, manner.style, True)}"
        return f"{_mark(korean, '은')} 어디|에 {Predicate('있', 'adjective').finish(tense, manner.style, True)}"

    return Draft(write_korean, lambda wording: f"Where {be} {english}?", f"where {korean}", f"place, question, {tense}",
                 _IT, "question")  # fmt: skip


def draw_request(generator: random.Random) -> Draft:
    """창문을 열어 주세요 = Please open the window; 같이 영화를 보자 = Let's watch a movie together"""
    kind = generator.choice(
        ("please", "order", "do", "do not", "let us", "shall we", "may", "may not", "give", "direction")
    )
    if kind == "give":
        return _draw_give(generator)
    if kind == "direction":
        korean, english = generator.choice(LEXICON["directions"]["ways"])
        verb = generator.choice((("가", "Go"), ("가", "Go"), ("보", "Look")))
        return _draft_fixed(_mark(korean, "으로"), verb[0], f"{verb[1]} {english}", f"direction {korean} {verb[0]}")
    clause = _draw_action_words(generator, "statement", "")
    while "너" in clause.key.split() or not _can_request(clause, kind):
        clause = _draw_action_words(generator, "statement", "")
    verb_phrase = " ".join([clause.head, *clause.after])
    key = f"You {clause.key.removeprefix(clause.subject.english + ' ')}"
    before = " ".join(clause.before)
    core = clause.predicate
    subject, form, variants = _YOU, "statement", ()
    is_together = (
        kind in ("let us", "shall we")
        and "with" not in verb_phrase
        and "alone" not in verb_phrase
        and "together" not in verb_phrase
        and generator.random() < 0.5
    )
    if is_together:
        before, verb_phrase = f"같이 {before}".strip(), f"{verb_phrase} together"

    def write(core: Predicate, manner: Manner) -> str:
        plain, casual, polite, formal = {
            "please": ("아 주세요",) * 2 + ("아 주세요", "아 주십시오"),
            "order": ("으세요", "아", "으세요", "으십시오"),
            "do": ("으세요", "아", "으세요", "으십시오"),
            "do not": ("지 마세요", "지 마", "지 마세요", "지 마십시오"),
            "let us": ("자", "자", "읍시다", "읍시다"),
            "shall we": ("을까?", "을까?", "을까요?", "을까요?"),
            "may": ("아도 되니?", "아도 돼?", "아도 돼요?", "아도 됩니까?"),
            "may not": ("으면 안 된다", "으면 안 돼", "으면 안 돼요", "으면 안 됩니다"),
        }[kind]
        ending = {"plain": plain, "casual": casual, "polite": polite, "formal": formal}[manner.style]
        if kind == "please" and manner.drops_particle:  # 도와주세요 without a space
            ending = ending.replace("아 ", "아")
        return _end_request(core, ending)

    english = {
        "please": f"Please {verb_phrase}", "order": _capitalize(verb_phrase), "do": _capitalize(verb_phrase),
        "do not": f"Don't {verb_phrase}", "let us": f"Let's {verb_phrase}", "shall we": f"Shall we {verb_phrase}?",
        "may": f"May I {verb_phrase}?", "may not": f"You must not {verb_phrase}",
    }[kind]  # fmt: skip
    other = {
        "do not": f"Please don't {verb_phrase}", "may": f"Can I {verb_phrase}?",
        "may not": f"You mustn't {verb_phrase}", "please": f"{_capitalize(verb_phrase)} please",
    }.get(kind)  # fmt: skip
    return Draft(
        lambda manner: f"{before} {write(core, manner)}".strip(),
        lambda wording: other if other and not wording.is_contracted else english,
        key, f"{kind}, {form}, present", subject, "statement", variants=variants,
    )  # fmt: skip


def _can_request(clause: Clause, kind: str) -> bool:
    if clause.head == "be late":
        return kind in ("do not", "may not")
    return clause.predicate.kind == "verb" and _stem(clause) not in LEXICON["verb_lists"]["no_request"]


def _stem(clause: Clause) -> str:
    return clause.predicate.text


def _end_request(core: Predicate, ending: str) -> str:
    """Attach an ending of a request, whose words and pieces are set."""
    first, _, remaining = ending.partition(" ")
    if first.startswith("을"):
        return core.connect("을") + (f"|{first[1:]}" if first != "을" else "") + (f" {remaining}" if remaining else "")
    if first == "읍시다":
        stem = core.connect("으면").removesuffix("|면").removesuffix("|으면")
        open_stem = words.get_final(stem) in (0, words.FINAL_RIEUL)
        return f"{words.set_final(stem, words.FINAL_BIEUP)}|시다" if open_stem else f"{stem}|읍시다"
    return core.connect(first) + (f" {remaining}" if remaining else "")


def _draft_fixed(before: str, stem: str, english: str, key: str) -> Draft:
    core = Predicate(stem)
    endings = {"plain": "으세요", "casual": "아", "polite": "으세요", "formal": "으십시오"}
    return Draft(
        lambda manner: f"{before} {_end_request(core, endings[manner.style])}",
        lambda wording: english if wording.is_contracted else f"Please {english[0].lower()}{english[1:]}",
        key, "direction, statement, present", _YOU,
    )  # fmt: skip


def _draw_give(generator: random.Random) -> Draft:
    """커피 두 잔 주세요 = Please give me two cups of coffee"""
    groups = ("hot drinks", "cold drinks", "alcohol", "fruit", "snacks", "food", "things", "tickets", "texts")
    noun = generator.choice(NOUNS[generator.choice(groups)])
    korean, english = noun.korean, noun.english
    counter = _find_counter(noun)
    if counter and generator.random() < 0.7 and (noun.is_countable or len(counter) > 1):
        number_korean, number = generator.choice(_NUMBERS["counts"][:6])
        korean = f"{korean} {number_korean} {counter[0]}"
        unit = counter[1] if len(counter) > 1 else noun.bare
        english = f"{number} {unit if number == 'one' else _add_plural(unit)}"
        if len(counter) > 1:
            english += f" of {noun.bare}"
    elif generator.random() < 0.25 and noun.is_countable:
        korean, english = f"이 {korean}", f"this {noun.bare}"

    def write_korean(manner: Manner) -> str:
        ending = {"casual": "줘", "formal": "주십시오"}.get(manner.style, "주세요")
        return f"{korean if manner.drops_particle or manner.is_short else _mark(korean, '을')} {ending}"

    def write_english(wording: Wording) -> str:
        if wording.is_contracted:
            return f"Please give me {english}"
        return f"{_capitalize(english)} please"

    return Draft(write_korean, write_english, f"give {noun.korean}", "give, statement, present", _YOU)


# Two clauses


def _draw_shared_subject(generator: random.Random) -> Subject:
    candidates = [subject for subject in [*words.NAMES, *_FAMILY] if not subject.korean.startswith("내 ")]
    return generator.choices((_I, _I, _WE, _HE, _SHE, _THEY, generator.choice(candidates)), (3, 2, 2, 2, 2, 1, 4))[0]


def _choose_pronoun(subject: Subject) -> str:
    if subject in words.PRONOUNS:
        return _lower_first(subject)
    if subject.person == "plural":
        return "they"
    return "she" if subject.korean in _FEMALE or subject.korean.startswith("여자") else "he"


def parse_clause(text: str, subject: Subject) -> Clause:
    """Make a clause of the words of the file: "[mode,] verb [, object] [, @place] [, *adverb]"."""
    first, *remaining = [part.strip() for part in text.split(",")]
    modes: dict[str, tuple[Mode, bool]] = {
        "want": ("want", False), "can": ("can", False), "must": ("must", False), "not": ("", True),
        "cannot": ("can", True),
    }  # fmt: skip
    mode, is_negative = modes.get(first, ("", False))
    if first in modes:
        first, *remaining = remaining
    weather = dict(_WEATHER["verbs"])
    weather_adjectives = dict(_WEATHER["adjectives"])
    if first in weather:
        return Clause(_IT, Predicate(first), weather[first], key=first, is_weather=True)
    if first in weather_adjectives or first == _WEATHER["winds"][0][0]:
        kind: Kind = "adjective" if first in weather_adjectives else "verb"
        english = weather_adjectives.get(first, "windy")
        return Clause(_IT, Predicate(first, kind), "be", after=(english,), key=first, is_weather=True)
    if first in ("날씨", "시험"):
        english = dict(_WEATHER["subjects"] if first == "날씨" else _QUALITIES["lessons"])[remaining[0]]
        noun = "weather" if first == "날씨" else "exam"
        thing = Subject(first, f"The {noun}", "singular")
        return Clause(
            thing, Predicate(remaining[0], "adjective"), "be", after=(english,), key=f"{first} {remaining[0]}"
        )
    people = dict(_PEOPLE_ADJECTIVES)
    if first in people:
        return Clause(
            subject, Predicate(first, "adjective"), "be", after=(people[first],), key=first, is_negative=is_negative
        )
    feelings = {stem: (head, past) for stem, head, past in _FEELINGS}
    if first in feelings:
        return Clause(subject, Predicate(first, "adjective"), *feelings[first], key=first, is_negative=is_negative)
    if first == "집":
        first, remaining = remaining[0], ["@집"]
    negative = first == "없"
    first = "있" if negative else first
    objects = [part for part in remaining if part[0] not in "@*"]
    location = next(
        (
            location
            for part in remaining
            if part[0] == "@"
            for location in PLACES["anywhere"]
            if location.korean == part[1:]
        ),
        None,
    )
    manner = next(
        (
            tuple(row)
            for part in remaining
            if part[0] == "*"
            for row in LEXICON["adverbs"]["manner"]
            if row[0] == part[1:]
        ),
        None,
    )
    for verb in sorted(VERBS, key=lambda verb: bool(verb.objects) != bool(objects)):
        if verb.stem != first:
            continue
        nouns = [noun for group in verb.objects for noun in NOUNS[group] if objects and noun.korean == objects[0]]
        if objects and not nouns:
            continue
        return _make_action(
            verb,
            subject,
            nouns[0] if nouns else None,
            location,
            manner=manner,
            mode=mode,
            is_negative=is_negative or negative,
        )
    raise AssertionError(f"no verb for {text!r}")


def draw_connected(generator: random.Random) -> Draft:
    """나는 피곤해서 일찍 잤다 = I slept early because I was tired"""
    kind = generator.choices(
        ("because", "if", "when", "and", "before", "after", "but", "errand", "thing but"),
        (5, 3, 2, 3, 1.5, 1.5, 2, 2, 1.5),
    )[0]
    subject = _draw_shared_subject(generator)
    if kind == "thing but":
        return _draw_thing_contrast(generator)
    if kind == "errand":
        return _draw_errand(generator)
    if kind in ("because", "if", "when"):
        theme = generator.choice(LEXICON["themes"])
        texts = generator.choice(theme["because"]), generator.choice(theme["then"])
    elif kind == "but":
        texts = generator.choice(LEXICON["contrasts"][0]["pairs"])
    else:
        steps = generator.choice(LEXICON["sequences"])["steps"]
        index = generator.randrange(len(steps) - 1)
        texts = steps[index], steps[index + 1]
    first, second = parse_clause(texts[0], subject), parse_clause(texts[1], subject)
    tense = generator.choices(
        _TENSES, {"because": (2, 3, 0), "if": (1, 0, 3), "when": (1, 0, 0), "but": (3, 2, 0)}.get(kind, (2, 2, 1))
    )[0]
    return _connect(kind, first, second, tense, f"{subject.english} {texts[0]} {texts[1]}")


def _connect(kind: str, first: Clause, second: Clause, tense: Tense, key: str) -> Draft:
    subject = second.subject if not second.is_weather else first.subject
    is_shared = first.subject == second.subject
    pronoun = _choose_pronoun(subject)

    def write_korean(manner: Manner) -> str:
        clause = replace(first, subject=first.subject)
        predicate = clause.build_predicate(manner)
        past = tense == "past"
        if kind == "because":
            if manner.is_short:
                end = predicate.connect_past("으니까") if past else predicate.connect("으니까")
            elif manner.time_first:
                end = (predicate.connect_past("기") if past else predicate.connect("기")) + " 때문|에"
            else:
                end = predicate.connect("아서")
        elif kind == "if":
            end = predicate.connect("으면")
        elif kind == "when":
            end = f"{predicate.connect('을')} 때"
        elif kind == "but":
            if manner.is_short:
                end = predicate.connect_past("는데") if past else _connect_background(predicate)
            else:
                end = predicate.connect_past("지만") if past else predicate.connect("지만")
        elif kind == "and":
            end = predicate.connect("고")
        else:
            end = (
                f"{predicate.connect('기')} 전|에"
                if kind == "before"
                else f"{predicate.connect('은')} {'다음' if manner.is_short else '후'}|에"
            )
        tail = second.build_predicate(manner).finish(tense, manner.style, False)
        if is_shared or first.subject is _IT:
            start = [*second.list_korean(manner)[:0], *_start(second if first.is_weather else first, manner)]
            complements = first.list_korean(replace(manner, drops_particle=False), has_subject=False)
            if first.is_weather:  # the weather first, then who
                return " ".join([*complements, end, *start, *second.list_korean(manner, has_subject=False), tail])
            return " ".join([*start, *complements, end, *second.list_korean(manner, has_subject=False), tail])
        marked = replace(manner, subject="subject")
        return " ".join([*first.list_korean(marked), end, *second.list_korean(manner), tail])

    def write_english(wording: Wording) -> str:
        name = _lower_first(subject)
        first_tense: Tense = (
            "present" if kind in ("if", "when") or (kind in ("before", "after") and tense == "future") else tense
        )
        own_first = is_shared

        def say(clause: Clause, tense: Tense, subject_text: str) -> list[str]:
            return clause.list_english(tense, wording, subject_text if clause.subject == subject else "")

        if kind == "because":
            if wording.time_first:
                return _capitalize(
                    " ".join(["because", *say(first, tense, name), *say(second, tense, pronoun if own_first else name)])
                )
            if not wording.is_contracted:
                return _capitalize(
                    " ".join([*say(first, tense, name), "so", *say(second, tense, pronoun if own_first else name)])
                )
            return _capitalize(" ".join([*say(second, tense, name), "because", *say(first, tense, pronoun)]))
        if kind in ("if", "when"):
            sub = _simple(first)
            if wording.time_first:
                return _capitalize(" ".join([*say(second, tense, name), kind, *say(sub, first_tense, pronoun)]))
            return _capitalize(
                " ".join([kind, *say(sub, first_tense, name), *say(second, tense, pronoun if own_first else name)])
            )
        if kind == "but":
            return _capitalize(" ".join([*say(first, tense, name), "but", *say(second, tense, pronoun)]))
        if kind == "and":
            _, remaining = second.split_verb(tense, needs_auxiliary=False)
            return _capitalize(" ".join([*say(first, tense, name), "and", *remaining, *second.after]))
        return _capitalize(
            " ".join([*say(second, tense, name), kind, *say(first, "present" if tense == "future" else tense, pronoun)])
        )

    if kind == "before":  # "B before A": 전에 comes after the later action
        first, second = second, first
    return Draft(write_korean, write_english, f"{kind} {key}", f"{kind}, statement, {tense}", subject)


def _simple(clause: Clause) -> Clause:
    """Return a clause of the weather without "is ...ing": "if it rains"."""
    return replace(clause, is_weather=False) if clause.is_weather and clause.head != "be" else clause


def _connect_background(predicate: Predicate) -> str:
    is_verbal = predicate.kind == "verb" or predicate.text.endswith(("있", "없"))
    return predicate.connect("는데") if is_verbal else f"{predicate.connect('은')}|데"


def _start(clause: Clause, manner: Manner) -> list[str]:
    subject = clause._mark_subject(manner)
    return [subject] if subject else []


def _draw_thing_contrast(generator: random.Random) -> Draft:
    """이 가방은 비싸지만 좋다 = This bag is expensive but good"""
    subject, _, rows = _draw_thing(generator)
    english_words = {row[0]: row[1] for row in rows}
    pairs = [
        pair for pair in LEXICON["contrasts"][0]["things"] if pair[0] in english_words and pair[1] in english_words
    ]
    if not pairs:
        return _draw_thing_contrast(generator)
    a, b = generator.choice(pairs)
    tense: Tense = generator.choice(("present", "past"))
    be = words.choose_be(subject.person, tense)
    topic = _mark(subject.korean, "은")
    first_english, second_english = english_words[a], english_words[b]
    pronoun = "they" if subject.person == "plural" else "it"

    def write_korean(manner: Manner) -> str:
        first = Predicate(a, "adjective")
        ending = ("는데" if tense == "past" else None) if manner.is_short else "지만"
        start = [] if subject is _IT and manner.subject == "dropped" else [topic]
        if ending is None:
            middle = _connect_background(first)
        else:
            middle = first.connect_past(ending) if tense == "past" else first.connect(ending)
        return " ".join([*start, middle, Predicate(b, "adjective").finish(tense, manner.style, False)])

    return Draft(
        write_korean,
        lambda wording: f"{subject.english} {be} {first_english} but {second_english}" if wording.is_contracted
        else f"{subject.english} {be} {first_english} but {pronoun} {be} {second_english}",
        f"{subject.english} {a} {b}", f"but, statement, {tense}", _IT,
    )  # fmt: skip


def _draw_errand(generator: random.Random) -> Draft:
    """나는 책을 읽으러 도서관에 간다 = I go to the library to read a book"""
    entry = generator.choice(LEXICON["errands"])
    form: Form = generator.choices(("statement", "question", "negation"), (4, 2, 1))[0]
    tense = generator.choices(_TENSES, (2, 3, 2))[0]
    subject = _YOU if form == "question" else _draw_shared_subject(generator)
    location = _find_place(generator.choice(entry["places"]))
    errand = parse_clause(generator.choice(entry["do"]), subject)
    verb = next(verb for verb in VERBS if verb.stem == "가")
    goal = " ".join(["to", errand.head, *errand.after])
    before = (*errand.before, errand.predicate.connect("으러"))
    clause = _make_action(verb, subject, None, location, is_negative=form == "negation")
    if generator.random() < 0.3:
        clause = replace(clause, mode=generator.choice(("want", "must")))
    times = [time for time in words.TIMES if tense in time.tenses]
    time = generator.choice(times) if generator.random() < 0.4 and not clause.mode else None
    clause = replace(
        clause,
        before=(*before, *clause.before),
        after=(*clause.after, goal),
        time=time,
        key=f"errand {subject.english} {errand.key} {location.korean}",
    )
    return Draft(
        lambda manner: clause.write_korean(tense, manner, form == "question"),
        lambda wording: clause.write_english(tense, wording, form),
        clause.key, f"errand, {form}, {tense}", subject, form,
    )  # fmt: skip


def _find_place(korean: str) -> Place:
    return next(location for location in PLACES["anywhere"] if location.korean == korean)


# Sentences

_PATTERNS: list[tuple[Callable[[random.Random], Draft], float]] = [
    (draw_action, 0.4), (draw_description, 0.15), (draw_weather, 0.06), (draw_copula, 0.1), (draw_place, 0.08),
    (draw_request, 0.11), (draw_connected, 0.16),
]  # fmt: skip


def draw_draft(generator: random.Random) -> Draft:
    """Draw a sentence."""
    draw = generator.choices([draw for draw, _ in _PATTERNS], [share for _, share in _PATTERNS])[0]
    return draw(generator)


def write_draft(generator: random.Random, draft: Draft) -> tuple[str, str, str, str]:
    """Return the Korean in pieces, its variant, the English and its variant."""
    korean, english = draft.write_korean(_PLAIN), draft.write_english(_CONTRACTED)
    manner = _draw_manner_of_speech(generator, draft)
    wording = Wording(generator.random() < 0.5, generator.random() < 0.2)
    variant = _replace_synonyms(generator, draft.write_korean(manner), LEXICON["synonyms"]["korean"], "|? ")
    if generator.random() < 0.4:
        variant = re.sub(r"(^| )저 ", r"\1그 ", variant)  # both are "that"; the pronoun 저 has a particle
    english_variant = _replace_synonyms(generator, draft.write_english(wording), LEXICON["synonyms"]["english"], "? ")
    return korean, variant, english, english_variant.replace("can not", "cannot")


_REQUESTS = ("please", "order", "do", "do not", "let us", "shall we", "may", "may not", "give", "direction")


def _draw_manner_of_speech(generator: random.Random, draft: Draft) -> Manner:
    style: Style = generator.choices(("plain", "casual", "polite", "formal"), (2, 1, 4, 1.5))[0]
    subject: Any = generator.choices(("topic", "subject", "dropped"), (4, 1.5, 4))[0]
    if draft.subject is _YOU and style in ("polite", "formal"):
        subject = "dropped"  # "너" is not polite
    if draft.subject is _YOU and draft.form not in QUESTIONS and draft.pattern.split(",")[0] not in _REQUESTS:
        style, subject = generator.choice(("plain", "casual")), "topic"  # "가세요" is "go"
    is_honorific = style in ("polite", "formal") and generator.random() < 0.5
    return Manner(
        style, subject, generator.random() < 0.25, generator.random() < 0.5, is_honorific, generator.random() < 0.2
    )


def _replace_synonyms(generator: random.Random, text: str, rows: list[list[str]], ends: str) -> str:
    """Replace some words by synonyms: whole words or pieces."""
    for word, *alternatives in rows:
        if word not in text:
            continue
        pattern = rf"(?<![^{ends}]){re.escape(word)}(?![^{ends}])"
        if re.search(pattern, text) and generator.random() < 0.4:
            text = re.sub(pattern, generator.choice(alternatives).replace("\\", ""), text, count=1)
    return text


def list_phrases() -> list[tuple[str, str, list[str], list[str]]]:
    """Return the greetings and set phrases: Korean, English, further Korean, further English."""
    return [(korean, english, alternatives, more) for korean, english, alternatives, more in LEXICON["phrases"]["list"]]
