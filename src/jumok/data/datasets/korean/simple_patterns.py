"""Simple sentences: an action (subject, time, place, object, verb), an adjective, "is a", and "there is".

Each is in the present or past, an action also in the future; as a statement, negation, question or negative question.
Times, adverbs and negation go with every pattern.
"""

from __future__ import annotations

import random
from dataclasses import replace

from jumok.data.datasets.korean import words
from jumok.data.datasets.korean.clauses import CONTRACTED, Clause, Draft
from jumok.data.datasets.korean.english_inflection import Tense, Wording, add_article
from jumok.data.datasets.korean.korean_inflection import Predicate, mark
from jumok.data.datasets.korean.words import FORMS, NEGATIVE, QUESTIONS, WHO, Form, Noun, Place, Subject, Time, Verb

_FORM_SHARES = (4, 3, 3, 2)


def draw_simple(generator: random.Random) -> Draft:
    """Draw a sentence."""
    share = generator.random()
    if share < 0.74:
        return _draw_action(generator)
    if share < 0.84:
        return _draw_description(generator)
    return _draw_occupation(generator) if share < 0.92 else _draw_existence(generator)


def _draw_action(generator: random.Random) -> Draft:
    """나는 매일 학교에 간다 = I go to school every day"""
    verb = generator.choice(words.VERBS)
    tense = generator.choice(words.TENSES)
    form = generator.choices(FORMS, _FORM_SHARES)[0]
    noun = None
    if verb.objects:
        noun = generator.choice([noun for group in verb.objects for noun in words.NOUNS[group]])
    location = None
    is_motion = verb.particle == "에"
    if verb.locations and (is_motion or generator.random() < 0.45):
        location = generator.choice([location for group in verb.locations for location in words.PLACES[group]])
    subject = _draw_subject(generator, form)
    if noun is None and generator.random() < 0.2:
        subject = generator.choice(words.ANIMALS)
    if noun is not None and subject.korean.split("|")[0].endswith(noun.korean):
        subject = words.HE  # "the teacher meets the teacher" is two people in English, one in Korean
    time, adverb = _draw_time(generator, verb, tense, form)
    question_word = _draw_question_word(generator, verb, location, form)
    if question_word == "who":
        subject = WHO
    if question_word == "when":
        time, adverb = None, None
    clause = make_simple_action(subject, verb, noun, location, question_word)
    clause = replace(clause, time=time, frequency=adverb, is_negative=form in NEGATIVE)
    return clause.draft(tense, form, "action")


def make_simple_action(
    subject: Subject, verb: Verb, noun: Noun | None, location: Place | None, question_word: str = ""
) -> Clause:
    """Make a clause of an action.

    Args:
        question_word: "who", "what", "where", "when", or empty; it stands for what it asks for, in the key as well.
    """
    before = ["언제"] if question_word == "when" else []
    after = []
    asked_object, asked_place = noun.korean if noun else "-", location.korean if location else "-"
    if location is not None:
        before.append(f"{'어디' if question_word == 'where' else location.korean}|{verb.particle}")
    if noun is not None:
        before.append("무엇|을" if question_word == "what" else mark(noun.korean, "을"))
    if question_word == "what":
        asked_object = "?"
    elif noun is not None:
        after.append(noun.english)
    if question_word == "where":
        asked_place = "?"
    elif location is not None:
        after.append(verb.phrase_place(location))
    return Clause(
        subject,
        verb.predicate,
        verb.english,
        verb.past,
        before=tuple(before),
        after=tuple(after),
        question_word=question_word if question_word != "who" else "",
        key=f"{subject.english} {verb.stem} {asked_object} {asked_place}",
    )


def _draw_subject(generator: random.Random, form: Form) -> Subject:
    group = generator.choices((words.PRONOUNS, words.NAMES, words.FAMILY, words.PEOPLE), (4, 2, 2, 4))[0]
    subject = generator.choice(group)
    # questions about oneself ("do I ...?", "do we ...?") are left out
    return words.YOU if form in QUESTIONS and subject.english in ("I", "We") else subject


def _draw_time(
    generator: random.Random, verb: Verb, tense: Tense, form: Form
) -> tuple[Time | None, tuple[str, str] | None]:
    """Return a time and an adverb before the verb, each or both perhaps None."""
    # "I read a book (today)" does not say whether it is present or past: such verbs need another time
    is_ambiguous = verb.english == verb.past and form not in NEGATIVE
    adverb = generator.choice(words.ADVERBS) if generator.random() < 0.12 else None
    needs_time = is_ambiguous and (adverb is None or tense == "past")
    if not needs_time and generator.random() < (0.8 if adverb else 0.45):
        return None, adverb
    times = [time for time in words.TIMES if tense in time.tenses and not (is_ambiguous and time.english == "today")]
    return generator.choice(times), adverb


