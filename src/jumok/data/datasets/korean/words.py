"""The words of the generated Korean-English sentences, and their inflection in both languages.

The words are in ``words.toml``, with irregular forms only.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Person = Literal["I", "you", "singular", "plural"]  # the English agreement: "we" and "they" are plural
Tense = Literal["present", "past", "future"]
Form = Literal["statement", "negation", "question", "negative question"]
Style = Literal["plain", "polite", "formal"]
NEGATIVE: tuple[Form, ...] = ("negation", "negative question")
QUESTIONS: tuple[Form, ...] = ("question", "negative question")


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

DAYS: list[list[str]] = _WORDS["days"]
TIMES = [
    *_list_times(_TIMES["any_tense"], "present", "past", "future"),
    *_list_times(_TIMES["present"], "present"),
    *_list_times([[f"{korean}|마다", f"every {english}"] for korean, english in DAYS], "present"),
    *_list_times([[f"{korean}|에", f"on {english}"] for korean, english in DAYS], "past", "future"),
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
WHO = Subject("누가", "Who", "singular")
_ENDINGS: dict[str, dict[Style, list[str]]] = _WORDS["endings"]
_SUBJECT_FORMS = {"나": "내|가", "저": "제|가", "너": "네|가"}  # irregular before the particle 가

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


@dataclass(frozen=True)
class Voice:
    """How a Korean sentence is said: its style, whether its subject has a topic particle, and where the time is."""

    style: Style = "plain"
    has_topic: bool = True
    time_first: bool = False

    def start_sentence(self, subject: Subject, time: Time | None) -> list[str]:
        """Return the subject, and the time before or after it."""
        parts = [self._mark_subject(subject), *([time.korean] if time else [])]
        return parts[::-1] if self.time_first else parts

    def _mark_subject(self, subject: Subject) -> str:
        korean = subject.korean
        if subject is WHO:
            return korean
        if self.style != "plain" and korean == "나":
            korean = "저"
        if self.has_topic:
            return f"{korean}|{choose_particle(korean, '은', '는')}"
        return _SUBJECT_FORMS.get(korean) or f"{korean}|{choose_particle(korean, '이', '가')}"

    def conjugate_verb(self, verb: Verb, tense: Tense, form: Form) -> str:
        """Return a verb at the end of a sentence: 간다, 갑니까?, 가지 않을 것이다."""
        stem = verb.stem
        has_rieul = get_final(stem) == FINAL_RIEUL
        if form in NEGATIVE:
            return f"{stem}|지 {self._conjugate_not(tense, form, '않|는다')}"
        if tense == "past":
            return self._end_past(verb.past_stem, form)
        if tense == "future":
            future = verb.future or (f"{stem}을" if get_final(stem) and not has_rieul else set_final(stem, FINAL_RIEUL))
            return f"{future} {self._choose_ending('future', form)}"
        if self.style != "plain":
            return self._end_present(stem, verb.past_stem, form)
        if form == "question":
            return f"{set_final(stem, 0) if has_rieul else stem}|니?"  # ㄹ is dropped before ㄴ
        if get_final(stem) and not has_rieul:
            return f"{stem}|는다"
        return f"{set_final(stem, FINAL_NIEUN)}|다"

    def conjugate_adjective(self, adjective: Adjective, tense: Tense, form: Form) -> str:
        """Return an adjective at the end of a sentence: 작다, 작습니까?, 작지 않았다."""
        if form in NEGATIVE:
            return f"{adjective.stem}|지 {self._conjugate_not(tense, form, '않|다')}"
        if tense == "past":
            return self._end_past(adjective.past_stem, form)
        if self.style != "plain":
            return self._end_present(adjective.stem, adjective.past_stem, form)
        return f"{adjective.stem}|{'니?' if form == 'question' else '다'}"

    def write_copula(self, noun: str, tense: Tense, form: Form) -> str:
        """Return the noun with the forms of 이다 or 아니다: 의사다, 학생이에요, 학생이 아닙니다."""
        if form in NEGATIVE:
            ending = self._end_past("아니었", form) if tense == "past" else self._choose_ending("is_not", form)
            return f"{noun}|{choose_particle(noun, '이', '가')} {ending}"
        if tense == "past":
            return f"{noun}|{self._end_past(choose_particle(noun, '이었', '였'), form)}"
        question = "?" if form in QUESTIONS else ""
        if self.style == "polite":
            return f"{noun}|{choose_particle(noun, '이에요', '예요')}{question}"
        if self.style == "formal":
            return f"{noun}|{'입니까?' if question else '입니다'}"
        return f"{noun}{choose_particle(noun, '|이', '')}|{'니?' if question else '다'}"

    def _conjugate_not(self, tense: Tense, form: Form, plain_present: str) -> str:
        """Return the forms of 않다; in the plain present, verbs have 않는다 and adjectives 않다."""
        if tense == "past":
            return self._end_past("않았", form)
        if tense == "future":
            return f"않을 {self._choose_ending('future', form)}"
        if self.style != "plain":
            return self._end_present("않", "않았", form)
        return "않|니?" if form in QUESTIONS else plain_present

    def _end_past(self, past_stem: str, form: Form) -> str:
        """Return the past of a verb or an adjective: 갔다, 갔어요, 갔습니다."""
        return f"{past_stem}|{self._choose_ending('past', form)}"

    def _end_present(self, stem: str, past_stem: str, form: Form) -> str:
        """Return the polite or formal present of a verb or an adjective: 가요, 갑니다."""
        question = "?" if form in QUESTIONS else ""
        if self.style == "polite":
            return f"{set_final(past_stem, 0)}|요{question}"  # 갔 -> 가요, 먹었 -> 먹어요
        ending = "니까?" if question else "니다"
        if get_final(stem) not in (0, FINAL_RIEUL):
            return f"{stem}|습{ending}"
        return f"{set_final(stem, FINAL_BIEUP)}|{ending}"

    def _choose_ending(self, name: str, form: Form) -> str:
        return _ENDINGS[name][self.style][form in QUESTIONS]


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

    def ask(self, question_word: str, auxiliary: str, subject: str, form: Form, parts: list[str]) -> str:
        """Write a question: "Did he go?", "Didn't he go?", "Did he not go?", "When did he go?"."""
        if form == "question":
            start = [auxiliary, subject]
        else:
            start = [self.negate(auxiliary), subject] if self.is_contracted else [auxiliary, subject, "not"]
        return _capitalize(" ".join([*([question_word] if question_word else []), *start, *parts])) + "?"

    def state(self, subject: str, parts: list[str], time: Time | None) -> str:
        """Write a statement with the time at the end or at the beginning; the subject is as inside a sentence."""
        if time is not None and self.time_first:
            return " ".join([_capitalize(time.english), subject, *parts])
        return " ".join([_capitalize(subject), *parts, *_list_time(time)])

    def write_be(self, subject: str, be: str, complement: list[str], form: Form, time: Time | None) -> str:
        """Write a sentence with a form of "be": "He is a doctor", "Isn't there a cat in the room?"."""
        if form in QUESTIONS:
            return self.ask("", be, subject, form, [*complement, *_list_time(time)])
        return self.state(subject, [self.negate(be) if form == "negation" else be, *complement], time)


def _list_time(time: Time | None) -> list[str]:
    return [time.english] if time else []


def _capitalize(text: str) -> str:
    return text[0].upper() + text[1:]


def lower_first(subject: Subject) -> str:
    """Return the English subject as it is written inside a sentence."""
    english = subject.english
    return english if english == "I" or subject in NAMES else english[0].lower() + english[1:]


def choose_be(person: Person, tense: Tense) -> str:
    """Return the form of "be"."""
    if tense == "past":
        return "was" if person in ("I", "singular") else "were"
    return {"I": "am", "singular": "is"}.get(person, "are")


def choose_auxiliary(subject: Subject, tense: Tense) -> str:
    """Return the auxiliary of questions and negations: "will", "did", "does" or "do"."""
    if tense == "future":
        return "will"
    if tense == "past":
        return "did"
    return "does" if subject.person == "singular" else "do"


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
