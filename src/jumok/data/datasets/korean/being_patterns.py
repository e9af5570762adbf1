"""Sentences with "is a" (names, ages, prices, the time) and "is somewhere"."""

from __future__ import annotations

import random
from dataclasses import replace

from jumok.data.datasets.korean import words
from jumok.data.datasets.korean.clauses import Clause, Draft, Manner
from jumok.data.datasets.korean.draws import FORM_SHARES, draw_clock, draw_noun_phrase, draw_subject, draw_thing
from jumok.data.datasets.korean.english_inflection import Tense, add_article, capitalize, choose_be
from jumok.data.datasets.korean.everyday_words import IT, LEXICON, NOUNS, NOW, NUMBERS, PEOPLE, PLACES, TIMES_BY_TENSE
from jumok.data.datasets.korean.korean_inflection import Predicate, mark
from jumok.data.datasets.korean.words import FORMS, NEGATIVE, TENSES, Form, Noun, Place, Subject, Time, lower_first


def draw_copula(generator: random.Random) -> Draft:
    """이것은 내 책이다 = This is my book"""
    form = generator.choices(FORMS, FORM_SHARES)[0]
    kind = generator.choice(("this", "this", "nation", "today", "name", "age", "price", "clock", "month"))
    tense: Tense = "present"
    if kind == "this":
        clause = _draw_this(generator)
    elif kind == "nation":
        subject = draw_subject(generator, form)
        korean, english = generator.choice(PEOPLE["nationalities"])
        clause = _is(subject, korean, english, key=f"{subject.english} {korean}")
    elif kind == "today":
        korean, english = generator.choice(words.DAYS)
        days: tuple[tuple[str, str, Tense], ...] = (
            ("오늘", "Today", "present"), ("내일", "Tomorrow", "present"), ("어제", "Yesterday", "past"),
        )  # fmt: skip
        day_korean, day, tense = generator.choice(days)
        clause = _is(Subject(day_korean, day, "singular"), korean, english, key=f"{day} {korean}")
    elif kind == "name":
        owner_korean, owner = generator.choice(_OWNERS)
        name = generator.choice(words.NAMES)
        subject = Subject(f"{owner_korean} 이름", f"{owner} name", "singular")
        clause = _is(subject, name.korean, name.english, key=f"{owner} name {name.english}")
    elif kind == "age":
        subject = draw_subject(generator, form)
        korean, english = generator.choice(NUMBERS["ages"])
        clause = _is(subject, f"{korean} 살", english, "years", "old", key=f"{subject.english} age {english}")
    elif kind == "price":
        subject = _draw_goods(generator)
        if generator.random() < 0.4:
            return _ask_price(subject)
        korean, english = generator.choice(NUMBERS["prices"])
        clause = _is(subject, f"{korean} 원", english, "won", key=f"{subject.english} price {english}")
        clause = replace(clause, drops=subject is IT)
    elif kind == "clock":
        clock = draw_clock(generator, "present")
        korean, english = clock.korean.removesuffix("|에"), clock.english.removeprefix("at ")
        clause = _is(Subject("지금", "It", "singular"), korean, english, "now", key=f"clock {clock.english}")
    else:
        korean, english = generator.choice(NUMBERS["months"])
        owner_korean, owner = generator.choice(_EVENTS)
        clause = _is(Subject(owner_korean, owner, "singular"), korean, "in", english, key=f"{owner} {english}")
    clause = replace(clause, is_negative=form in NEGATIVE)
    return clause.draft(tense, form, f"{'number' if kind in ('age', 'price', 'clock', 'month') else 'is'}")


_OWNERS = (
    ("내", "My"), ("내", "My"), ("그의", "His"), ("그녀의", "Her"), ("내 남동생의", "My younger brother's"),
    ("내 친구의", "My friend's"),
)  # fmt: skip
_EVENTS = (
    ("내 생일", "My birthday"), ("그의 생일", "His birthday"), ("그녀의 생일", "Her birthday"), ("시험", "The exam"),
    ("방학", "The vacation"),
)  # fmt: skip


def _is(subject: Subject, korean: str, *english: str, key: str) -> Clause:
    return Clause(subject, Predicate(korean, "copula"), "be", after=english, key=key)


