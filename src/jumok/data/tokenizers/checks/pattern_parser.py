"""Parse a regular expression in the syntax of Oniguruma into repetitions, alternatives and character sets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from jumok.errors import ArgumentError

from .character_sets import CODE, Alphabet, decode_character

MAX_NESTING = 30  # levels of groups and of nested classes
MAX_QUANTIFIERS = 4  # in a row, as in a{2}{3}
MANY = 100  # a larger count is treated as unbounded
COUNT = re.compile(r"\{(\d{1,9})?(,)?(\d{1,9})?\}")
PROPERTY = re.compile(r"([pP])\{([^}]*)\}")
CONTROL = re.compile(r"c.|C-.|M-.|0[0-7]{0,2}", re.DOTALL)
POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
GROUP_START = re.compile(r"\?(?:[a-zA-Z-]*:|>|=|!|<=|<!|<\w+>|'\w+')")
FLAGS = re.compile(r"\?([a-zA-Z-]+)([:)])")
ASSERTIONS = "bBAzZGKyY"
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}


@dataclass(frozen=True)
class Atom:
    """One character of a set.

    Args:
        characters: The set, as bits of an ``Alphabet``.
    """

    characters: int


@dataclass(frozen=True)
class Assertion:
    """A condition that reads no character, such as ``$``."""


@dataclass(frozen=True)
class Sequence:
    """Parts that follow each other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alternatives:
    """One of several branches."""

    branches: tuple[Node, ...]


@dataclass(frozen=True)
class Repetition:
    """A body that is repeated.

    Args:
        most: The largest; None is without bound.
    """

    body: Node
    least: int
    most: int | None


Node: TypeAlias = Atom | Assertion | Sequence | Alternatives | Repetition


def parse_pattern(expression: str, alphabet: Alphabet) -> Alternatives:
    """Parse a regular expression.

    Args:
        alphabet: Gives the sets of its classes.

    Raises:
        ArgumentError: If it uses syntax whose time cannot be bounded, such as recursion.
    """
    parser = _Parser(expression, alphabet)
    pattern = parser.parse_alternatives(0)
    while parser.position < len(expression):  # a ")" without "(": the library refuses it
        parser.position += 1
        pattern = Alternatives((*pattern.branches, *parser.parse_alternatives(0).branches))
    return pattern


