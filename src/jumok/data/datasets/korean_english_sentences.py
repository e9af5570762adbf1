"""Generate Korean sentences with their English translations from a small grammar, as pure functions of a seed.

Patterns: actions (subject, time, place, object, verb), adjectives, "is a", and "there is"; in the present, past and
future, as statements, negations and questions. Particles follow the final consonant (은/는, 이/가, 을/를). All words
are in ``korean_english_words``.

The translation into Korean is in the plain style (간다) with a topic (나는), so that there is one. For the translation
into English, a pair also has a variant to read: the same sentence in the polite (가요) or formal style (갑니다), or
with a subject (내가) instead of the topic.

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
from jumok.data.datasets.korean_english_words import Adjective, Noun, Place, Subject, Tense, Time, Verb
from jumok.errors import ArgumentError

Form = Literal["statement", "negation", "question"]
Style = Literal["plain", "polite", "formal"]

TRAINING_COUNT = 60_000
HELD_OUT_COUNT = 2_000

_TENSES: tuple[Tense, ...] = ("present", "past", "future")
_FORMS: tuple[Form, ...] = ("statement", "negation", "question")
_VOWELS = "aeiou"
_WHO = Subject("누가", "Who", "singular")
_FIRST_HANGUL, _LAST_HANGUL, _FINALS = ord("가"), ord("힣"), 28
_FINAL_NIEUN, _FINAL_RIEUL, _FINAL_BIEUP = 4, 8, 17  # ㄴ, ㄹ and ㅂ among the 28 final consonants
_SUBJECT_FORMS = {"나": "내|가", "저": "제|가", "너": "네|가"}  # irregular before the particle 가


@dataclass(frozen=True)
class SentencePair:
    """A Korean sentence and its translation.

    Attributes:
        korean_pieces: The Korean sentence in the plain style; "|" separates the pieces of a word, such as a noun and
            its particle.
        variant_pieces: The same sentence, perhaps in another style or with another particle, for translation into
            English.
        english: The English sentence.
        combination: The words that decide the split.
    """

    korean_pieces: str
    variant_pieces: str
    english: str
    combination: str

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

    Args:
        count: The number of pairs.
        split: "train" or "held-out"; no combination of subject, verb, object and place is in both.
        seed: The seed of the random choices.

    >>> for pair in make_sentence_pairs(2):
    ...     print(pair.korean, "=", pair.english)
    가수는 빵집에서 시를 사지 않을 것이다 = The singer won't buy a poem at the bakery
    민수는 일요일에 대학교에서 생선을 만들지 않을 것이다 = Minsu won't make fish at the university on Sunday
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

    Args:
        pairs: The sentences.

    >>> list_pieces([SentencePair("너|는 자|니?", "네|가 자|니?", "Do you sleep?", "")])
    ['##?', '##가', '##는', '##니', 'Do', 'sleep', 'you', '너', '네', '자']
    """
    pieces = set()
    for pair in pairs:
        for word in f"{pair.korean_pieces} {pair.variant_pieces} {pair.english}".replace("?", "|?").split():
            first, *inner = word.split("|")
            pieces |= {first, *(f"##{piece}" for piece in inner)}
    return sorted(pieces)


def choose_particle(word: str, after_consonant: str, after_vowel: str) -> str:
    """Return the particle that follows a Korean word.

    Args:
        word: The word; it ends with Hangul.
        after_consonant: The particle after a final consonant, such as "은".
        after_vowel: The particle after a vowel, such as "는".

    >>> choose_particle("학생", "은", "는"), choose_particle("친구", "은", "는")
    ('은', '는')
    """
    return after_consonant if _get_final(word) else after_vowel


def _get_final(word: str) -> int:
    """Return the number of the final consonant of the last syllable; 0 = none."""
    code = ord(word[-1])
    assert _FIRST_HANGUL <= code <= _LAST_HANGUL, f"{word} does not end with Hangul"
    return (code - _FIRST_HANGUL) % _FINALS


