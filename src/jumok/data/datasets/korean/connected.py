"""Two clauses together: because, if, when, but, and, before, after, and what one goes somewhere for."""

from __future__ import annotations

import random
from dataclasses import replace

from jumok.data.datasets.korean import words
from jumok.data.datasets.korean.clauses import Clause, Draft, Manner, Mode
from jumok.data.datasets.korean.draws import draw_shared_subject, draw_thing, make_action
from jumok.data.datasets.korean.english_inflection import Tense, Wording, capitalize, choose_be
from jumok.data.datasets.korean.everyday_words import (
    FEELINGS,
    FEMALE,
    IT,
    LEXICON,
    NOUNS,
    PEOPLE_ADJECTIVES,
    PLACES,
    QUALITIES,
    VERBS,
    WEATHER,
)
from jumok.data.datasets.korean.korean_inflection import Kind, Predicate, mark
from jumok.data.datasets.korean.words import TENSES, YOU, Form, Place, Subject, lower_first


def _choose_pronoun(subject: Subject) -> str:
    if subject in words.PRONOUNS:
        return lower_first(subject)
    if subject.person == "plural":
        return "they"
    return "she" if subject.korean in FEMALE or subject.korean.startswith("여자") else "he"


def parse_clause(text: str, subject: Subject) -> Clause:
    """Make a clause of the words of the file: ``[mode,] verb [, object] [, @place] [, *adverb]``."""
    first, *remaining = [part.strip() for part in text.split(",")]
    modes: dict[str, tuple[Mode, bool]] = {
        "want": ("want", False), "can": ("can", False), "must": ("must", False), "not": ("", True),
        "cannot": ("can", True),
    }  # fmt: skip
    mode, is_negative = modes.get(first, ("", False))
    if first in modes:
        first, *remaining = remaining
    weather = dict(WEATHER["verbs"])
    weather_adjectives = dict(WEATHER["adjectives"])
    if first in weather:
        return Clause(IT, Predicate(first), weather[first], key=first, is_weather=True)
    if first in weather_adjectives or first == WEATHER["winds"][0][0]:
        kind: Kind = "adjective" if first in weather_adjectives else "verb"
        english = weather_adjectives.get(first, "windy")
        return Clause(IT, Predicate(first, kind), "be", after=(english,), key=first, is_weather=True)
    if first in ("날씨", "시험"):
        english = dict(WEATHER["subjects"] if first == "날씨" else QUALITIES["lessons"])[remaining[0]]
        noun = "weather" if first == "날씨" else "exam"
        thing = Subject(first, f"The {noun}", "singular")
        return Clause(
            thing, Predicate(remaining[0], "adjective"), "be", after=(english,), key=f"{first} {remaining[0]}"
        )
    people = dict(PEOPLE_ADJECTIVES)
    if first in people:
        return Clause(
            subject, Predicate(first, "adjective"), "be", after=(people[first],), key=first, is_negative=is_negative
        )
    feelings = {stem: (head, past) for stem, head, past in FEELINGS}
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
        return make_action(
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
    subject = draw_shared_subject(generator)
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
        TENSES, {"because": (2, 3, 0), "if": (1, 0, 3), "when": (1, 0, 0), "but": (3, 2, 0)}.get(kind, (2, 2, 1))
    )[0]
    return _connect(kind, first, second, tense, f"{subject.english} {texts[0]} {texts[1]}")


def _connect(kind: str, first: Clause, second: Clause, tense: Tense, key: str) -> Draft:
    subject = second.subject if not second.is_weather else first.subject
    is_shared = first.subject == second.subject
    name, pronoun = lower_first(subject), _choose_pronoun(subject)
    if kind == "before":  # "B before A": 전에 comes after the later action
        first, second = second, first

    def write_korean(manner: Manner) -> str:
        end = _write_first_end(kind, first.build_predicate(manner), tense, manner)
        tail = second.build_predicate(manner).finish(tense, manner.style, False)
        if is_shared or first.subject is IT:
            marked_subject = (second if first.is_weather else first).mark_subject(manner)
            start = [marked_subject] if marked_subject else []
            complements = first.list_korean(replace(manner, drops_particle=False), has_subject=False)
            if first.is_weather:  # the weather first, then who
                return " ".join([*complements, end, *start, *second.list_korean(manner, has_subject=False), tail])
            return " ".join([*start, *complements, end, *second.list_korean(manner, has_subject=False), tail])
        marked = replace(manner, subject="subject")
        return " ".join([*first.list_korean(marked), end, *second.list_korean(manner), tail])

    def write_english(wording: Wording) -> str:
        def say(clause: Clause, tense: Tense, subject_text: str) -> list[str]:
            return clause.list_english(tense, wording, subject_text if clause.subject == subject else "")

        second_name = pronoun if is_shared else name
        condition = _simple(first)
        match kind:
            case "because" if wording.time_first:
                parts = ["because", *say(first, tense, name), *say(second, tense, second_name)]
            case "because" if not wording.is_contracted:
                parts = [*say(first, tense, name), "so", *say(second, tense, second_name)]
            case "because":
                parts = [*say(second, tense, name), "because", *say(first, tense, pronoun)]
            case "if" | "when" if wording.time_first:
                parts = [*say(second, tense, name), kind, *say(condition, "present", pronoun)]
            case "if" | "when":
                parts = [kind, *say(condition, "present", name), *say(second, tense, second_name)]
            case "but":
                parts = [*say(first, tense, name), "but", *say(second, tense, pronoun)]
            case "and":
                _, remaining = second.split_verb(tense, needs_auxiliary=False)
                parts = [*say(first, tense, name), "and", *remaining, *second.after]
            case _:
                first_tense: Tense = "present" if tense == "future" else tense
                parts = [*say(second, tense, name), kind, *say(first, first_tense, pronoun)]
        return capitalize(" ".join(parts))

    return Draft(write_korean, write_english, f"{kind} {key}", f"{kind}, statement, {tense}", subject)