class _Parser:
    def __init__(self, expression: str, alphabet: Alphabet) -> None:
        self.expression, self.alphabet = expression, alphabet
        self.position = 0

    def parse_alternatives(self, nesting: int) -> Alternatives:
        """Parse branches up to the bracket that closes the group, or to the end."""
        if nesting > MAX_NESTING:
            raise ArgumentError(f"its regular expression has groups nested more than {MAX_NESTING} levels deep")
        branches: list[Node] = []
        parts: list[Node] = []
        while self.position < len(self.expression) and self.expression[self.position] != ")":
            if self.expression[self.position] == "|":
                self.position += 1
                branches.append(Sequence(tuple(parts)))
                parts = []
            else:
                parts.append(self._parse_repetition(nesting))
        return Alternatives((*branches, Sequence(tuple(parts))))

    def _parse_repetition(self, nesting: int) -> Node:
        node = self._parse_one(nesting)
        for _ in range(MAX_QUANTIFIERS):
            counts = self._parse_counts()
            if counts is None:
                return node
            node = Repetition(node, *counts)
        raise ArgumentError(f"its regular expression has more than {MAX_QUANTIFIERS} quantifiers in a row")

    def _parse_counts(self) -> tuple[int, int | None] | None:
        """Parse a quantifier; None if there is none."""
        letter = self.expression[self.position : self.position + 1]
        if letter in ("*", "+", "?"):
            self.position += 1
            if self.expression.startswith(("?", "+"), self.position):  # lazy or possessive
                self.position += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[letter]
        match = COUNT.match(self.expression, self.position)
        if match is None or not (match[1] or match[3]):
            return None
        self.position = match.end()
        least = int(match[1] or 0)
        if match[2] and not match[3]:
            return min(least, MANY), None
        most = max(least, int(match[3] or 0))
        return min(least, MANY), None if most > MANY else most

    def _parse_one(self, nesting: int) -> Node:
        letter = self.expression[self.position]
        self.position += 1
        if letter == "(":
            return self._parse_group(nesting)
        if letter == "[":
            return Atom(self._parse_class(nesting))
        if letter == "\\":
            return self._parse_escape()
        if letter in "^$":
            return Assertion()
        return Atom(self.alphabet.get_any() if letter == "." else self.alphabet.get_character(letter))

    def _parse_group(self, nesting: int) -> Node:
        flags = FLAGS.match(self.expression, self.position)
        if flags is not None and "x" in flags[1]:
            raise ArgumentError("its regular expression has the flag x, which is not supported")
        if self.expression.startswith("?#", self.position):
            end = self.expression.find(")", self.position)
            self.position = len(self.expression) if end < 0 else end + 1
            return Sequence(())
        if flags is not None and flags[2] == ")":  # the flags hold for the rest of the group, as if it were nested
            self.position = flags.end()
            return self.parse_alternatives(nesting + 1)
        is_look_around = self.expression.startswith(("?=", "?!", "?<=", "?<!"), self.position)
        if self.expression.startswith("?", self.position):
            start = GROUP_START.match(self.expression, self.position)
            if start is None:
                raise ArgumentError(f"its regular expression has an unknown group at character {self.position}")
            self.position = start.end()
        body = self.parse_alternatives(nesting + 1)
        self.position += 1  # the closing bracket
        # What a look-around reads is read again afterwards, and both can fail.
        return Sequence((Alternatives((body, Sequence(()))), Assertion())) if is_look_around else body

    def _parse_escape(self) -> Node:
        """Parse what follows a backslash outside of a class."""
        letter = self.expression[self.position : self.position + 1]
        if letter and letter in ASSERTIONS:
            self.position += 1
            return Assertion()
        if letter == "g":
            raise ArgumentError("its regular expression calls a group (\\g), which can take forever")
        if letter in ("X", "k") or letter in tuple("123456789"):  # texts of any length
            self.position += 1
            return Repetition(Atom(self.alphabet.all), 0, None)
        if letter == "R":
            self.position += 1
            return Repetition(Atom(self.alphabet.get_escape("s")), 1, 2)
        return Atom(self._parse_escaped_set())

    def _parse_escaped_set(self) -> int:
        letter = self.expression[self.position : self.position + 1]
        code = CODE.match(self.expression, self.position - 1)
        if code is not None:
            self.position = code.end()
            character = decode_character(code)
            return self.alphabet.all if character is None else self.alphabet.get_character(character)
        named = PROPERTY.match(self.expression, self.position)
        if named is not None:
            self.position = named.end()
            return self.alphabet.get_property(named[2], named[1] == "P")
        control = CONTROL.match(self.expression, self.position)
        if control is not None:
            self.position = control.end()
            return self.alphabet.all
        self.position += 1
        if letter and letter in "swdhSWDH":
            return self.alphabet.get_escape(letter)
        if letter.isalnum() and letter not in LETTERS:
            return self.alphabet.all  # an escape that is not known here
        return self.alphabet.get_character(LETTERS.get(letter, letter))

    def _parse_class(self, nesting: int) -> int:
        """Parse a class after its opening bracket."""
        if nesting > MAX_NESTING:
            raise ArgumentError(f"its regular expression has classes nested more than {MAX_NESTING} levels deep")
        is_negated = self.expression.startswith("^", self.position)
        self.position += is_negated
        intersection, current = self.alphabet.all, 0
        start = self.position
        while self.position < len(self.expression):
            if self.expression[self.position] == "]" and self.position > start:
                break
            if self.expression.startswith("&&", self.position):
                intersection, current = intersection & current, 0
                self.position += 2
                continue
            current |= self._parse_class_part(nesting)
        self.position += 1  # the closing bracket
        characters = self.alphabet.add_cases(intersection & current)
        return self.alphabet.all & ~characters if is_negated else characters

    def _parse_class_part(self, nesting: int) -> int:
        posix = POSIX_CLASS.match(self.expression, self.position)
        if posix is not None:
            self.position = posix.end()
            return self.alphabet.get_property(posix[2], bool(posix[1]))
        if self.expression[self.position] == "[":
            self.position += 1
            return self._parse_class(nesting + 1)
        first, characters = self._parse_class_character()
        if first is None or self.expression[self.position : self.position + 1] != "-":
            return characters
        before = self.position
        self.position += 1
        if self.position < len(self.expression) and self.expression[self.position] not in "[]":
            last, _ = self._parse_class_character()
            if last is not None:
                return self.alphabet.get_range(first, last)
        self.position = before
        return characters

    def _parse_class_character(self) -> tuple[str | None, int]:
        """Parse one character of a class; None for an escape that is a set."""
        letter = self.expression[self.position]
        self.position += 1
        if letter != "\\":
            return letter, self.alphabet.get_character(letter)
        start = self.position
        characters = self._parse_escaped_set()
        code = CODE.fullmatch(self.expression, start - 1, self.position)
        if code is not None:
            return decode_character(code), characters
        escaped = self.expression[start : self.position]
        if len(escaped) == 1 and (escaped in LETTERS or not escaped.isalnum()):
            return LETTERS.get(escaped, escaped), characters
        return None, characters
