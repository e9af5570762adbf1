"""Quote the sentence of a passage that answers a question, and say whether it is about everything that was asked.

A sentence is scored by the words that it shares with the question, rare ones more, in itself and in the sentences
before it, and by what the question asks for: a number, a date, a name. No model is needed, so that the same rule serves
English and Korean. The weights and the limit were chosen on the questions "dev" of bench/retrieval/notes.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from jumok.retrieval import Passage

from .named_words import find_missing_words, iterate_names

SUPPORTED_SHARE = 0.65  # of the question's words, weighted by how rare they are
RELATED_SHARE = 0.25  # a sentence with fewer of them, also counting those before it, is not shown
CONTEXT_WEIGHT, PASSAGE_WEIGHT, KIND_WEIGHT = 0.3, 0.2, 1.2  # in the score that chooses a sentence
EMPTY_WEIGHT = 0.5  # subtracted from a sentence that only repeats the question
_WORD = re.compile(r"[가-힣]+|[^\W_가-힣]+(?:'[^\W_]+)?")
_HANGUL = re.compile("[가-힣]")
_PRONOUN = re.compile(r"\b(?:he|she|it|they|his|her|its|their)\b", re.IGNORECASE)
_PERSON = re.compile(r"\b(?:who|whom)\b", re.IGNORECASE)
_COUNTED = re.compile(r"몇\s?([가-힣])")
_ENGLISH_ENDINGS = ("ing", "est", "ies", "ied", "ed", "es", "er", "ly", "s")


@dataclass(frozen=True)
class Quotation:
    """A sentence of the user's files that answers a question."""

    text: str
    location: str  # "file:line"
    verdict: Literal["supported", "partly supported"]
    missing: tuple[str, ...]  # words of the question that neither the sentence nor those before it contain
    passage: int  # the index of its passage among those that were given


@dataclass(frozen=True)
class _Candidate:
    passage: int
    line: int
    text: str
    contained: frozenset[int]  # the words of the question that the sentence contains, by index
    context: frozenset[int]  # also in the sentence before it and the heading
    in_passage: frozenset[int]  # anywhere in its passage
    has_kind: bool  # it contains what is asked for: a number, a date, a name
    adds_words: bool  # it contains more than the question


@functools.cache
def _load_rules() -> dict[str, Any]:
    text = resources.files("jumok.tasks.ask").joinpath("quotation.toml").read_text(encoding="utf-8")
    rules = tomllib.loads(text)
    patterns = {name: rules[name] for name in ("number", "date", "korean_number")}
    kinds = [
        (
            re.compile(kind["asks"], re.I),
            re.compile(kind["uses"], re.I),
            re.compile(_fill(kind["answer"], patterns), re.I),
        )
        for kind in rules["kinds"]
    ]
    ignored = {*rules["ignored"].split(), *rules["ignored_korean"].split()}
    endings = sorted(map(_split_syllables, rules["korean_endings"].split()), key=len, reverse=True)
    asking = tuple(rules["asking_korean"].split())
    numbers = {"date": re.compile(rules["date"], re.IGNORECASE), "korean_number": rules["korean_number"]}
    return {"kinds": kinds, "ignored": ignored, "endings": endings, "asking": asking, **numbers}


def _fill(pattern: str, patterns: dict[str, str]) -> str:
    for name, inserted in patterns.items():
        pattern = pattern.replace(f"{{{name}}}", inserted)
    return pattern.replace("{{", "{").replace("}}", "}")