def _draw_question_word(generator: random.Random, verb: Verb, location: Place | None, form: Form) -> str:
    if form not in QUESTIONS:
        return ""
    # "where didn't he go?" and "when didn't he go?" are left out
    question_word = generator.choice(("who", "what", *(("where", "when") if form == "question" else ()), "", "", ""))
    has_thing = bool(verb.objects) and not {"people", "photos"} & set(verb.objects)
    is_possible = {"what": has_thing, "where": location is not None}.get(question_word, True)
    return question_word if is_possible else ""


def _draw_form_of_be(generator: random.Random) -> tuple[Tense, Form, Time | None]:
    tense: Tense = generator.choice(("present", "past"))
    form = generator.choices(FORMS, _FORM_SHARES)[0]
    has_time = generator.random() < 0.3
    return tense, form, generator.choice([time for time in words.TIMES if tense in time.tenses]) if has_time else None


def _draw_description(generator: random.Random) -> Draft:
    """민수는 어제 피곤했다 = Minsu was tired yesterday"""
    tense, form, time = _draw_form_of_be(generator)
    if generator.random() < 0.6:
        subject, (stem, english) = _draw_subject(generator, form), generator.choice(words.ADJECTIVES)
    else:
        noun = _draw_countable(generator, "things", "machines")
        subject = Subject(noun.korean, f"The {noun.bare}", "singular" if noun.is_countable else "plural")
        stem, english = generator.choice(words.THING_ADJECTIVES)
    clause = Clause(
        subject, Predicate(stem, "adjective"), "be", after=(english,), time=time, is_negative=form in NEGATIVE,
        key=f"{subject.english} {stem}",
    )  # fmt: skip
    return clause.draft(tense, form, "adjective")


def _draw_occupation(generator: random.Random) -> Draft:
    """민수는 의사다 = Minsu is a doctor"""
    tense, form, time = _draw_form_of_be(generator)
    korean, singular, plural = generator.choice(words.OCCUPATIONS)
    subjects = [*words.PRONOUNS, *words.NAMES, *words.FAMILY, *words.PEOPLE[-4:]]
    subject = generator.choice(
        [entry for entry in subjects if form not in QUESTIONS or entry.english not in ("I", "We")]
    )
    english = plural if subject.person == "plural" else add_article(singular)
    clause = Clause(
        subject, Predicate(korean, "copula"), "be", after=(english,), time=time, is_negative=form in NEGATIVE,
        key=f"{subject.english} {korean}",
    )  # fmt: skip
    return clause.draft(tense, form, "occupation")


def _draw_existence(generator: random.Random) -> Draft:
    """방에 고양이가 있다 = There is a cat in the room"""
    tense, form, time = _draw_form_of_be(generator)
    noun = _draw_countable(generator, "fruit", "things", "machines", "animals")
    location = generator.choice(words.PLACES["anywhere"])
    subject = Subject("", "There", "singular" if noun.is_countable else "plural")
    clause = Clause(
        subject, Predicate("있", "adjective"), "be", antonym="없", time=time, is_negative=form in NEGATIVE,
        before=(f"{location.korean}|에", mark(noun.korean, "이")), after=(noun.english, location.at),
        key=f"there is {noun.korean} {location.korean}",
    )  # fmt: skip
    without = replace(clause, after=(f"no {noun.bare}", location.at), is_negative=False)
    positive: Form = "question" if form in QUESTIONS else "statement"

    def write_english(wording: Wording) -> str:
        is_no = wording is CONTRACTED or generator.random() < 0.5  # "is no cat", or "isn't a cat"
        if is_no and form in NEGATIVE:
            return without.write_english(tense, wording, positive)
        return clause.write_english(tense, wording, form)

    return replace(clause.draft(tense, form, "existence"), write_english=write_english)


def _draw_countable(generator: random.Random, *groups: str) -> Noun:
    """Draw a noun with "a", or a plural: "there is" and "the" go with them."""
    nouns = [noun for group in groups for noun in words.NOUNS[group]]
    return generator.choice([noun for noun in nouns if noun.is_countable or noun.english in ("flowers", "shoes")])
