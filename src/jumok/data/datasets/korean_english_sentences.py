"""Generate Korean sentences with their English translations from a small grammar, as pure functions of a seed.

Patterns: actions (subject, time, place, object, verb), adjectives, "is a", and "there is"; in the present, past and
future, as statements, negations, questions and negative questions. Particles follow the final consonant (은/는, 이/가,
을/를). The words and their regular inflection are in ``korean_english_words``.

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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from jumok.data.batches.split import Split, assign_split
from jumok.data.datasets import korean_english_words as words
from jumok.data.datasets.korean_english_words import (
    FINAL_BIEUP,
    FINAL_NIEUN,
    FINAL_RIEUL,
    VOWELS,
    Adjective,
    Noun,
    Place,
    Subject,
    Tense,
    Time,
    Verb,
    choose_particle,
    conjugate_english,
    get_final,
    set_final,
)
from jumok.errors import ArgumentError

Form = Literal["statement", "negation", "question", "negative question"]
Style = Literal["plain", "polite", "formal"]

TRAINING_COUNT = 60_000
HELD_OUT_COUNT = 2_000

_TENSES: tuple[Tense, ...] = ("present", "past", "future")
_FORMS: tuple[Form, ...] = ("statement", "negation", "question", "negative question")
_FORM_SHARES = (4, 3, 3, 2)
_NEGATIVE: tuple[Form, ...] = ("negation", "negative question")
_QUESTIONS: tuple[Form, ...] = ("question", "negative question")
_WHO = Subject("누가", "Who", "singular")
_SUBJECT_FORMS = {"나": "내|가", "저": "제|가", "너": "네|가"}  # irregular before the particle 가


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


def make_sentence_pairs(count: int, split: Split = "train", seed: int = 0) -> list[SentencePair]:
    """Make different Korean sentences with their English translations.

    >>> for pair in make_sentence_pairs(2):
    ...     print(pair.korean, "=", pair.english)
    가수는 빵집에서 시를 살 거니? = Will the singer buy a poem at the bakery?
    어머니는 화요일마다 노래를 듣는다 = My mother listens to a song every Tuesday
    """
    if count < 1:
        raise ArgumentError(f"the number of sentences must be at least 1, not {count}")
    pairs: dict[str, SentencePair] = {}
    for pair in _draw_pairs(random.Random(f"korean english {split} {seed}")):
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


@dataclass(frozen=True)
class _Voice:
    """How a Korean sentence is said: its style, whether its subject has a topic particle, and where the time is."""

    style: Style = "plain"
    has_topic: bool = True
    time_first: bool = False

    def mark_subject(self, subject: Subject) -> str:
        korean = subject.korean
        if subject is _WHO:
            return korean
        if self.style != "plain" and korean == "나":
            korean = "저"
        if self.has_topic:
            return f"{korean}|{choose_particle(korean, '은', '는')}"
        return _SUBJECT_FORMS.get(korean) or f"{korean}|{choose_particle(korean, '이', '가')}"

    def end_past(self, past_stem: str, form: Form) -> str:
        """Return the past of a verb or an adjective: 갔다, 갔어요, 갔습니다."""
        ending = {"plain": ("다", "니?"), "polite": ("어요", "어요?"), "formal": ("습니다", "습니까?")}[self.style]
        return f"{past_stem}|{ending[form in _QUESTIONS]}"

    def end_present(self, stem: str, past_stem: str, form: Form) -> str:
        """Return the polite or formal present of a verb or an adjective: 가요, 갑니다."""
        question = "?" if form in _QUESTIONS else ""
        if self.style == "polite":
            return f"{set_final(past_stem, 0)}|요{question}"  # 갔 -> 가요, 먹었 -> 먹어요
        ending = "니까?" if question else "니다"
        if get_final(stem) not in (0, FINAL_RIEUL):
            return f"{stem}|습{ending}"
        return f"{set_final(stem, FINAL_BIEUP)}|{ending}"

    def end_future(self, form: Form) -> str:
        """Return what follows the future form: 것이다, 거예요, 것입니다."""
        endings = {
            "plain": ("것이|다", "거|니?"),
            "polite": ("거|예요", "거|예요?"),
            "formal": ("것|입니다", "것|입니까?"),
        }
        return endings[self.style][form in _QUESTIONS]

    def start_sentence(self, subject: Subject, time: Time | None) -> list[str]:
        """Return the subject, and the time before or after it."""
        parts = [self.mark_subject(subject), *([time.korean] if time else [])]
        return parts[::-1] if self.time_first else parts


@dataclass(frozen=True)
class _Wording:
    """How an English sentence is written: "didn't" or "did not", and whether a time comes first in a statement."""

    is_contracted: bool = True
    time_first: bool = False

    def negate(self, auxiliary: str) -> str:
        """Return "didn't" or "did not"."""
        if self.is_contracted and auxiliary != "am":
            return "won't" if auxiliary == "will" else f"{auxiliary}n't"
        return f"{auxiliary} not"

    def ask(self, auxiliary: str, subject: str, form: Form) -> list[str]:
        """Return "did he", "didn't he" or "did he not"."""
        if form == "question":
            return [auxiliary, subject]
        return [self.negate(auxiliary), subject] if self.is_contracted else [auxiliary, subject, "not"]

    def state(self, subject: str, inner_subject: str, parts: list[str], time: Time | None) -> str:
        """Write a statement with the time at the end or at the beginning."""
        if time is not None and self.time_first:
            return " ".join([_capitalize(time.english), inner_subject, *parts])
        return " ".join([subject, *parts, *([time.english] if time else [])])


_PLAIN, _CONTRACTED = _Voice(), _Wording()


def _draw_voice(generator: random.Random, subject: Subject) -> _Voice:
    has_topic = generator.random() < 0.75
    time_first = generator.random() < 0.25
    if subject.korean == "너":  # "너" is not polite
        return _Voice("plain", has_topic, time_first)
    return _Voice(generator.choices(("plain", "polite", "formal"), (2, 1, 1))[0], has_topic, time_first)


def _draw_wording(generator: random.Random) -> _Wording:
    return _Wording(generator.random() < 0.5, generator.random() < 0.2)


# actions: "나는 매일 학교에 간다" = "I go to school every day"


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
        subject = _WHO
    if question_word == "when":
        time, adverb = None, None

    asked_object = "?" if question_word == "what" else noun.korean if noun else "-"
    asked_place = "?" if question_word == "where" else location.korean if location else "-"
    arguments = (subject, verb, noun, location, time, adverb, tense, form, question_word)
    return SentencePair(
        _write_korean_action(_PLAIN, *arguments),
        _write_korean_action(_draw_voice(generator, subject), *arguments),
        _write_english_action(_CONTRACTED, *arguments),
        _write_english_action(_draw_wording(generator), *arguments),
        f"{subject.english} {verb.stem} {asked_object} {asked_place}",
        f"action, {form}, {tense}",
    )


def _draw_subject(generator: random.Random, form: Form) -> Subject:
    group = generator.choices((words.PRONOUNS, words.NAMES, words.FAMILY, words.PEOPLE), (4, 2, 2, 4))[0]
    subject = generator.choice(group)
    # questions about oneself ("do I ...?", "do we ...?") are left out
    return words.PRONOUNS[1] if form in _QUESTIONS and subject.english in ("I", "We") else subject


def _draw_time(generator: random.Random, verb: Verb, tense: Tense, form: Form) -> tuple[Time | None, list[str] | None]:
    """Return a time and an adverb before the verb, each or both perhaps None."""
    # "I read a book (today)" does not say whether it is present or past: such verbs need another time
    is_ambiguous = verb.english == verb.past and form not in _NEGATIVE
    adverb = generator.choice(words.ADVERBS) if generator.random() < 0.12 else None
    needs_time = is_ambiguous and (adverb is None or tense == "past")
    if not needs_time and generator.random() < (0.8 if adverb else 0.45):
        return None, adverb
    times = [time for time in words.TIMES if tense in time.tenses and not (is_ambiguous and time.english == "today")]
    return generator.choice(times), adverb


def _draw_question_word(generator: random.Random, verb: Verb, location: Place | None, form: Form) -> str:
    if form not in _QUESTIONS:
        return ""
    # "where didn't he go?" and "when didn't he go?" are left out
    question_word = generator.choice(("who", "what", *(("where", "when") if form == "question" else ()), "", "", ""))
    has_thing = bool(verb.objects) and not {"people", "photos"} & set(verb.objects)
    is_possible = {"what": has_thing, "where": location is not None}.get(question_word, True)
    return question_word if is_possible else ""


def _write_korean_action(
    voice: _Voice, subject: Subject, verb: Verb, noun: Noun | None, location: Place | None, time: Time | None,
    adverb: list[str] | None, tense: Tense, form: Form, question_word: str,
) -> str:  # fmt: skip
    parts = voice.start_sentence(subject, time)
    if question_word == "when":
        parts.append("언제")
    if adverb is not None:
        parts.append(adverb[0])
    if question_word == "where":
        parts.append(f"어디|{verb.particle}")
    elif location is not None:
        parts.append(f"{location.korean}|{verb.particle}")
    if question_word == "what":
        parts.append("무엇|을")
    elif noun is not None:
        parts.append(f"{noun.korean}|{choose_particle(noun.korean, '을', '를')}")
    parts.append(_conjugate_korean(voice, verb, tense, form))
    return " ".join(parts)


def _conjugate_korean(voice: _Voice, verb: Verb, tense: Tense, form: Form) -> str:
    stem = verb.stem
    has_rieul = get_final(stem) == FINAL_RIEUL
    if form in _NEGATIVE:
        return f"{stem}|지 {_conjugate_not(voice, tense, form, '않|는다')}"
    if tense == "past":
        return voice.end_past(verb.past_stem, form)
    if tense == "future":
        future = verb.future or (f"{stem}을" if get_final(stem) and not has_rieul else set_final(stem, FINAL_RIEUL))
        return f"{future} {voice.end_future(form)}"
    if voice.style != "plain":
        return voice.end_present(stem, verb.past_stem, form)
    if form == "question":
        return f"{set_final(stem, 0) if has_rieul else stem}|니?"  # ㄹ is dropped before ㄴ
    if get_final(stem) and not has_rieul:
        return f"{stem}|는다"
    return f"{set_final(stem, FINAL_NIEUN)}|다"


def _conjugate_not(voice: _Voice, tense: Tense, form: Form, plain_present: str) -> str:
    """Return the forms of 않다; in the plain present, verbs have 않는다 and adjectives 않다."""
    if tense == "past":
        return voice.end_past("않았", form)
    if tense == "future":
        return f"않을 {voice.end_future(form)}"
    if voice.style != "plain":
        return voice.end_present("않", "않았", form)
    return "않|니?" if form in _QUESTIONS else plain_present


def _write_english_action(
    wording: _Wording, subject: Subject, verb: Verb, noun: Noun | None, location: Place | None, time: Time | None,
    adverb: list[str] | None, tense: Tense, form: Form, question_word: str,
) -> str:  # fmt: skip
    phrases = []
    if noun is not None and question_word != "what":
        phrases.append(noun.english)
    if location is not None and question_word != "where":
        phrases.append(location.to if verb.particle == "에" and not verb.is_state else location.at)
    adverbs = [adverb[1]] if adverb is not None else []
    auxiliary = _choose_auxiliary(subject, tense)
    name = _lower_first(subject)

    if form in _QUESTIONS and question_word != "who":
        start = [*([question_word] if question_word else []), *wording.ask(auxiliary, name, form)]
        parts = [*start, *adverbs, verb.english, *phrases, *([time.english] if time else [])]
        return _capitalize(" ".join(parts)) + "?"
    if form in _NEGATIVE:
        parts = [wording.negate(auxiliary), *adverbs, verb.english]
        if adverbs == ["sometimes"]:  # "doesn't sometimes" would deny that it happens at all
            parts = [*adverbs, wording.negate(auxiliary), verb.english]
    elif tense == "future":
        parts = [auxiliary, *adverbs, verb.english]
    else:
        parts = [*adverbs, conjugate_english(verb, subject, tense)]
    if question_word == "who":
        return _CONTRACTED.state("Who", "who", [*parts, *phrases], time) + "?"
    return wording.state(subject.english, name, [*parts, *phrases], time)


def _choose_auxiliary(subject: Subject, tense: Tense) -> str:
    if tense == "future":
        return "will"
    if tense == "past":
        return "did"
    return "does" if subject.person == "singular" else "do"


def _capitalize(text: str) -> str:
    return text[0].upper() + text[1:]


def _lower_first(subject: Subject) -> str:
    """Return the subject as it is written inside a sentence."""
    english = subject.english
    return english if english == "I" or subject in words.NAMES else english[0].lower() + english[1:]


# descriptions, occupations and existence


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
        groups = ("things", "machines")
        noun = generator.choice([noun for group in groups for noun in words.OBJECTS[group] if _is_countable(noun)])
        bare = noun.english.removeprefix("an ").removeprefix("a ")
        subject = Subject(noun.korean, f"The {bare}", "singular" if bare != noun.english else "plural")
        adjective = generator.choice(words.THING_ADJECTIVES)
    korean, variant = (
        " ".join([*voice.start_sentence(subject, time), _conjugate(voice, adjective, tense, form)])
        for voice in (_PLAIN, _draw_voice(generator, subject))
    )
    english = _write_be_sentences(generator, subject, adjective.english, tense, form, time)
    return SentencePair(korean, variant, *english, f"{subject.english} {adjective.stem}", f"adjective, {form}, {tense}")


def _conjugate(voice: _Voice, adjective: Adjective, tense: Tense, form: Form) -> str:
    if form in _NEGATIVE:
        return f"{adjective.stem}|지 {_conjugate_not(voice, tense, form, '않|다')}"
    if tense == "past":
        return voice.end_past(adjective.past_stem, form)
    if voice.style != "plain":
        return voice.end_present(adjective.stem, adjective.past_stem, form)
    return f"{adjective.stem}|{'니?' if form == 'question' else '다'}"


def _draw_occupation(generator: random.Random) -> SentencePair:
    """민수는 의사다 = Minsu is a doctor"""
    tense, form, time = _draw_form_of_be(generator)
    korean_noun, singular, plural = generator.choice(words.OCCUPATIONS)
    subjects = [*words.PRONOUNS, *words.NAMES, *words.FAMILY, *words.PEOPLE[-4:]]
    subject = generator.choice(
        [entry for entry in subjects if form not in _QUESTIONS or entry.english not in ("I", "We")]
    )
    article = "an" if singular[0] in VOWELS else "a"
    complement = plural if subject.person == "plural" else f"{article} {singular}"
    korean, variant = (
        " ".join([*voice.start_sentence(subject, time), _write_copula(voice, korean_noun, tense, form)])
        for voice in (_PLAIN, _draw_voice(generator, subject))
    )
    english = _write_be_sentences(generator, subject, complement, tense, form, time)
    return SentencePair(korean, variant, *english, f"{subject.english} {korean_noun}", f"occupation, {form}, {tense}")


def _write_copula(voice: _Voice, noun: str, tense: Tense, form: Form) -> str:
    """Return the noun with the forms of 이다 or 아니다: 의사다, 학생이에요, 학생이 아닙니다."""
    is_question = form in _QUESTIONS
    if form in _NEGATIVE:
        endings = {
            "plain": ("아니|다", "아니|니?"),
            "polite": ("아니|에요", "아니|에요?"),
            "formal": ("아닙|니다", "아닙|니까?"),
        }
        ending = voice.end_past("아니었", form) if tense == "past" else endings[voice.style][is_question]
        return f"{noun}|{choose_particle(noun, '이', '가')} {ending}"
    if tense == "past":
        return f"{noun}|{voice.end_past(choose_particle(noun, '이었', '였'), form)}"
    question = "?" if is_question else ""
    if voice.style == "polite":
        return f"{noun}|{choose_particle(noun, '이에요', '예요')}{question}"
    if voice.style == "formal":
        return f"{noun}|{'입니까?' if question else '입니다'}"
    return f"{noun}{choose_particle(noun, '|이', '')}|{'니?' if question else '다'}"


def _draw_existence(generator: random.Random) -> SentencePair:
    """방에 고양이가 있다 = There is a cat in the room"""
    tense, form, time = _draw_form_of_be(generator)
    groups = ("fruit", "things", "machines", "animals")
    noun = generator.choice([noun for group in groups for noun in words.OBJECTS[group] if _is_countable(noun)])
    location = generator.choice(words.PLACES["anywhere"])
    start = [f"{location.korean}|에", f"{noun.korean}|{choose_particle(noun.korean, '이', '가')}"]
    if time is not None:
        start.insert(0, time.korean)
    predicate = Adjective(*(("없", "없었", "") if form in _NEGATIVE else ("있", "있었", "")))
    positive: Form = "question" if form in _QUESTIONS else "statement"  # 없다 has no further negation
    korean, variant = (
        " ".join([*start, _conjugate(voice, predicate, tense, positive)])
        for voice in (_PLAIN, _draw_voice(generator, _WHO))
    )

    bare = noun.english.removeprefix("an ").removeprefix("a ")
    be = _choose_be("plural" if bare == noun.english else "singular", tense)

    def write_english(wording: _Wording, is_no: bool) -> str:
        things = [f"no {bare}" if is_no and form in _NEGATIVE else noun.english, location.at]
        if form in _QUESTIONS:
            start = wording.ask(be, "there", "question" if is_no else form)
            return _capitalize(" ".join([*start, *things, *([time.english] if time else [])])) + "?"
        verb = wording.negate(be) if form == "negation" and not is_no else be
        return wording.state("There", "there", [verb, *things], time)

    english = write_english(_CONTRACTED, True), write_english(_draw_wording(generator), generator.random() < 0.5)
    return SentencePair(
        korean, variant, *english, f"there is {noun.korean} {location.korean}", f"existence, {form}, {tense}"
    )


def _is_countable(noun: Noun) -> bool:
    """Return True for nouns with "a" and for plurals, which "there is" and "the" go with."""
    return noun.english.startswith(("a ", "an ")) or noun.english in ("flowers", "shoes")


def _choose_be(person: words.Person, tense: Tense) -> str:
    if tense == "past":
        return "was" if person in ("I", "singular") else "were"
    return {"I": "am", "singular": "is"}.get(person, "are")


def _write_be_sentences(
    generator: random.Random, subject: Subject, complement: str, tense: Tense, form: Form, time: Time | None
) -> tuple[str, str]:
    """Return the English sentence and its variant."""
    be = _choose_be(subject.person, tense)
    name = _lower_first(subject)

    def write(wording: _Wording) -> str:
        if form in _QUESTIONS:
            parts = [*wording.ask(be, name, form), complement, *([time.english] if time else [])]
            return _capitalize(" ".join(parts)) + "?"
        verb = wording.negate(be) if form == "negation" else be
        return wording.state(subject.english, name, [verb, complement], time)

    return write(_CONTRACTED), write(_draw_wording(generator))
