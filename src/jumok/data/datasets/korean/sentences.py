"""Generate Korean sentences with their English translations from a grammar, as pure functions of a seed.

The level "everyday" adds the patterns of ``everyday``, and the set phrases are listed apart. The simple
patterns: actions (subject, time, place, object, verb), adjectives, "is a", and "there is"; in the present, past and
future, as statements, negations, questions and negative questions. Particles follow the final consonant (은/는, 이/가,
을/를). The words and their inflection are in ``words``.

Times, adverbs and negation go with every pattern, and "not" is written in every way that the vocabulary allows: a
model that knows only "didn't" reads "did not" as "did", without any unknown word.

The translation into Korean is in the plain style (간다) with a topic (나는), so that there is one; the translation
into English has contracted negations. A pair also has a variant of each to read: in Korean the same sentence in the
polite (가요) or formal style (갑니다), with a subject (내가) instead of the topic, or with the time first; in English
with "did not" instead of "didn't", or with the time first.

A combination of subject, verb, object and place, in any tense and pattern, is either in the training or in the
held-out split.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from jumok.data.batches.split import Split, assign_split
from jumok.data.datasets.korean import everyday, words
from jumok.data.datasets.korean.words import (
    NEGATIVE,
    QUESTIONS,
    VOWELS,
    WHO,
    Adjective,
    Form,
    Noun,
    Place,
    Subject,
    Tense,
    Time,
    Verb,
    Voice,
    Wording,
    choose_particle,
)
from jumok.errors import ArgumentError

TRAINING_COUNT = 150_000
HELD_OUT_COUNT = 2_000
PHRASE_REPEATS = 30  # of a greeting in the training data: nothing else teaches its words

SIMPLE_SHARE = 0.3

Level = Literal["everyday", "simple"]

_TENSES: tuple[Tense, ...] = ("present", "past", "future")
_FORMS: tuple[Form, ...] = ("statement", "negation", "question", "negative question")
_FORM_SHARES = (4, 3, 3, 2)
_PLAIN, _CONTRACTED = Voice(), Wording()


@dataclass(frozen=True)
class SentencePair:
    """A Korean sentence and its translation.

    Attributes:
        korean_pieces: The Korean sentence in the plain style; "|" separates the pieces of a word, such as a noun and
            its particle.
        variant_pieces: The same sentence, perhaps in another style or with another particle, for translation into
            English.
        english_variant: The same sentence, perhaps with another negation or word order, for translation into Korean.
        combination: The words that decide the split.
        pattern: The kind of sentence, its form and its tense: "action, negation, past".
    """

    korean_pieces: str
    variant_pieces: str
    english: str
    english_variant: str
    combination: str
    pattern: str

    @property
    def korean(self) -> str:
        """The Korean sentence in the plain style."""
        return self.korean_pieces.replace("|", "")

    @property
    def variant(self) -> str:
        """The Korean sentence for translation into English."""
        return self.variant_pieces.replace("|", "")


def make_sentence_pairs(
    count: int, split: Split = "train", seed: int = 0, level: Level = "everyday"
) -> list[SentencePair]:
    """Make different Korean sentences with their English translations.

    Args:
        level: "simple" has only the patterns of this module; "everyday" also those of ``everyday``.

    >>> for pair in make_sentence_pairs(2, level="simple"):
    ...     print(pair.korean, "=", pair.english)
    가수는 빵집에서 시를 살 거니? = Will the singer buy a poem at the bakery?
    어머니는 화요일마다 노래를 듣는다 = My mother listens to a song every Tuesday
    """
    if count < 1:
        raise ArgumentError(f"the number of sentences must be at least 1, not {count}")
    pairs: dict[str, SentencePair] = {}
    draw = _draw_pairs if level == "simple" else _draw_everyday_pairs
    for pair in draw(random.Random(f"korean english {split} {seed}")):
        if assign_split(pair.combination) == split:
            pairs.setdefault(pair.korean, pair)
        if len(pairs) == count:
            break
    return list(pairs.values())


def list_pieces(pairs: list[SentencePair]) -> list[str]:
    """Return the pieces that the words of the pairs consist of, sorted; pieces inside a word begin with "##".

    Korean words are split into stems, particles and endings; English words are whole. "?" is a piece of its own.

    >>> list_pieces([SentencePair("너|는 자|니?", "네|가 자|니?", "Do you sleep?", "Do you sleep?", "", "")])
    ['##?', '##가', '##는', '##니', 'Do', 'sleep', 'you', '너', '네', '자']
    """
    pieces = set()
    for pair in pairs:
        sentences = (pair.korean_pieces, pair.variant_pieces, pair.english, pair.english_variant)
        for word in " ".join(sentences).replace("?", "|?").split():
            first, *inner = word.split("|")
            pieces |= {first, *(f"##{piece}" for piece in inner)}
    return sorted(pieces)


def list_phrase_pairs() -> list[SentencePair]:
    """Return the greetings and set phrases, with each way to say them. All are in the training split."""
    pairs = []
    for korean, english, more_korean, more_english in everyday.list_phrases():
        sources, targets = [korean, *more_korean], [english, *more_english]
        for index in range(max(len(sources), len(targets))):
            variant, english_variant = sources[index % len(sources)], targets[index % len(targets)]
            pairs.append(SentencePair(korean, variant, english, english_variant, english, "phrase"))
    return pairs


def _draw_everyday_pairs(generator: random.Random) -> Iterator[SentencePair]:
    """Yield simple and everyday sentences without end."""
    simple = _draw_pairs(generator)
    while True:
        if generator.random() < SIMPLE_SHARE:
            yield next(simple)
            continue
        draft = everyday.draw_draft(generator)
        yield SentencePair(*everyday.write_draft(generator, draft), draft.key, draft.pattern)


def _draw_pairs(generator: random.Random) -> Iterator[SentencePair]:
    """Yield random sentences without end."""
    while True:
        share = generator.random()
        if share < 0.74:
            yield _draw_action(generator)
        elif share < 0.84:
            yield _draw_description(generator)
        elif share < 0.92:
            yield _draw_occupation(generator)
        else:
            yield _draw_existence(generator)


def _build_pair(
    generator: random.Random,
    subject: Subject,
    write_korean: Callable[[Voice], str],
    write_english: Callable[[Wording], str],
    combination: str,
    pattern: str,
) -> SentencePair:
    """Write a sentence and its variant in both languages."""
    return SentencePair(
        write_korean(_PLAIN),
        write_korean(_draw_voice(generator, subject)),
        write_english(_CONTRACTED),
        write_english(_draw_wording(generator)),
        combination,
        pattern,
    )


def _draw_voice(generator: random.Random, subject: Subject) -> Voice:
    has_topic = generator.random() < 0.75
    time_first = generator.random() < 0.25
    if subject.korean == "너":  # "너" is not polite
        return Voice("plain", has_topic, time_first)
    return Voice(generator.choices(("plain", "polite", "formal"), (2, 1, 1))[0], has_topic, time_first)


def _draw_wording(generator: random.Random) -> Wording:
    return Wording(generator.random() < 0.5, generator.random() < 0.2)


@dataclass(frozen=True)
class Action:
    """What someone does: "나는 매일 학교에 간다" = "I go to school every day".

    Attributes:
        adverb: In Korean and in English, before the verb.
        question_word: "who", "what", "where", "when", or empty.
    """

    subject: Subject
    verb: Verb
    noun: Noun | None
    location: Place | None
    time: Time | None
    adverb: list[str] | None
    tense: Tense
    form: Form
    question_word: str

    @property
    def combination(self) -> str:
        """The words that decide the split, in which a question word stands for what it asks for."""
        asked_object = "?" if self.question_word == "what" else self.noun.korean if self.noun else "-"
        asked_place = "?" if self.question_word == "where" else self.location.korean if self.location else "-"
        return f"{self.subject.english} {self.verb.stem} {asked_object} {asked_place}"

    def write_korean(self, voice: Voice) -> str:
        """Write the sentence in Korean, in pieces."""
        parts = voice.start_sentence(self.subject, self.time)
        if self.question_word == "when":
            parts.append("언제")
        if self.adverb is not None:
            parts.append(self.adverb[0])
        if self.question_word == "where":
            parts.append(f"어디|{self.verb.particle}")
        elif self.location is not None:
            parts.append(f"{self.location.korean}|{self.verb.particle}")
        if self.question_word == "what":
            parts.append("무엇|을")
        elif self.noun is not None:
            parts.append(f"{self.noun.korean}|{choose_particle(self.noun.korean, '을', '를')}")
        return " ".join([*parts, voice.conjugate_verb(self.verb, self.tense, self.form)])

    def write_english(self, wording: Wording) -> str:
        """Write the sentence in English."""
        verb, location = self.verb, self.location
        phrases = []
        if self.noun is not None and self.question_word != "what":
            phrases.append(self.noun.english)
        if location is not None and self.question_word != "where":
            phrases.append(location.to if verb.particle == "에" and not verb.is_state else location.at)
        adverbs = [self.adverb[1]] if self.adverb is not None else []
        auxiliary = words.choose_auxiliary(self.subject, self.tense)
        name = words.lower_first(self.subject)

        if self.form in QUESTIONS and self.question_word != "who":
            parts = [*adverbs, verb.english, *phrases, *([self.time.english] if self.time else [])]
            return wording.ask(self.question_word, auxiliary, name, self.form, parts)
        if self.form in NEGATIVE:
            parts = [wording.negate(auxiliary), *adverbs, verb.english]
            if adverbs == ["sometimes"]:  # "doesn't sometimes" would deny that it happens at all
                parts = [*adverbs, wording.negate(auxiliary), verb.english]
        elif self.tense == "future":
            parts = [auxiliary, *adverbs, verb.english]
        else:
            parts = [*adverbs, words.conjugate_english(verb, self.subject, self.tense)]
        if self.question_word == "who":
            return _CONTRACTED.state(name, [*parts, *phrases], self.time) + "?"
        return wording.state(name, [*parts, *phrases], self.time)


def _draw_action(generator: random.Random) -> SentencePair:
    verb = generator.choice(words.VERBS)
    tense = generator.choice(_TENSES)
    form = generator.choices(_FORMS, _FORM_SHARES)[0]
    noun = None
    if verb.objects:
        noun = generator.choice([noun for group in verb.objects for noun in words.OBJECTS[group]])
    location = None
    is_motion = verb.particle == "에"
    if verb.locations and (is_motion or generator.random() < 0.45):
        location = generator.choice([location for group in verb.locations for location in words.PLACES[group]])
    subject = _draw_subject(generator, form)
    if noun is None and generator.random() < 0.2:
        subject = generator.choice(words.ANIMALS)
    if noun is not None and subject.korean.split("|")[0].endswith(noun.korean):
        subject = words.PRONOUNS[3]  # "the teacher meets the teacher" is two people in English, one in Korean
    time, adverb = _draw_time(generator, verb, tense, form)
    question_word = _draw_question_word(generator, verb, location, form)
    if question_word == "who":
        subject = WHO
    if question_word == "when":
        time, adverb = None, None

    action = Action(subject, verb, noun, location, time, adverb, tense, form, question_word)
    pattern = f"action, {form}, {tense}"
    return _build_pair(generator, subject, action.write_korean, action.write_english, action.combination, pattern)


def _draw_subject(generator: random.Random, form: Form) -> Subject:
    group = generator.choices((words.PRONOUNS, words.NAMES, words.FAMILY, words.PEOPLE), (4, 2, 2, 4))[0]
    subject = generator.choice(group)
    # questions about oneself ("do I ...?", "do we ...?") are left out
    return words.PRONOUNS[1] if form in QUESTIONS and subject.english in ("I", "We") else subject


def _draw_time(generator: random.Random, verb: Verb, tense: Tense, form: Form) -> tuple[Time | None, list[str] | None]:
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
    form = generator.choices(_FORMS, _FORM_SHARES)[0]
    has_time = generator.random() < 0.3
    return tense, form, generator.choice([time for time in words.TIMES if tense in time.tenses]) if has_time else None


def _draw_description(generator: random.Random) -> SentencePair:
    """민수는 어제 피곤했다 = Minsu was tired yesterday"""
    tense, form, time = _draw_form_of_be(generator)
    if generator.random() < 0.6:
        subject, adjective = _draw_subject(generator, form), generator.choice(words.ADJECTIVES)
    else:
        noun = _draw_countable(generator, "things", "machines")
        bare = _strip_article(noun)
        subject = Subject(noun.korean, f"The {bare}", "singular" if bare != noun.english else "plural")
        adjective = generator.choice(words.THING_ADJECTIVES)
    be = words.choose_be(subject.person, tense)
    return _build_pair(
        generator,
        subject,
        lambda voice: " ".join(
            [*voice.start_sentence(subject, time), voice.conjugate_adjective(adjective, tense, form)]
        ),
        lambda wording: wording.write_be(words.lower_first(subject), be, [adjective.english], form, time),
        f"{subject.english} {adjective.stem}",
        f"adjective, {form}, {tense}",
    )


def _draw_occupation(generator: random.Random) -> SentencePair:
    """민수는 의사다 = Minsu is a doctor"""
    tense, form, time = _draw_form_of_be(generator)
    korean_noun, singular, plural = generator.choice(words.OCCUPATIONS)
    subjects = [*words.PRONOUNS, *words.NAMES, *words.FAMILY, *words.PEOPLE[-4:]]
    subject = generator.choice(
        [entry for entry in subjects if form not in QUESTIONS or entry.english not in ("I", "We")]
    )
    article = "an" if singular[0] in VOWELS else "a"
    complement = plural if subject.person == "plural" else f"{article} {singular}"
    be = words.choose_be(subject.person, tense)
    return _build_pair(
        generator,
        subject,
        lambda voice: " ".join([*voice.start_sentence(subject, time), voice.write_copula(korean_noun, tense, form)]),
        lambda wording: wording.write_be(words.lower_first(subject), be, [complement], form, time),
        f"{subject.english} {korean_noun}",
        f"occupation, {form}, {tense}",
    )


def _draw_existence(generator: random.Random) -> SentencePair:
    """방에 고양이가 있다 = There is a cat in the room"""
    tense, form, time = _draw_form_of_be(generator)
    noun = _draw_countable(generator, "fruit", "things", "machines", "animals")
    location = generator.choice(words.PLACES["anywhere"])
    start = [f"{location.korean}|에", f"{noun.korean}|{choose_particle(noun.korean, '이', '가')}"]
    if time is not None:
        start.insert(0, time.korean)
    predicate = Adjective(*(("없", "없었", "") if form in NEGATIVE else ("있", "있었", "")))
    positive: Form = "question" if form in QUESTIONS else "statement"  # 없다 has no further negation
    bare = _strip_article(noun)
    be = words.choose_be("plural" if bare == noun.english else "singular", tense)

    def write_english(wording: Wording) -> str:
        is_no = wording is _CONTRACTED or generator.random() < 0.5  # "is no cat", or "isn't a cat"
        thing = f"no {bare}" if is_no and form in NEGATIVE else noun.english
        return wording.write_be("there", be, [thing, location.at], positive if is_no else form, time)

    return _build_pair(
        generator,
        WHO,
        lambda voice: " ".join([*start, voice.conjugate_adjective(predicate, tense, positive)]),
        write_english,
        f"there is {noun.korean} {location.korean}",
        f"existence, {form}, {tense}",
    )


def _draw_countable(generator: random.Random, *groups: str) -> Noun:
    """Draw a noun with "a", or a plural: "there is" and "the" go with them."""
    nouns = [noun for group in groups for noun in words.OBJECTS[group]]
    return generator.choice(
        [noun for noun in nouns if noun.english.startswith(("a ", "an ")) or noun.english in ("flowers", "shoes")]
    )


def _strip_article(noun: Noun) -> str:
    return noun.english.removeprefix("an ").removeprefix("a ")
