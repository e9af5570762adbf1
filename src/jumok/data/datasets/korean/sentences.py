"""Generate Korean sentences with their English translations from a grammar, as pure functions of a seed.

The modules of patterns draw a ``Clause`` (``clauses``): a subject, a predicate, their complements, a mode ("want to",
"can", "have to", "is ...ing") and a negation. It is written by the inflection of both languages. The words are in
``words.toml`` and, for the level "everyday", in ``everyday_words.toml``, as are its set phrases.

Times, adverbs and negation go with every pattern, and "not" is written in every way that the vocabulary allows: a
model that knows only "didn't" reads "did not" as "did", without any unknown word.

The translation into Korean is in the plain style (간다) with a topic (나는), so that there is one; the translation
into English has contracted negations. A pair also has a variant of each to read. Of a simple sentence: in Korean in the
polite (가요) or formal style (갑니다), with a subject (내가) instead of the topic, or with the time first; in English
with "did not" instead of "didn't", or with the time first. Of an everyday sentence also the casual style (가), perhaps
without the subject (I in a statement, you in a question), with an honorific, a short negation (안, 못), or a synonym.

A combination of subject, verb, object and place, in any tense and pattern, is either in the training or in the
held-out split.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from jumok.data.batches.split import Split, assign_split
from jumok.data.datasets.korean.action_patterns import draw_action, draw_description, draw_weather
from jumok.data.datasets.korean.being_patterns import draw_copula, draw_place
from jumok.data.datasets.korean.clauses import CONTRACTED, Draft, Manner
from jumok.data.datasets.korean.connected import draw_connected
from jumok.data.datasets.korean.english_inflection import Wording
from jumok.data.datasets.korean.everyday_words import LEXICON
from jumok.data.datasets.korean.korean_inflection import Style
from jumok.data.datasets.korean.requests import REQUESTS, draw_request
from jumok.data.datasets.korean.simple_patterns import draw_simple
from jumok.data.datasets.korean.words import QUESTIONS, YOU
from jumok.errors import ArgumentError

TRAINING_COUNT = 150_000
HELD_OUT_COUNT = 2_000
PHRASE_REPEATS = 30  # of a greeting in the training data: nothing else teaches its words

SIMPLE_SHARE = 0.3  # of the everyday sentences

Level = Literal["everyday", "simple"]

_EVERYDAY_PATTERNS: list[tuple[Callable[[random.Random], Draft], float]] = [
    (draw_action, 0.4), (draw_description, 0.15), (draw_weather, 0.06), (draw_copula, 0.1), (draw_place, 0.08),
    (draw_request, 0.11), (draw_connected, 0.16),
]  # fmt: skip


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
        level: "simple" has only the patterns of ``simple_patterns``; "everyday" also the others.

    >>> for pair in make_sentence_pairs(2, level="simple"):
    ...     print(pair.korean, "=", pair.english)
    가수는 빵집에서 시를 살 거니? = Will the singer buy a poem at the bakery?
    어머니는 화요일마다 노래를 듣는다 = My mother listens to a song every Tuesday
    """
    if count < 1:
        raise ArgumentError(f"the number of sentences must be at least 1, not {count}")
    pairs: dict[str, SentencePair] = {}
    for pair in _draw_pairs(random.Random(f"korean english {split} {seed}"), level):
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
    for korean, english, more_korean, more_english in LEXICON["phrases"]["list"]:
        sources, targets = [korean, *more_korean], [english, *more_english]
        for index in range(max(len(sources), len(targets))):
            variant, english_variant = sources[index % len(sources)], targets[index % len(targets)]
            pairs.append(SentencePair(korean, variant, english, english_variant, english, "phrase"))
    return pairs


def _draw_pairs(generator: random.Random, level: Level) -> Iterator[SentencePair]:
    """Yield random sentences without end."""
    patterns, shares = zip(*_EVERYDAY_PATTERNS, strict=True)
    while True:
        is_simple = level == "simple" or generator.random() < SIMPLE_SHARE
        draft = draw_simple(generator) if is_simple else generator.choices(patterns, shares)[0](generator)
        korean, english = draft.write_korean(Manner()), draft.write_english(CONTRACTED)
        manner = _draw_simple_manner(generator, draft) if is_simple else _draw_manner(generator, draft)
        wording = Wording(generator.random() < 0.5, generator.random() < 0.2)
        variant = draft.write_korean(manner)
        if not is_simple:
            variant = _replace_synonyms(generator, variant, LEXICON["synonyms"]["korean"], "|? ")
            if generator.random() < 0.4:
                variant = re.sub(r"(^| )저 ", r"\1그 ", variant)  # both are "that"; the pronoun 저 has a particle
        english_variant = draft.write_english(wording)
        if not is_simple:
            english_variant = _replace_synonyms(generator, english_variant, LEXICON["synonyms"]["english"], "? ")
            english_variant = english_variant.replace("can not", "cannot")
        yield SentencePair(korean, variant, english, english_variant, draft.key, draft.pattern)


def _draw_simple_manner(generator: random.Random, draft: Draft) -> Manner:
    subject: Any = "topic" if generator.random() < 0.75 else "subject"
    time_first = generator.random() < 0.25
    if draft.subject is YOU:  # "너" is not polite
        return Manner("plain", subject, time_first)
    return Manner(generator.choices(("plain", "polite", "formal"), (2, 1, 1))[0], subject, time_first)


def _draw_manner(generator: random.Random, draft: Draft) -> Manner:
    style: Style = generator.choices(("plain", "casual", "polite", "formal"), (2, 1, 4, 1.5))[0]
    subject: Any = generator.choices(("topic", "subject", "dropped"), (4, 1.5, 4))[0]
    if draft.subject is YOU and style in ("polite", "formal"):
        subject = "dropped"  # "너" is not polite
    if draft.subject is YOU and draft.form not in QUESTIONS and draft.pattern.split(",")[0] not in REQUESTS:
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