def _set_final(word: str, final: int) -> str:
    """Replace the final consonant of the last syllable."""
    return word[:-1] + chr(ord(word[-1]) - _get_final(word) + final)


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
    """How a Korean sentence is said: its style, and whether its subject has a topic or a subject particle."""

    style: Style = "plain"
    has_topic: bool = True

    def mark_subject(self, subject: Subject) -> str:
        korean = subject.korean
        if self.style != "plain" and korean == "나":
            korean = "저"
        if self.has_topic:
            return f"{korean}|{choose_particle(korean, '은', '는')}"
        return _SUBJECT_FORMS.get(korean) or f"{korean}|{choose_particle(korean, '이', '가')}"

    def end_past(self, past_stem: str, form: Form) -> str:
        """Return the past of a verb or an adjective: 갔다, 갔어요, 갔습니다."""
        ending = {"plain": ("다", "니?"), "polite": ("어요", "어요?"), "formal": ("습니다", "습니까?")}[self.style]
        return f"{past_stem}|{ending[form == 'question']}"

    def end_present(self, stem: str, past_stem: str, form: Form) -> str:
        """Return the polite or formal present of a verb or an adjective: 가요, 갑니다."""
        question = "?" if form == "question" else ""
        if self.style == "polite":
            return f"{_set_final(past_stem, 0)}|요{question}"  # 갔 -> 가요, 먹었 -> 먹어요
        ending = "니까?" if question else "니다"
        if _get_final(stem) not in (0, _FINAL_RIEUL):
            return f"{stem}|습{ending}"
        return f"{_set_final(stem, _FINAL_BIEUP)}|{ending}"

    def end_future(self, form: Form) -> str:
        """Return what follows the future form: 것이다, 거예요, 것입니다."""
        endings = {
            "plain": ("것이|다", "거|니?"),
            "polite": ("거|예요", "거|예요?"),
            "formal": ("것|입니다", "것|입니까?"),
        }
        return endings[self.style][form == "question"]


_PLAIN = _Voice()


def _draw_voice(generator: random.Random, subject: Subject) -> _Voice:
    has_topic = generator.random() < 0.75
    if subject.korean == "너":  # "너" is not polite
        return _Voice("plain", has_topic)
    return _Voice(generator.choices(("plain", "polite", "formal"), (2, 1, 1))[0], has_topic)


# actions: "나는 매일 학교에 간다" = "I go to school every day"


def _draw_action(generator: random.Random) -> SentencePair:
    verb = generator.choice(words.VERBS)
    tense = generator.choice(_TENSES)
    form = generator.choices(_FORMS, (3, 1, 2))[0]
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
    question_word = generator.choice(("who", "what", "where", "when", "", "", "")) if form == "question" else ""
    has_thing = noun is not None and not {"people", "photos"} & set(verb.objects)
    if (question_word == "what" and not has_thing) or (question_word == "where" and location is None):
        question_word = ""
    if question_word == "who":
        subject = _WHO
    if question_word == "when":
        time, adverb = None, None

    asked_object = "?" if question_word == "what" else noun.korean if noun else "-"
    asked_place = "?" if question_word == "where" else location.korean if location else "-"
    combination = f"{subject.english} {verb.stem} {asked_object} {asked_place}"
    korean, variant = (
        _write_korean_action(voice, subject, verb, noun, location, time, adverb, tense, form, question_word)
        for voice in (_PLAIN, _draw_voice(generator, subject))
    )
    english = _write_english_action(subject, verb, noun, location, time, adverb, tense, form, question_word)
    return SentencePair(korean, variant, english, combination)


def _draw_subject(generator: random.Random, form: Form) -> Subject:
    group = generator.choices((words.PRONOUNS, words.NAMES, words.FAMILY, words.PEOPLE), (4, 2, 2, 4))[0]
    subject = generator.choice(group)
    # questions about oneself ("do I ...?", "do we ...?") are left out
    return words.PRONOUNS[1] if form == "question" and subject.english in ("I", "We") else subject


def _draw_time(generator: random.Random, verb: Verb, tense: Tense, form: Form) -> tuple[Time | None, list[str] | None]:
    """Return a time at the end or an adverb before the verb, or neither."""
    if verb.is_state:
        return None, None
    # "I read a book (today)" does not say whether it is present or past: such verbs need another time
    is_ambiguous = verb.english == verb.past
    share = generator.random()
    if tense == "present" and form != "negation" and share > 0.85:
        return None, generator.choice(words.ADVERBS)
    if is_ambiguous or share < 0.6:
        times = [time for time in words.TIMES if tense in time.tenses]
        return generator.choice([time for time in times if not is_ambiguous or time.english != "today"]), None
    return None, None


def _write_korean_action(
    voice: _Voice, subject: Subject, verb: Verb, noun: Noun | None, location: Place | None, time: Time | None,
    adverb: list[str] | None, tense: Tense, form: Form, question_word: str,
) -> str:  # fmt: skip
    parts = ["누가" if question_word == "who" else voice.mark_subject(subject)]
    if question_word == "when":
        parts.append("언제")
    if time is not None:
        parts.append(time.korean)
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
    has_rieul = _get_final(stem) == _FINAL_RIEUL
    if form == "negation":
        return f"{stem}|지 {_conjugate_not(voice, tense, '않|는다')}"
    if tense == "past":
        return voice.end_past(verb.past_stem, form)
    if tense == "future":
        future = verb.future or (f"{stem}을" if _get_final(stem) and not has_rieul else _set_final(stem, _FINAL_RIEUL))
        return f"{future} {voice.end_future(form)}"
    if voice.style != "plain":
        return voice.end_present(stem, verb.past_stem, form)
    if form == "question":
        return f"{_set_final(stem, 0) if has_rieul else stem}|니?"  # ㄹ is dropped before ㄴ
    if _get_final(stem) and not has_rieul:
        return f"{stem}|는다"
    return f"{_set_final(stem, _FINAL_NIEUN)}|다"


