"""The numbers and names of an answer, and whether a passage contains them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal

FUNCTION_WORDS = frozenset(
    {"a", "an", "and", "are", "at", "be", "by", "did", "do", "does", "for", "from", "had", "has", "have", "he", "her"}
    | {"his", "how", "i", "in", "is", "it", "its", "many", "much", "of", "on", "or", "she", "that", "the", "their"}
    | {"there", "they", "this", "to", "was", "were", "what", "when", "where", "which", "who", "whom", "whose", "why"}
    | {"will", "with"}
)

# "one" counts only inside a number, and "second" never: alone, both are rarely numbers
_UNITS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_VALUES = {word: number for number, word in enumerate(_UNITS.split())} | {
    word: 10 * number for number, word in enumerate(_TENS.split(), 2)
}
_INNER = "|".join([*_VALUES, *_SCALES])
_NUMBER = re.compile(
    rf"\d+(?:[.,:]\d+)*(?:\s+(?:{'|'.join(_SCALES)})\b)?"
    rf"|\b(?!one\b)(?:{_INNER})\b(?:(?:\s+and\s+|[\s-]+)(?:{_INNER})\b)*",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"""[^\W\d_]+(?:'[^\W\d_]+)*|[.!?:"“\n]""")
# words whose capital letter at the beginning of a sentence says nothing; any other first word may be a name
_OPENERS = """about according after all also although another answer any as based because before both but during each
    either every everyone first if instead into like most my near neither no nobody none not nothing one only our over
    people since so some somebody someone sometimes then these those though through together under until we while yes
    you your"""
_TITLES = frozenset({"mr", "mrs", "ms", "dr", "prof", "st"})  # a full stop after them does not end a sentence
_FIRST_PERSON = re.compile(r"I(?:'[a-z]+)?")


def find_missing_words(text: str, passage: str, question: str) -> tuple[str, ...]:
    """Return the numbers and names of a text that a passage does not contain, each once.

    Numbers are compared by value: 1,000 equals 1000, and two hundred equals 200. A date is its numbers and the name of
    its month. A name is a word with a capital letter. A name of the question may
    be repeated; a number of the question may not, since a question can suggest a wrong one.

    >>> find_missing_words("Mr. Kim paid 100 euros in May.", "In May the rent was 1,840 euros.", "Who is Kim?")
    ('100',)
    >>> find_missing_words("Oh sold 1840 to Lee.", "Mrs. Oh sold 1,840 buns.", "How many?")
    ('Lee',)
    """
    text, passage, question = (
        unicodedata.normalize("NFKC", string).replace("’", "'") for string in (text, passage, question)
    )
    numbers = {_evaluate(number) for number in _NUMBER.findall(passage)}
    words = {_normalize_name(word) for word in _TOKEN.findall(f"{passage}\n{question}")}
    missing = [number for number in _NUMBER.findall(text) if _evaluate(number) not in numbers]
    missing += [name for name in iterate_names(text) if _normalize_name(name) not in words]
    return tuple(dict.fromkeys(missing))


def _evaluate(number: str) -> Decimal | str:
    """Return the value of a number in digits or words; a time such as 13:40 is its own value."""
    total, current = Decimal(0), Decimal(0)
    for word in re.split(r"[\s-]+", number.casefold()):
        if word[0].isdecimal():
            digits = re.sub(r",(?=\d{3}(?!\d))", "", word)
            if not re.fullmatch(r"\d+(?:\.\d+)?", digits):
                return number
            current = Decimal(digits)
        elif _SCALES.get(word, 0) > 100:
            total, current = total + (current or Decimal(1)) * _SCALES[word], Decimal(0)
        elif word in _SCALES:
            current = (current or Decimal(1)) * _SCALES[word]
        elif word != "and":
            current += _VALUES[word]
    return total + current


def _normalize_name(word: str) -> str:
    return word.casefold().removesuffix("'s")


def iterate_names(text: str) -> Iterator[str]:
    """Yield the words with a capital letter, except common first words of sentences."""
    openers = FUNCTION_WORDS | set(_OPENERS.split())
    previous, is_first = "", True
    for token in _TOKEN.findall(_NUMBER.sub(" ", text)):
        word = token.casefold()
        if not token[0].isalpha():
            is_first = not (token == "." and (previous in _TITLES or len(previous) == 1))  # "Mr. Kim", "J. Kim"
            continue
        is_common = (is_first and word in openers) or word in _TITLES or _FIRST_PERSON.fullmatch(token)
        if token[0].isupper() and not is_common:
            yield token
        previous, is_first = word, False