def _draw_this(generator: random.Random) -> Clause:
    groups = ("things", "texts", "machines", "fruit", "clothes", "tickets")
    noun = generator.choice([noun for group in groups for noun in NOUNS[group] if noun.is_countable])
    pronouns = ("이것", "This"), ("저것", "That"), ("그것", "It")
    subject = Subject(*generator.choice(pronouns), "singular")
    korean, english = draw_noun_phrase(generator, replace(noun, group="thing"))
    return _is(subject, korean, english, key=f"{subject.english} is {noun.korean}")


def _draw_goods(generator: random.Random) -> Subject:
    """Draw a thing that has a price: not a place."""
    subject, _, _ = draw_thing(generator)
    is_place = subject.korean in [location.korean for location in PLACES["anywhere"]]
    return _draw_goods(generator) if is_place else subject


def _ask_price(subject: Subject) -> Draft:
    be = choose_be(subject.person, "present")
    topic, price = mark(subject.korean, "은"), Predicate("얼마", "copula")
    return Draft(
        lambda manner: f"{topic} {price.finish('present', manner.style, True)}",
        lambda wording: f"How much {be} {lower_first(subject)}?",
        f"price {subject.english}", "number, question, present", IT, "question",
    )  # fmt: skip


def draw_place(generator: random.Random) -> Draft:
    """은행은 학교 옆에 있다 = The bank is next to the school; 책상 위에 책이 있다 = There is a book on the desk"""
    form = generator.choices(FORMS, FORM_SHARES)[0]
    tense: Tense = generator.choices(TENSES[:2], (4, 1))[0]
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
                Noun(p.korean, add_article(p.to.removeprefix("to the ")), "places") for p in locations
            ]
            if generator.random() < 0.3:
                setting = ("근처", "nearby")
        thing = generator.choice([noun for noun in things if noun.is_countable and noun.korean not in setting[0]])
        phrase = (
            draw_noun_phrase(generator, thing)
            if thing.group in LEXICON["counters"] and generator.random() < 0.4
            else (thing.korean, thing.english)
        )
        is_plural = phrase[1].split()[0] in [row[1] for row in NUMBERS["counts"][1:]]
        if phrase[1].split()[0] in ("this", "that", "my"):
            phrase = (thing.korean, thing.english)
        key = f"there is {thing.korean} {setting[0]}"
        subject = Subject(thing.korean, f"The {thing.bare}", "singular")
        before, after = [f"{setting[0]}|에"], [setting[1]]
        if is_existence:
            subject = Subject("", "There", "plural" if is_plural else "singular")
            before, after = [*before, mark(phrase[0], "이")], [phrase[1], *after]
    else:
        a, b = generator.sample(locations, 2)
        beside = [row for row in LEXICON["positions"]["list"] if row[1] not in ("on", "under", "in")]
        position_korean, position = generator.choice(beside)
        if form == "question" and generator.random() < 0.6:
            return _draw_where(generator, a, tense)
        subject = Subject(a.korean, capitalize(a.to.removeprefix("to ")), "singular")
        before, after = [f"{b.korean} {position_korean}|에"], [position, b.to.removeprefix("to ")]
        key = f"{a.korean} {position} {b.korean}"
    clause = Clause(
        subject, Predicate("있", "adjective"), "be", before=tuple(before), after=tuple(after), antonym="없", key=key,
        is_negative=form in NEGATIVE,
    )  # fmt: skip
    return clause.draft(tense, form, "place")


def _draw_whereabouts(generator: random.Random, form: Form, tense: Tense) -> Draft:
    """어머니는 집에 계신다 = My mother is at home"""
    subject, location = draw_subject(generator, form), generator.choice(PLACES["anywhere"])
    time = generator.choice([*NOW[:1], Time("오늘", "today", TENSES)] if tense == "present" else TIMES_BY_TENSE[tense])
    clause = Clause(
        subject, Predicate("있", "adjective"), "be", antonym="없",
        before=(f"{location.korean}|에",), after=(location.at,),
        key=f"{subject.english} is {location.korean}", time=time if generator.random() < 0.4 else None,
        is_negative=form in NEGATIVE,
    )  # fmt: skip
    return clause.draft(tense, form, "place")


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
    be = choose_be("singular", tense)

    def write_korean(manner: Manner) -> str:
        if manner.is_short and tense == "present":
            return f"{mark(korean, '이')} {Predicate('어디', 'copula').finish(tense, manner.style, True)}"
        return f"{mark(korean, '은')} 어디|에 {Predicate('있', 'adjective').finish(tense, manner.style, True)}"

    return Draft(write_korean, lambda wording: f"Where {be} {english}?", f"where {korean}", f"place, question, {tense}",
                 IT, "question")  # fmt: skip