def _conjugate_not(voice: _Voice, tense: Tense, plain_present: str) -> str:
    """Return the forms of 않다; in the plain present, verbs have 않는다 and adjectives 않다."""
    if tense == "past":
        return voice.end_past("않았", "negation")
    if tense == "future":
        return f"않을 {voice.end_future('negation')}"
    return plain_present if voice.style == "plain" else voice.end_present("않", "않았", "negation")


def _write_english_action(
    subject: Subject, verb: Verb, noun: Noun | None, location: Place | None, time: Time | None,
    adverb: list[str] | None, tense: Tense, form: Form, question_word: str,
) -> str:  # fmt: skip
    phrases = []
    if noun is not None and question_word != "what":
        phrases.append(noun.english)
    if location is not None and question_word != "where":
        phrases.append(location.to if verb.particle == "에" and not verb.is_state else location.at)
    if time is not None:
        phrases.append(time.english)
    before_verb = [adverb[1]] if adverb is not None else []

    if form == "question" and question_word != "who":
        first = {"what": ["What"], "where": ["Where"], "when": ["When"]}.get(question_word, [])
        auxiliary = _choose_auxiliary(subject, tense)
        name = _lower_first(subject)
        parts = [*first, auxiliary if first else auxiliary.capitalize(), name, *before_verb, verb.english, *phrases]
        return " ".join(parts) + "?"
    if form == "negation":
        auxiliary = "won't" if tense == "future" else f"{_choose_auxiliary(subject, tense)}n't"
        return " ".join([subject.english, auxiliary, verb.english, *phrases])
    sentence = " ".join([subject.english, *before_verb, _conjugate_english(verb, subject, tense), *phrases])
    return sentence + ("?" if question_word == "who" else "")


def _choose_auxiliary(subject: Subject, tense: Tense) -> str:
    if tense == "future":
        return "will"
    if tense == "past":
        return "did"
    return "does" if subject.person == "singular" else "do"


def _lower_first(subject: Subject) -> str:
    """Return the subject as it is written inside a sentence."""
    english = subject.english
    return english if english == "I" or subject in words.NAMES else english[0].lower() + english[1:]


def _conjugate_english(verb: Verb, subject: Subject, tense: Tense) -> str:
    base, _, preposition = verb.english.partition(" ")
    if tense == "future":
        form = f"will {base}"
    elif tense == "past":
        form = verb.past.split()[0] if verb.past else _add_ed(base)
    else:
        form = _add_s(base) if subject.person == "singular" else base
    return f"{form} {preposition}".strip()


def _add_s(base: str) -> str:
    if base.endswith("y") and base[-2] not in _VOWELS:
        return f"{base[:-1]}ies"
    return f"{base}es" if base.endswith(("s", "x", "z", "ch", "sh", "o")) else f"{base}s"


def _add_ed(base: str) -> str:
    if base.endswith("y") and base[-2] not in _VOWELS:
        return f"{base[:-1]}ied"
    return f"{base}d" if base.endswith("e") else f"{base}ed"


# descriptions, occupations and existence


def _draw_form_of_be(generator: random.Random) -> tuple[Tense, Form]:
    return generator.choice(("present", "past")), generator.choices(_FORMS, (3, 1, 2))[0]


def _draw_description(generator: random.Random) -> SentencePair:
    """민수는 어제 피곤했다 = Minsu was tired yesterday"""
    tense, form = _draw_form_of_be(generator)
    if generator.random() < 0.6:
        subject, adjective = _draw_subject(generator, form), generator.choice(words.ADJECTIVES)
    else:
        groups = ("things", "machines")
        noun = generator.choice([noun for group in groups for noun in words.OBJECTS[group] if _is_countable(noun)])
        bare = noun.english.removeprefix("an ").removeprefix("a ")
        subject = Subject(noun.korean, f"The {bare}", "singular" if bare != noun.english else "plural")
        adjective = generator.choice(words.THING_ADJECTIVES)
    times = [time for time in words.TIMES if tense == "past" and time.tenses == ("past",)]
    time = generator.choice(times) if times and adjective in words.ADJECTIVES and generator.random() < 0.4 else None

    korean, variant = (
        " ".join(
            [voice.mark_subject(subject), *([time.korean] if time else []), _conjugate(voice, adjective, tense, form)]
        )
        for voice in (_PLAIN, _draw_voice(generator, subject))
    )
    english = _write_be_sentence(subject, adjective.english, tense, form, time)
    return SentencePair(korean, variant, english, f"{subject.english} {adjective.stem}")


