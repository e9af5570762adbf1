"""Estimate how long a regular expression of a tokenizer.json can search: the ways in which it can match one text.

A backtracking engine tries every way to divide a text among adjacent repetitions that accept the same characters before
it gives up: ``a*a*a*b`` takes n^3 steps at every position of a text of n letters a. Repetitions after which nothing can
fail are not tried again, so ``a*a+`` is harmless. The estimate is an upper bound; a class that is not known here counts
as all characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jumok.errors import ArgumentError

from .character_sets import Alphabet
from .pattern_parser import Alternatives, Assertion, Atom, Node, Repetition, Sequence, parse_pattern

UNBOUNDED_WAYS = 1000  # ways that an unbounded repetition counts for: it can end after each letter of a long word
MAX_WAYS = 10_000  # one unbounded repetition and a few optional characters; two unbounded ones are above
MAX_STEPS = 2000  # after the expansion of counts such as (...){3}
MAX_LOOP_POSITIONS = 64  # characters of a group that is repeated without bound


@dataclass(frozen=True)
class Step:
    """One step of matching a pattern, in their order.

    Args:
        characters: The characters that it accepts, as bits; all of them for an assertion.
        ways: In how many ways it can match: 2 for ``a?``, UNBOUNDED_WAYS for ``a*``, 1 for a single character.
        required: False if it can match nothing.
    """

    characters: int
    ways: int
    required: bool


def check_search_cost(expression: str) -> None:
    """Raise an error if a regular expression can take more than about n^2 steps on a text of n characters.

    Raises:
        ArgumentError: If it can, or if it uses syntax whose time cannot be bounded.
    """
    for body in _list_bodies(parse_pattern(expression, Alphabet(expression))):
        steps = list(_flatten(body))
        while steps and not steps[-1].required:  # nothing after them can fail, so they are not tried again
            steps.pop()
        if _count_ways(steps) > MAX_WAYS:
            raise ArgumentError(
                f"its regular expression {expression[:80]!r} repeats a repetition, or repeats the same characters "
                "twice in a row, as in (a+)+b and a*a*b, which can take forever"
            )


def _list_bodies(node: Node) -> Iterator[Node]:
    """Yield every branch and repeated body: after one that fails, the search continues with another or without it."""
    if isinstance(node, Sequence):
        for part in node.parts:
            yield from _list_bodies(part)
    elif isinstance(node, Alternatives):
        for branch in node.branches:
            if not (isinstance(branch, Sequence) and len(branch.parts) == 1):  # such as ((a|b)): its only part follows
                yield branch
            yield from _list_bodies(branch)
    elif isinstance(node, Repetition):
        yield Sequence((node,))
        yield node.body
        yield from _list_bodies(node.body)


def _count_ways(steps: list[Step]) -> int:
    """Return the largest number of ways in which adjacent steps can divide a text of one repeated character."""
    largest = 1
    for start, first in enumerate(steps):
        if first.ways == 1:
            continue
        ways_by_characters = [(first.characters, first.ways)]
        for step in steps[start + 1 :]:
            if step.required and not step.characters & first.characters:
                break
            if step.ways > 1 and step.characters & first.characters:
                ways_by_characters.append((step.characters, step.ways))
        if len(ways_by_characters) > 1 or first.ways > MAX_WAYS:
            largest = max(largest, _multiply_overlapping(ways_by_characters))
        if largest > MAX_WAYS:
            break
    return largest


def _multiply_overlapping(ways_by_characters: list[tuple[int, int]]) -> int:
    """Return the largest product of the ways of steps that accept one character in common."""
    largest = 1
    remaining = ways_by_characters[0][0]
    while remaining:
        character = remaining & -remaining
        product = 1
        common = remaining
        for characters, ways in ways_by_characters:
            if characters & character:
                product = min(product * ways, MAX_WAYS**2)
                common &= characters
            else:
                common &= ~characters
        largest = max(largest, product)
        remaining &= ~(common | character)  # these characters are in the same steps
    return largest


def _flatten(node: Node) -> Iterator[Step]:
    """Yield the steps of a node. The branches of alternatives follow each other, each of them not required."""
    if isinstance(node, Atom):
        yield Step(node.characters, 1, True)
    elif isinstance(node, Assertion):
        yield Step(-1, 1, True)
    elif isinstance(node, Sequence):
        for part in node.parts:
            yield from _flatten(part)
    elif isinstance(node, Alternatives):
        yield from _flatten_alternatives(node)
    else:
        yield from _flatten_repetition(node)


def _flatten_alternatives(node: Alternatives) -> Iterator[Step]:
    if len(node.branches) == 1:
        yield from _flatten(node.branches[0])
        return
    characters = 0
    is_required = True
    for branch in node.branches:
        steps = list(_flatten(branch))
        characters |= _unite(steps)
        is_required = is_required and any(step.required for step in steps)
        yield from (replace(step, required=False) for step in steps)
    yield Step(characters, len(node.branches), is_required)


def _flatten_repetition(node: Repetition) -> Iterator[Step]:
    steps = list(_flatten(node.body))
    copies = 1 if node.most is None or isinstance(node.body, Atom) else node.most
    if len(steps) * copies > MAX_STEPS:
        raise ArgumentError("its regular expression is too long after expanding its counts")
    if node.most is None:
        if node.least and any(step.required for step in steps):
            yield Step(_unite(steps), 1, True)
        yield Step(_unite(steps), MAX_WAYS + 1 if _is_ambiguous_loop(node) else UNBOUNDED_WAYS, False)
    elif isinstance(node.body, Atom):
        if node.least:
            yield Step(node.body.characters, 1, True)
        if node.most > node.least:
            yield Step(node.body.characters, node.most - node.least + 1, False)
    else:
        for _ in range(node.least):
            yield from steps
        for _ in range(node.most - node.least):
            yield Step(_unite(steps), 2, False)
            yield from (replace(step, required=False) for step in steps)


def _unite(steps: list[Step]) -> int:
    characters = 0
    for step in steps:
        if step.characters >= 0 or step.ways > 1:  # an assertion reads no character
            characters |= step.characters
    return characters


@dataclass
class _Positions:
    """The positions of a repeated body (Glushkov 1961): where it can start and end, and what can follow what."""

    first: set[int]
    last: set[int]
    nullable: bool


def _is_ambiguous_loop(loop: Repetition) -> bool:
    """Return whether a loop can read one text in several ways, as (a|a)* and (a+)* do: ever more with its length."""
    if _contains_unbounded(loop.body):
        return True
    characters: list[int] = []
    follow: dict[int, set[int]] = {}
    ends = _find_positions(loop.body, characters, follow)
    for position in ends.last:
        follow[position] |= ends.first

    # Two paths that read the same text separate and meet again (Weber and Seidl 1991).
    separated: set[tuple[int, int]] = set()
    queue = [
        (left, right)
        for position in follow
        for left in follow[position]
        for right in follow[position]
        if left != right and characters[left] & characters[right]
    ]
    while queue:
        pair = queue.pop()
        if pair in separated:
            continue
        separated.add(pair)
        for left in follow[pair[0]]:
            for right in follow[pair[1]]:
                if not characters[left] & characters[right]:
                    continue
                if left == right:
                    return True
                queue.append((left, right))
    return False


def _contains_unbounded(node: Node) -> bool:
    if isinstance(node, Repetition):
        return node.most is None or _contains_unbounded(node.body)
    parts = node.parts if isinstance(node, Sequence) else node.branches if isinstance(node, Alternatives) else ()
    return any(_contains_unbounded(part) for part in parts)


def _find_positions(node: Node, characters: list[int], follow: dict[int, set[int]]) -> _Positions:
    """Number the characters of a node, and collect which of them can follow each other."""
    if isinstance(node, Atom):
        if len(characters) == MAX_LOOP_POSITIONS:
            raise ArgumentError(
                f"its regular expression repeats a group of more than {MAX_LOOP_POSITIONS} characters without bound"
            )
        position = len(characters)
        characters.append(node.characters)
        follow[position] = set()
        return _Positions({position}, {position}, False)
    if isinstance(node, Assertion):
        return _Positions(set(), set(), True)
    if isinstance(node, Alternatives):
        ends = [_find_positions(branch, characters, follow) for branch in node.branches]
        first = set().union(*(end.first for end in ends))
        return _Positions(first, set().union(*(end.last for end in ends)), any(end.nullable for end in ends))
    if isinstance(node, Sequence):
        return _join_positions(iter(node.parts), characters, follow)

    assert node.most is not None  # a loop in a loop is ambiguous without a further look
    parts: list[Node] = [node.body] * node.least
    parts += [Alternatives((node.body, Sequence(())))] * (node.most - node.least)
    return _join_positions(iter(parts), characters, follow)


def _join_positions(parts: Iterator[Node], characters: list[int], follow: dict[int, set[int]]) -> _Positions:
    joined = _Positions(set(), set(), True)
    for part in parts:
        ends = _find_positions(part, characters, follow)
        for position in joined.last:
            follow[position] |= ends.first
        if joined.nullable:
            joined.first |= ends.first
        joined.last = joined.last | ends.last if ends.nullable else ends.last
        joined.nullable = joined.nullable and ends.nullable
    return joined
