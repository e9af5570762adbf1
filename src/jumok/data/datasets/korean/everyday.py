"""Everyday Korean-English sentences: draw a pattern, and write it in both languages and as a variant.

A ``Clause`` (``clauses``) has a subject, a predicate, their complements, a mode ("want to", "can", "have to",
"is ...ing") and a negation; it is written by the conjugation of ``predicates`` and the word order of ``words``. The
modules of patterns draw its words, which are in ``everyday_words.toml``.

A pair's Korean is in the plain style with a topic. Its variant is in one of four styles, perhaps without the subject (I
in a statement, you in a question), with an honorific, a short negation (안, 못), or a synonym.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from jumok.data.datasets.korean.action_patterns import draw_action, draw_description, draw_weather
from jumok.data.datasets.korean.being_patterns import draw_copula, draw_place
from jumok.data.datasets.korean.clauses import Draft, Manner
from jumok.data.datasets.korean.connected import draw_connected
from jumok.data.datasets.korean.everyday_words import LEXICON, YOU
from jumok.data.datasets.korean.predicates import Style
from jumok.data.datasets.korean.requests import draw_request
from jumok.data.datasets.korean.words import QUESTIONS, Wording

_PLAIN, _CONTRACTED = Manner(), Wording()
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
    if draft.subject is YOU and style in ("polite", "formal"):
        subject = "dropped"  # "너" is not polite
    if draft.subject is YOU and draft.form not in QUESTIONS and draft.pattern.split(",")[0] not in _REQUESTS:
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