def _conjugate(voice: _Voice, adjective: Adjective, tense: Tense, form: Form) -> str:
    if form == "negation":
        return f"{adjective.stem}|지 {_conjugate_not(voice, tense, '않|다')}"
    if tense == "past":
        return voice.end_past(adjective.past_stem, form)
    if voice.style != "plain":
        return voice.end_present(adjective.stem, adjective.past_stem, form)
    return f"{adjective.stem}|{'니?' if form == 'question' else '다'}"


def _draw_occupation(generator: random.Random) -> SentencePair:
    """민수는 의사다 = Minsu is a doctor"""
    tense, form = _draw_form_of_be(generator)
    korean_noun, singular, plural = generator.choice(words.OCCUPATIONS)
    subjects = [*words.PRONOUNS, *words.NAMES, *words.FAMILY, *words.PEOPLE[-4:]]
    subject = generator.choice([entry for entry in subjects if form != "question" or entry.english not in ("I", "We")])
    article = "an" if singular[0] in _VOWELS else "a"
    complement = plural if subject.person == "plural" else f"{article} {singular}"
    korean, variant = (
        f"{voice.mark_subject(subject)} {_write_copula(voice, korean_noun, tense, form)}"
        for voice in (_PLAIN, _draw_voice(generator, subject))
    )
    english = _write_be_sentence(subject, complement, tense, form, None)
    return SentencePair(korean, variant, english, f"{subject.english} {korean_noun}")


def _write_copula(voice: _Voice, noun: str, tense: Tense, form: Form) -> str:
    """Return the noun with the forms of 이다 or 아니다: 의사다, 학생이에요, 학생이 아닙니다."""
    if form == "negation":
        endings = {"plain": "아니|다", "polite": "아니|에요", "formal": "아닙|니다"}
        ending = voice.end_past("아니었", form) if tense == "past" else endings[voice.style]
        return f"{noun}|{choose_particle(noun, '이', '가')} {ending}"
    if tense == "past":
        return f"{noun}|{voice.end_past(choose_particle(noun, '이었', '였'), form)}"
    question = "?" if form == "question" else ""
    if voice.style == "polite":
        return f"{noun}|{choose_particle(noun, '이에요', '예요')}{question}"
    if voice.style == "formal":
        return f"{noun}|{'입니까?' if question else '입니다'}"
    return f"{noun}{choose_particle(noun, '|이', '')}|{'니?' if question else '다'}"


def _draw_existence(generator: random.Random) -> SentencePair:
    """방에 고양이가 있다 = There is a cat in the room"""
    tense, form = _draw_form_of_be(generator)
    groups = ("fruit", "things", "machines", "animals")
    noun = generator.choice([noun for group in groups for noun in words.OBJECTS[group] if _is_countable(noun)])
    location = generator.choice(words.PLACES["anywhere"])
    is_plural = not noun.english.startswith(("a ", "an "))
    be = _choose_be("plural" if is_plural else "singular", tense)
    start = f"{location.korean}|에 {noun.korean}|{choose_particle(noun.korean, '이', '가')}"
    predicate = Adjective(*(("없", "없었", "") if form == "negation" else ("있", "있었", "")))
    korean, variant = (
        f"{start} {_conjugate(voice, predicate, tense, 'question' if form == 'question' else 'statement')}"
        for voice in (_PLAIN, _draw_voice(generator, _WHO))
    )
    if form == "question":
        english = f"{be.capitalize()} there {noun.english} {location.at}?"
    elif form == "negation":
        bare = noun.english.removeprefix("an ").removeprefix("a ")
        english = f"There {be} no {bare} {location.at}"
    else:
        english = f"There {be} {noun.english} {location.at}"
    return SentencePair(korean, variant, english, f"there is {noun.korean} {location.korean}")


def _is_countable(noun: Noun) -> bool:
    """Return True for nouns with "a" and for plurals, which "there is" and "the" go with."""
    return noun.english.startswith(("a ", "an ")) or noun.english in ("flowers", "shoes")


def _choose_be(person: words.Person, tense: Tense) -> str:
    if tense == "past":
        return "was" if person in ("I", "singular") else "were"
    return {"I": "am", "singular": "is"}.get(person, "are")


def _write_be_sentence(subject: Subject, complement: str, tense: Tense, form: Form, time: Time | None) -> str:
    be = _choose_be(subject.person, tense)
    end = [time.english] if time else []
    if form == "question":
        return " ".join([be.capitalize(), _lower_first(subject), complement, *end]) + "?"
    if form == "negation":
        be = "am not" if be == "am" else f"{be}n't"
    return " ".join([subject.english, be, complement, *end])
