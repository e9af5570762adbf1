"""Sentences with an action, a description, or the weather."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

from jumok.data.datasets.korean import words
from jumok.data.datasets.korean.clauses import Clause, Draft, Manner, Mode
from jumok.data.datasets.korean.draws import FORM_SHARES, draw_action_time, draw_action_words, draw_subject, draw_thing
from jumok.data.datasets.korean.english_inflection import Tense, make_comparative, make_superlative
from jumok.data.datasets.korean.everyday_words import (
    FAMILY,
    FEELINGS,
    IT,
    LEXICON,
    NOUNS,
    NOW,
    PEOPLE_ADJECTIVES,
    PLACES,
    THING_STEMS,
    TIMES_BY_TENSE,
    WEATHER,
)
from jumok.data.datasets.korean.korean_inflection import Predicate, mark
from jumok.data.datasets.korean.words import (
    FORMS,
    HE,
    ME,
    NEGATIVE,
    QUESTIONS,
    TENSES,
    YOU,
    Form,
    Noun,
    Subject,
    Time,
    lower_first,
)


def draw_action(generator: random.Random) -> Draft:
    """나는 친구와 영화를 보고 싶다 = I want to watch a movie with my friend"""
    tense = generator.choices(TENSES, (4, 4, 2))[0]
    form = generator.choices(FORMS, FORM_SHARES)[0]
    modes: tuple[Mode, ...] = ("", "want", "can", "must", "progressive")
    mode = generator.choices(modes, (6, 2, 2, 2, 2))[0]
    if mode == "progressive" and tense == "future":
        tense = "present"
    clause = draw_action_words(generator, form, mode)
    clause = replace(clause, time=draw_action_time(generator, clause, tense))
    if form == "statement" and not mode and clause.time is None and tense == "present" and generator.random() < 0.2:
        korean, english = generator.choice(words.ADVERBS)
        clause = replace(clause, frequency=(korean, english))
    if form in QUESTIONS and not clause.is_negative and generator.random() < 0.4:
        clause = _ask(generator, clause, tense)
    return clause.draft(tense, form, f"{mode or 'action'}")


def _ask(generator: random.Random, clause: Clause, tense: Tense) -> Clause:
    """Return the clause with a question word."""
    location = next((i for i, part in enumerate(clause.before) if part.endswith(("|에", "|에서"))), None)
    is_going = get_stem(clause) in ("가", "오") and tense == "present" and not clause.mode  # "where are you going?"
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
    is_clear = (get_stem(clause), clause.head) not in (("하", "play"), ("하", "speak"), ("쓰", "wear"))
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
    form = generator.choices(FORMS, FORM_SHARES)[0]
    tense = generator.choices(TENSES, (6, 3, 1))[0]
    share = generator.random()
    if share < 0.12:
        stem, head, past = generator.choice(FEELINGS)
        subject = draw_subject(generator, form)
        clause = Clause(subject, Predicate(stem, "adjective"), head, past, key=f"{subject.english} {stem}")
        korean, adjective = stem, ""
    else:
        if share < 0.45:
            subject = draw_subject(generator, form)
            korean, adjective = generator.choice(PEOPLE_ADJECTIVES)
            thing, drops = None, False
        else:
            subject, thing, rows = draw_thing(generator)
            korean, adjective = generator.choice(rows)
            drops = subject is IT
        clause = Clause(
            subject, Predicate(korean, "adjective"), "be", after=(adjective,), key=f"{subject.english} {korean}",
            drops=drops,
        )  # fmt: skip
        if subject in (ME, YOU) and korean in THING_STEMS:  # "비싸요" is "it is expensive"
            clause = replace(clause, subject=HE, key=f"He {korean}")
            subject = HE
        clause = _modify(generator, clause, adjective, thing, form)
    clause = replace(clause, is_negative=form in NEGATIVE)
    if generator.random() < 0.2 and adjective:
        time = generator.choice(NOW if tense == "present" else [time for time in words.TIMES if tense in time.tenses])
        clause = replace(clause, time=time)
    return clause.draft(tense, form, "adjective")


def _modify(generator: random.Random, clause: Clause, adjective: str, thing: Noun | None, form: Form) -> Clause:
    """Return a description with a degree, or as a comparison."""
    share = generator.random()
    if share < 0.3 and form != "negation":
        korean, english = generator.choice(LEXICON["adjectives"]["degrees"])
        return replace(clause, before=(korean,), after=(english, adjective))
    if share < 0.36 and clause.subject is not IT:
        return replace(clause, before=("제일",), after=("the", make_superlative(adjective)))
    if share < 0.5 and clause.subject is not IT:
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
            other_subject = generator.choice([*words.NAMES, *FAMILY])
            korean, english = other_subject.korean, lower_first(other_subject)
        if korean != clause.subject.korean:
            return replace(clause, before=(f"{korean}|보다",), after=(make_comparative(adjective), f"than {english}"))
    return clause


def _draw_weather_clause(generator: random.Random) -> Clause:
    share = generator.random()
    if share < 0.35:
        korean, english = generator.choice(WEATHER["verbs"])
        return Clause(IT, Predicate(korean), english, key=korean, is_weather=True)
    if share < 0.42:
        korean, english = WEATHER["winds"][0]
        return Clause(IT, Predicate(korean), "be", after=(english,), key=korean, is_weather=True)
    if share < 0.6:
        korean, english = generator.choice(WEATHER["subjects"])
        return Clause(
            Subject("날씨", "The weather", "singular"), Predicate(korean, "adjective"), "be", after=(english,),
            key=f"날씨 {korean}",
        )  # fmt: skip
    korean, english = generator.choice(WEATHER["adjectives"])
    return Clause(IT, Predicate(korean, "adjective"), "be", after=(english,), key=korean, is_weather=True)


def draw_weather(generator: random.Random) -> Draft:
    """밖에 비가 온다 = It is raining outside"""
    clause = _draw_weather_clause(generator)
    form = generator.choices(FORMS, (6, 2, 3, 1))[0]
    tense = generator.choices(TENSES, (4, 3, 3))[0]
    if clause.head == "be" and clause.is_weather and generator.random() < 0.25 and form != "negation":
        korean, english = generator.choice(LEXICON["adjectives"]["degrees"][:3])
        clause = replace(clause, before=(korean,), after=(english, *clause.after))
    elif clause.head != "be" and generator.random() < 0.2:
        prefix, _, remaining = clause.predicate.text.rpartition(" ")
        clause = replace(clause, predicate=Predicate(f"{prefix} 많이 {remaining}"), after=("a lot",))
    if generator.random() < 0.3:
        korean, english = generator.choice(WEATHER["where"])
        setting = f"{korean}|에" if clause.head != "be" or korean == "밖" else mark(korean, "은")
        clause = replace(clause, before=(setting, *clause.before), after=(*clause.after, english))
    time = None
    if generator.random() < 0.6:
        time = generator.choice(
            [*NOW[:1], Time("오늘", "today", TENSES)] if tense == "present" else TIMES_BY_TENSE[tense]
        )
        if (
            clause.head == "be"
            and clause.is_weather
            and tense == "present"
            and "|" not in time.korean
            and not any("|은" in part or "|는" in part for part in clause.before)
        ):
            time = replace(time, korean=mark(time.korean, "은"))
    clause = replace(clause, time=time, is_negative=form in NEGATIVE)

    def write_korean(manner: Manner) -> str:
        subject: Any = "subject" if clause.subject.korean == "날씨" else manner.subject
        text = clause.write_korean(tense, replace(manner, subject=subject, time_first=True), form)
        return re.sub(r"^(오늘|지금|요즘)\|[은는]", r"\1", text) if manner.is_short else text

    return Draft(
        write_korean,
        lambda wording: clause.write_english(tense, wording, form),
        f"weather {clause.key} {time.english if time else '-'}",
        f"weather, {form}, {tense}",
        IT,
        form,
    )


def get_stem(clause: Clause) -> str:
    """Return the Korean stem that names what is done."""
    return clause.predicate.text