def find_quotation(question: str, passages: Sequence[Passage]) -> Quotation | None:
    """Return the sentence of some passages that answers a question best; None if none is about it.

    >>> boat = Passage("boat.txt", 1, 1, "The boat leaves at nine. A dog is free.", sentences=((0, 1), (25, 1)))
    >>> find_quotation("When does the boat leave?", [boat]).text
    'The boat leaves at nine.'
    """
    question = _normalize(question)
    words = list_content_words(question)
    candidates = [
        candidate
        for number, passage in enumerate(passages)
        for candidate in _list_candidates(question, words, number, passage)
    ]
    weights = _weigh_words(words, candidates)

    def share(contained: frozenset[int]) -> float:
        return sum((weights[index] for index in contained), 0.0)

    def score(candidate: _Candidate) -> float:
        shared = share(candidate.contained) + CONTEXT_WEIGHT * share(candidate.context)
        shared += PASSAGE_WEIGHT * share(candidate.in_passage) + KIND_WEIGHT * candidate.has_kind
        return shared - EMPTY_WEIGHT * (not candidate.adds_words)

    candidates = [candidate for candidate in candidates if candidate.context]
    if not candidates:
        return None
    best = max(candidates, key=score)
    if share(best.context) < RELATED_SHARE:
        return None
    missing = tuple(word for index, word in enumerate(words) if index not in best.context)
    is_supported = (
        best.has_kind
        and (share(best.contained) + share(best.context)) / 2 >= SUPPORTED_SHARE
        and _agrees_on_names(words, best)
    )
    return Quotation(
        best.text,
        passages[best.passage].locate(best.line),
        "supported" if is_supported else "partly supported",
        missing,
        best.passage,
    )


def find_unsupported_words(text: str, passage: Passage, question: str) -> tuple[str, ...]:
    """Return the words of an answer that a passage does not support; () if it supports the answer.

    Numbers and names must be in the sentence that answers the question, other words anywhere in the passage. Without
    such a sentence, the words of the question that it lacks are returned.

    >>> boat = Passage("boat.txt", 1, 1, "The boat costs 840 euros.", sentences=((0, 1),))
    >>> find_unsupported_words("100 euros", boat, "What does the boat cost?")
    ('100',)
    """
    quotation = find_quotation(question, [passage])
    sentence = "" if quotation is None else quotation.text
    words = [word for word in list_content_words(_normalize(text)) if not re.search(r"\d", word)]
    contained = _find_words(words, f"{passage.text} {question} answer Mr Mrs Ms Dr")
    missing = find_missing_words(text, sentence, question)
    missing += tuple(word for index, word in enumerate(words) if index not in contained and word not in missing)
    if missing or (quotation is not None and quotation.verdict == "supported"):
        return missing
    lacking = () if quotation is None else quotation.missing
    return lacking or tuple(list_content_words(_normalize(question))) or (question,)


def _list_candidates(question: str, words: Sequence[str], number: int, passage: Passage) -> list[_Candidate]:
    sentences = passage.list_sentences()
    heading = passage.text[: passage.sentences[0][0]] if passage.sentences else ""
    contained = [_find_words(words, text) for text in (heading, *(text for _, text in sentences))]
    in_passage = frozenset().union(*contained)
    question_words = _WORD.findall(question)
    candidates = []
    for index, (line, text) in enumerate(sentences):
        adds_words = any(
            word.casefold() not in _load_rules()["ignored"] and not any(_is_same(term, word) for term in question_words)
            for word in _WORD.findall(_normalize(text))
        )
        # contained[0] is the heading, so that contained[index] is the sentence before
        context = contained[index + 1] | contained[index] | contained[0]
        has_kind = _has_kind(question, _normalize(text))
        candidates.append(
            _Candidate(number, line, text, contained[index + 1], context, in_passage, has_kind, adds_words)
        )
    return candidates


def _weigh_words(words: Sequence[str], candidates: Sequence[_Candidate]) -> list[float]:
    """Return the weight of each word by how few sentences contain it; the weights add up to 1."""
    counts = [sum(index in candidate.contained for candidate in candidates) for index in range(len(words))]
    weights = [math.log(1 + len(candidates) / (0.5 + count)) for count in counts]
    total = sum(weights) or 1.0
    return [weight / total for weight in weights]


