"""Generate questions with passages about invented people, towns, dogs and ships, as pure functions of a seed.

The answer is in exactly one passage. The others state the same kind of fact about other people, or other facts about
the same person, so a question must be matched exactly. Names and templates can be held out of training.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jumok.data.batches.split import hash_to_fraction
from jumok.errors import ArgumentError

NamePart = Literal["train", "validation", "report"]
NAME_SHARES: dict[NamePart, float] = {"report": 0.1, "validation": 0.1, "train": 0.8}

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_ENDINGS = {
    "person": ("n", "r", "l", "s"),
    "town": ("ton", "burg", "ford", "ville"),
    "dog": ("", "x"),
    "ship": ("ria", "nda"),
}


@dataclass(frozen=True)
class FactKind:
    """A kind of fact: templates of statements and questions; the file ``invented_facts.toml`` explains them."""

    answer: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    held_out_statements: tuple[str, ...]
    held_out_questions: tuple[str, ...]


_FACT_FIELDS: dict[str, dict[str, Any]] = {
    name: {key: tuple(entry) if isinstance(entry, list) else entry for key, entry in kind.items()}
    for name, kind in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
FACT_KINDS = {name: FactKind(**fields) for name, fields in _FACT_FIELDS.items()}


@dataclass(frozen=True)
class Fact:
    """One fact."""

    kind: str
    person: str
    name: str


@dataclass(frozen=True)
class PassageQuestion:
    """A question with passages, and its answer."""

    question: str
    passages: tuple[str, ...]
    answer: str
    right: int | None = None  # the index of the passage with the answer; None if that is not known
    candidates: tuple[str, ...] = ()  # the names of the answer's kind in all passages, each once


def make_name(generator: random.Random, kind: str, part: NamePart = "train") -> str:
    """Draw a name of one part: no name of "train" is in "validation" or "report".

    >>> make_name(random.Random(1), "town")
    'Dovoville'
    """
    while True:
        syllables = [generator.choice(_CONSONANTS) + generator.choice(_VOWELS) for _ in range(2)]
        name = ("".join(syllables) + generator.choice(_ENDINGS[kind])).capitalize()
        if find_name_part(name) == part:
            return name


def find_name_part(name: str) -> NamePart:
    """Return the part to which a name belongs, by its hash."""
    fraction = hash_to_fraction(f"invented name {name}")
    for part, share in NAME_SHARES.items():
        fraction -= share
        if fraction < 0:
            return part
    return "train"


def make_question(
    seed: str, passages: int, *, sentences: int = 3, names: NamePart = "train", held_out_templates: bool = False
) -> PassageQuestion:
    """Generate a question with passages of one to three sentences.

    Args:
        sentences: The largest number of sentences of a passage, up to 3.

    >>> example = make_question("example", 2)
    >>> example.question
    'What is the dog of Gesal called?'
    >>> example.passages[1]
    'The dog of Vidas is called Tevex. The birthplace of Gesal is Busuford. Gesal owns the dog Fubo.'
    """
    if passages < 1:
        raise ArgumentError(f"a question needs at least one passage, not {passages}")
    generator = random.Random(seed)
    used: set[str] = set()
    target = _draw_fact(generator, used, names)
    groups = [_draw_right_passage(generator, target, used, names, sentences)]
    groups += [_draw_distractor(generator, target, used, names, sentences) for _ in range(passages - 1)]
    order = generator.sample(range(passages), passages)

    kind = FACT_KINDS[target.kind]
    questions = kind.held_out_questions if held_out_templates else kind.questions
    texts = tuple(_write_passage(generator, groups[index], target if held_out_templates else None) for index in order)
    candidates = [fact.name for index in order for fact in groups[index] if FACT_KINDS[fact.kind].answer == kind.answer]
    if kind.answer == "person":
        candidates += [fact.person for index in order for fact in groups[index] if fact.person != target.person]
    question = generator.choice(questions).format(n=target.person)
    return PassageQuestion(question, texts, target.name, order.index(0), tuple(dict.fromkeys(candidates)))


def _draw_name(generator: random.Random, kind: str, used: set[str], names: NamePart) -> str:
    """Draw a name that is not in the example yet."""
    while (name := make_name(generator, kind, names)) in used:
        pass
    used.add(name)
    return name


def _draw_fact(
    generator: random.Random,
    used: set[str],
    names: NamePart,
    person: str | None = None,
    kinds: Sequence[str] = tuple(FACT_KINDS),
) -> Fact:
    kind = generator.choice(kinds)
    person = person or _draw_name(generator, "person", used, names)
    return Fact(kind, person, _draw_name(generator, FACT_KINDS[kind].answer, used, names))


def _draw_right_passage(
    generator: random.Random, target: Fact, used: set[str], names: NamePart, sentences: int
) -> list[Fact]:
    facts = [target]
    for _ in range(min(generator.choice((0, 1, 1, 2)), sentences - 1)):
        if generator.random() < 0.5:
            facts.append(_draw_fact(generator, used, names))
        else:
            other_kinds = [kind for kind in FACT_KINDS if kind not in {fact.kind for fact in facts}]
            facts.append(_draw_fact(generator, used, names, target.person, other_kinds))
    generator.shuffle(facts)
    return facts


def _draw_distractor(
    generator: random.Random, target: Fact, used: set[str], names: NamePart, sentences: int
) -> list[Fact]:
    draw = generator.random()
    if draw < 0.5:  # the same kind of fact about another person
        facts = [_draw_fact(generator, used, names, kinds=(target.kind,))]
    elif draw < 0.75:  # another fact about the same person
        other_kinds = [kind for kind in FACT_KINDS if kind != target.kind]
        facts = [_draw_fact(generator, used, names, target.person, other_kinds)]
    else:
        facts = [_draw_fact(generator, used, names)]
    for _ in range(min(generator.choice((0, 0, 1)), sentences - 1)):
        facts.append(_draw_fact(generator, used, names))
    generator.shuffle(facts)
    return facts


def _write_passage(generator: random.Random, facts: list[Fact], held_out: Fact | None) -> str:
    sentences = []
    for fact in facts:
        kind = FACT_KINDS[fact.kind]
        templates = kind.held_out_statements if fact == held_out else kind.statements
        sentences.append(generator.choice(templates).format(n=fact.person, v=fact.name))
    return " ".join(sentences)
