"""The character sets of a regular expression, as bits: one for each character of a small alphabet."""

from __future__ import annotations

import re
import sys
import unicodedata
from bisect import bisect_right
from functools import lru_cache

PROPERTY_CATEGORIES = {
    "alpha": "L M",
    "alnum": "L M N",
    "blank": "Zs",
    "cntrl": "Cc Cf Cn",
    "digit": "Nd",
    "lower": "Ll",
    "upper": "Lu",
    "punct": "P S",
    "space": "Z",
    "letter": "L",
    "mark": "M",
    "number": "N",
    "punctuation": "P",
    "symbol": "S",
    "separator": "Z",
    "other": "C",
}
SPACES = "\t\n\v\f\r\x85"  # control characters by category
ESCAPED_CATEGORIES = {"s": "Z", "w": "L M N Pc", "d": "Nd"}
HEXADECIMAL = "0123456789abcdefABCDEF"
CODE = re.compile(r"\\(?:x\{([0-9a-fA-F]{1,8})\}|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4}))")  # a character by its number


class Alphabet:
    """The representing characters of one expression, and the sets of its classes.

    Every character or end of a range that the expression names is represented, and every general category of Unicode,
    also inside of those ranges. So two sets of the expression that have a character in common share a bit.
    """

    def __init__(self, expression: str) -> None:
        """Choose the characters."""
        text = CODE.sub(_decode_match, expression)
        characters = dict.fromkeys([*map(chr, range(128)), *_sample_categories(), *text, *SPACES])
        for first, last in set(re.findall(r"(?s)(?=(.)-\\?(.))", text)):
            characters |= dict.fromkeys(_sample_range(ord(first), ord(last)))
        #: whether a class matches both cases, because the expression has the flag i somewhere
        self.ignores_case = re.search(r"\(\?[a-z]*-?[a-z]*i", expression) is not None
        if self.ignores_case:
            characters |= dict.fromkeys(c for letter in characters for c in letter.lower() + letter.upper())
        self._characters = tuple(characters)
        self._categories = tuple(unicodedata.category(character) for character in self._characters)
        self._bits = {character: 1 << index for index, character in enumerate(self._characters)}
        self.all = (1 << len(self._characters)) - 1
        self._by_category: dict[str, int] = {}
        for category, bit in zip(self._categories, self._bits.values(), strict=True):
            for name in (category[0], category):
                self._by_category[name] = self._by_category.get(name, 0) | bit

    def get_character(self, character: str) -> int:
        """Return the set of one character, in both cases if the expression ignores case."""
        return self.add_cases(self._bits.get(character, self.all))

    def get_range(self, first: str, last: str) -> int:
        """Return the set of all characters from ``first`` to ``last``."""
        return self.add_cases(sum(bit for letter, bit in self._bits.items() if first <= letter <= last))

    def add_cases(self, characters: int) -> int:
        """Return a set with both cases of its characters if the expression ignores case."""
        if not self.ignores_case:
            return characters
        for letter, bit in self._bits.items():
            if characters & bit:
                for other in letter.lower() + letter.upper():
                    characters |= self._bits.get(other, 0)
        return characters

    def get_escape(self, letter: str) -> int:
        r"""Return the set of \s, \w, \d or \h, or of their complements \S, \W, \D and \H."""
        if letter.islower():
            if letter == "h":
                return sum(self._bits[digit] for digit in HEXADECIMAL)
            characters = self._get_categories(ESCAPED_CATEGORIES[letter])
            return characters | (self._get_spaces() if letter == "s" else 0)
        return self.all & ~self.get_escape(letter.lower())

    def get_property(self, name: str, is_negated: bool) -> int:
        r"""Return the set of a property, such as L of \p{L}; all characters if the property is not known here.

        Args:
            name: The name; ``^`` at its start negates it.
        """
        if name.startswith("^"):
            name, is_negated = name[1:], not is_negated
        short = name[:1].upper() + name[1:].lower()
        categories = short if short in self._by_category else PROPERTY_CATEGORIES.get(name.lower())
        if categories is None:
            return self.all
        characters = self._get_categories(categories)
        if name.lower() in ("space", "blank"):
            characters |= self._get_spaces()
        characters = self.add_cases(characters)
        return self.all & ~characters if is_negated else characters

    def get_any(self) -> int:
        """Return the set of the dot; the line break is included, as a flag may say so."""
        return self.all

    def _get_categories(self, names: str) -> int:
        characters = 0
        for name in names.split():
            characters |= self._by_category.get(name, 0)
        return characters

    def _get_spaces(self) -> int:
        return sum(self._bits[space] for space in SPACES)


def decode_character(match: re.Match[str]) -> str | None:
    """Return the character that an escape such as ``\\x41`` means; None if there is none.

    Args:
        match: A match of ``CODE``.
    """
    number = int(match[1] or match[2] or match[3], 16)
    return chr(number) if number <= sys.maxunicode else None


def _decode_match(match: re.Match[str]) -> str:
    return decode_character(match) or ""


@lru_cache(maxsize=1)
def _find_category_runs() -> tuple[list[int], list[str]]:
    """Return where runs of one general category start in Unicode, and their categories."""
    starts, categories = [0], [unicodedata.category("\0")]
    for code in range(1, sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category != categories[-1]:
            starts.append(code)
            categories.append(category)
    return starts, categories


@lru_cache(maxsize=1)
def _sample_categories() -> tuple[str, ...]:
    """Return a character outside ASCII of each general category."""
    return tuple(_sample_range(128, sys.maxunicode))


def _sample_range(first: int, last: int) -> list[str]:
    """Return the ends of a range, and one character inside of it of each general category."""
    starts, categories = _find_category_runs()
    sampled = {"first": chr(first), "last": chr(last)}
    for run in range(bisect_right(starts, first), bisect_right(starts, last)):
        sampled.setdefault(categories[run], chr(starts[run]))
    return list(sampled.values())
