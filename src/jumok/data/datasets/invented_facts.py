"""Generate questions with passages about invented people, towns, dogs and ships, as pure functions of a seed.

The answer is in exactly one passage. The others state the same kind of fact about other people, or other facts about
the same person, so a question must be matched exactly. Names and templates can be held out of training.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
NAME_KINDS = tuple(_ENDINGS)


@dataclass(frozen=True)
class FactKind:
    """A kind of fact about a person, {n}, and a name, {v}.

    Attributes:
        answer: The kind of the name: "person", "town", "dog" or "ship".
        held_out_statements: Templates of sentences that are not used in training; their words are.
    """

    answer: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    held_out_statements: tuple[str, ...]
    held_out_questions: tuple[str, ...]


FACT_KINDS: dict[str, FactKind] = {
    "home": FactKind(
        "town",
        ("{n} lives in {v}.", "The home of {n} is in {v}.", "{n} has a house in {v}.", "In {v} is the house of {n}."),
        ("Where does {n} live?", "In which town is the house of {n}?", "Where is {n} at home?"),
        ("{n} is at home in {v}.", "{v} is the town of {n}."),
        ("In which town does {n} live?", "Where is the home of {n}?"),
    ),
    "birth": FactKind(
        "town",
        ("{n} was born in {v}.", "The birthplace of {n} is {v}.", "In {v} was {n} born.", "{v} is where {n} was born."),
        ("Where was {n} born?", "What is the birthplace of {n}?", "Where does {n} come from?"),
        ("{v} is the birthplace of {n}.", "{n} has the birthplace {v}."),
        ("In which town was {n} born?", "Which town is the birthplace of {n}?"),
    ),
    "dog": FactKind(
        "dog",
        ("{n} has a dog called {v}.", "The dog of {n} is called {v}.", "{v} is the dog of {n}.",
         "{n} owns the dog {v}."),
        ("What is the dog of {n} called?", "Which dog does {n} own?", "Who is the dog of {n}?"),
        ("{v} is a dog {n} has.", "The dog {v} lives in the house of {n}."),
        ("Which dog has {n}?", "What is the name of the dog of {n}?"),
    ),
    "boss": FactKind(
        "person",
        ("{n} works for {v}.", "The boss of {n} is {v}.", "{v} pays {n} for work.", "{v} is the boss of {n}."),
        ("Who does {n} work for?", "Who is the boss of {n}?", "Who pays {n}?"),
        ("{n} has the boss {v}.", "{v} pays {n}."),
        ("What is the name of the boss of {n}?", "Which boss does {n} work for?"),
    ),
    "spouse": FactKind(
        "person",
        ("{n} is married to {v}.", "The spouse of {n} is {v}.", "{v} is the spouse of {n}.", "{n} married {v}."),
        ("Who is {n} married to?", "Who is the spouse of {n}?", "Who did {n} marry?"),
        ("{n} has the spouse {v}.", "In a house {n} married {v}."),
        ("What is the name of the spouse of {n}?", "Which spouse has {n}?"),
    ),
    "ship": FactKind(
        "ship",
        ("{n} sails on the {v}.", "The ship of {n} is the {v}.", "{n} has a ship called {v}.",
         "{n} is on board the {v}."),
        ("Which ship does {n} sail on?", "What is the ship of {n} called?", "What is the name of the ship of {n}?"),
        ("The {v} is the ship of {n}.", "{n} owns the ship {v}."),
        ("Which ship is {n} on board?", "What does {n} sail on?"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """One fact.

    Attributes:
        kind: The name of its kind in ``FACT_KINDS``.
        name: The name that answers a question about it.
    """

    kind: str
    person: str
    name: str


@dataclass(frozen=True)
class PassageQuestion:
    """A question with passages, and its answer.

    Attributes:
        right: The index of the passage with the answer; None if that is not known.
        candidates: The names of the answer's kind in all passages, each once; a guess is one of them.
    """

    question: str
    passages: tuple[str, ...]
    answer: str
    right: int | None = None
    candidates: tuple[str, ...] = ()


def make_name(generator: random.Random, kind: str, part: NamePart = "train") -> str:
    """Draw a name of one part: no name of "train" is in "validation" or "report".

    Args:
        kind: "person", "town", "dog" or "ship".

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
        seed: Decides everything; another text gives another question.
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


def _list_other_kinds(kind: str) -> list[str]:
    return [name for name in FACT_KINDS if name != kind]


def _draw_right_passage(
    generator: random.Random, target: Fact, used: set[str], names: NamePart, sentences: int
) -> list[Fact]:
    facts = [target]
    for _ in range(min(generator.choice((0, 1, 1, 2)), sentences - 1)):
        if generator.random() < 0.5:
            facts.append(_draw_fact(generator, used, names))
        else:
            other_kinds = [kind for kind in _list_other_kinds(target.kind) if kind not in {fact.kind for fact in facts}]
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
        facts = [_draw_fact(generator, used, names, target.person, _list_other_kinds(target.kind))]
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