def _agrees_on_names(words: Sequence[str], candidate: _Candidate) -> bool:
    """Return whether a sentence has the names of the question, or a pronoun for them, in the same order: who owes whom
    differs only in it."""
    positions = []
    text = _WORD.findall(_normalize(candidate.text))
    for index, word in enumerate(words):
        if not word[0].isupper():
            continue
        if index in candidate.contained:
            positions.append(next(position for position, other in enumerate(text) if _is_same(word, other)))
        elif index not in candidate.context or not _PRONOUN.search(candidate.text):
            return False
    return positions == sorted(positions)


def _has_kind(question: str, sentence: str) -> bool:
    """Return whether a sentence contains what a question asks for."""
    for asks, _, answer in _load_rules()["kinds"]:
        if asks.search(question) and not answer.search(sentence):
            return False
    if _PERSON.search(question):
        question_words = {word.casefold() for word in _WORD.findall(question)}
        names = [name for name in iterate_names(sentence) if name.casefold() not in question_words]
        if not any(_load_rules()["date"].search(name) is None for name in names):
            return False
    counted = _COUNTED.search(question)
    if counted is not None:
        number = _load_rules()["korean_number"]
        return re.search(rf"{number}\s?{counted[1]}", sentence) is not None
    return True


def list_content_words(question: str) -> list[str]:
    """Return the words of a question that say what it is about, each once, without those that say how it is asked.

    >>> list_content_words("How much is the rent a month?"), list_content_words("배의 이름은 무엇인가?")
    (['rent', 'month'], ['배의', '이름은'])
    """
    rules = _load_rules()
    used = [uses for asks, uses, _ in rules["kinds"] if uses.pattern and asks.search(question)]
    words = []
    for word in dict.fromkeys(_WORD.findall(question)):
        is_asked = word.casefold() in rules["ignored"] or word.startswith(rules["asking"])
        if not is_asked and not any(pattern.fullmatch(word) for pattern in used):
            words.append(word)
    return words


def _find_words(words: Sequence[str], text: str) -> frozenset[int]:
    """Return the indices of the words that a text contains, with any ending."""
    text_words = _WORD.findall(_normalize(text))
    return frozenset(index for index, word in enumerate(words) if any(_is_same(word, other) for other in text_words))


def _is_same(word: str, other: str) -> bool:
    """Return whether two words are the same without their endings.

    >>> _is_same("leaves", "leave"), _is_same("rent", "rest"), _is_same("떠나는가", "떠난다"), _is_same("배의", "배지")
    (True, False, True, False)
    """
    if bool(_HANGUL.match(word)) != bool(_HANGUL.match(other)):
        return False
    if not _HANGUL.match(word):
        first, second = _stem_english(word), _stem_english(other)
        return first == second or (min(len(first), len(second)) >= 5 and first.startswith(second[: len(first)]))
    stem, ending = _split_korean(word)
    if len(unicodedata.normalize("NFC", stem)) > 1:
        return _split_syllables(other).startswith(stem)
    if ending.endswith("가") and len(ending) > 1:  # a verb: 가는가, 간다
        return len(other) <= 3 and _split_syllables(other).startswith(stem)
    return _split_korean(other)[0] == stem


def _stem_english(word: str) -> str:
    word = word.casefold().removesuffix("'s")
    ending = next((ending for ending in _ENGLISH_ENDINGS if word.endswith(ending) and len(word) - len(ending) >= 3), "")
    return word.removesuffix(ending).rstrip("e")


def _split_korean(word: str) -> tuple[str, str]:
    """Return the stem of a Korean word as letters, and its ending as syllables."""
    letters = _split_syllables(word)
    for ending in _load_rules()["endings"]:
        if letters.endswith(ending) and len(letters) > len(ending):
            return letters.removesuffix(ending), unicodedata.normalize("NFC", ending)
    return letters, ""


def _split_syllables(text: str) -> str:
    """Return Hangul as single letters, so that 떠나 begins 떠난다."""
    return unicodedata.normalize("NFD", text)


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("’", "'")