def _write_first_end(kind: str, predicate: Predicate, tense: Tense, manner: Manner) -> str:
    """Return the predicate of the first clause with what connects it to the second one."""

    def attach(ending: str) -> str:
        return predicate.connect_past(ending) if tense == "past" else predicate.connect(ending)

    match kind:
        case "because" if manner.is_short:
            return attach("으니까")
        case "because" if manner.time_first:
            return f"{attach('기')} 때문|에"
        case "because":
            return predicate.connect("아서")
        case "if":
            return predicate.connect("으면")
        case "when":
            return f"{predicate.connect('을')} 때"
        case "but" if manner.is_short:
            return predicate.connect_past("는데") if tense == "past" else _connect_background(predicate)
        case "but":
            return attach("지만")
        case "and":
            return predicate.connect("고")
        case "before":
            return f"{predicate.connect('기')} 전|에"
    return f"{predicate.connect('은')} {'다음' if manner.is_short else '후'}|에"


def _simple(clause: Clause) -> Clause:
    """Return a clause of the weather without "is ...ing": "if it rains"."""
    return replace(clause, is_weather=False) if clause.is_weather and clause.head != "be" else clause


def _connect_background(predicate: Predicate) -> str:
    is_verbal = predicate.kind == "verb" or predicate.text.endswith(("있", "없"))
    return predicate.connect("는데") if is_verbal else f"{predicate.connect('은')}|데"


def _draw_thing_contrast(generator: random.Random) -> Draft:
    """이 가방은 비싸지만 좋다 = This bag is expensive but good"""
    subject, _, rows = draw_thing(generator)
    english_words = {row[0]: row[1] for row in rows}
    pairs = [
        pair for pair in LEXICON["contrasts"][0]["things"] if pair[0] in english_words and pair[1] in english_words
    ]
    if not pairs:
        return _draw_thing_contrast(generator)
    a, b = generator.choice(pairs)
    tense: Tense = generator.choice(("present", "past"))
    be = choose_be(subject.person, tense)
    topic = mark(subject.korean, "은")
    first_english, second_english = english_words[a], english_words[b]
    pronoun = "they" if subject.person == "plural" else "it"

    def write_korean(manner: Manner) -> str:
        first = Predicate(a, "adjective")
        ending = ("는데" if tense == "past" else None) if manner.is_short else "지만"
        start = [] if subject is IT and manner.subject == "dropped" else [topic]
        if ending is None:
            middle = _connect_background(first)
        else:
            middle = first.connect_past(ending) if tense == "past" else first.connect(ending)
        return " ".join([*start, middle, Predicate(b, "adjective").finish(tense, manner.style, False)])

    return Draft(
        write_korean,
        lambda wording: f"{subject.english} {be} {first_english} but {second_english}" if wording.is_contracted
        else f"{subject.english} {be} {first_english} but {pronoun} {be} {second_english}",
        f"{subject.english} {a} {b}", f"but, statement, {tense}", IT,
    )  # fmt: skip


def _draw_errand(generator: random.Random) -> Draft:
    """나는 책을 읽으러 도서관에 간다 = I go to the library to read a book"""
    entry = generator.choice(LEXICON["errands"])
    form: Form = generator.choices(("statement", "question", "negation"), (4, 2, 1))[0]
    tense = generator.choices(TENSES, (2, 3, 2))[0]
    subject = YOU if form == "question" else draw_shared_subject(generator)
    location = _find_place(generator.choice(entry["places"]))
    errand = parse_clause(generator.choice(entry["do"]), subject)
    verb = next(verb for verb in VERBS if verb.stem == "가")
    goal = " ".join(["to", errand.head, *errand.after])
    before = (*errand.before, errand.predicate.connect("으러"))
    clause = make_action(verb, subject, None, location, is_negative=form == "negation")
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
    return clause.draft(tense, form, "errand")


def _find_place(korean: str) -> Place:
    return next(location for location in PLACES["anywhere"] if location.korean == korean)
