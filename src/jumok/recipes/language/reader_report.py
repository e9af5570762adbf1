"""The report of the recipe ``reader``: exact match by number of passages, a guess as baseline, and tested citations."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jumok.data.datasets.invented_facts import NamePart, PassageQuestion, make_question
from jumok.data.tokenizers.passage_tokens import PASSAGE_MARK
from jumok.models import Model
from jumok.models.fusion import Fusion, measure_passage_attention, score_without_passages

from .passage_questions import ReadingTexts

PASSAGE_COUNTS = (1, 2, 5, 10, 20)
CITATION_PASSAGES = 5
REPORTED_SAMPLES = 6
#: the rows of the report: a name, the part of the names, and whether the templates are held out
CONDITIONS: tuple[tuple[str, NamePart, bool], ...] = (
    ("known names, known templates", "train", False),
    ("held-out names", "report", False),
    ("held-out templates", "train", True),
    ("held-out names and templates", "report", True),
)


def make_report_questions(count: int, passages: int, names: NamePart, held_out: bool) -> list[PassageQuestion]:
    """Return the questions of one cell of the report; the same for every model."""
    return [
        make_question(
            f"report {names} {held_out} {passages} {index}", passages, names=names, held_out_templates=held_out
        )
        for index in range(count)
    ]


def build_generated_report(model: Model, texts: ReadingTexts, count: int, limit: int) -> dict[str, Any]:
    """Return the report on generated questions."""
    rows = []
    for name, names, held_out in CONDITIONS:
        row: dict[str, Any] = {"questions": name}
        for passages in PASSAGE_COUNTS:
            examples = make_report_questions(count, passages, names, held_out)
            row[f"{passages} passages"] = compute_share(texts.answer(model, examples, limit), examples)
        rows.append(row)
    guesses: dict[str, Any] = {"questions": "guess: a random name of the right kind in the passages"}
    for passages in PASSAGE_COUNTS:
        examples = make_report_questions(count, passages, "report", False)
        share = statistics.mean(1 / max(1, len(example.candidates)) for example in examples)
        guesses[f"{passages} passages"] = round(share, 4)

    held_out_names = make_report_questions(count, CITATION_PASSAGES, "report", False)
    answers = texts.answer(model, held_out_names, limit)
    example = held_out_names[0]
    return {
        "try": write_example(example),
        "exact_match": compute_share(answers, held_out_names),
        "what": f"{count} generated questions in each cell, decoded greedily; exact_match: held-out names, "
        f"{CITATION_PASSAGES} passages",
        "by_passages": [*rows, guesses],
        **report_citations(model, texts, held_out_names, answers),
        "samples": list_samples(held_out_names, answers),
    }


def build_own_report(
    model: Model, texts: ReadingTexts, examples: Sequence[PassageQuestion], limit: int
) -> dict[str, Any]:
    """Return the report on the user's held-out questions."""
    answers = texts.answer(model, examples, limit)
    return {
        "try": write_example(examples[0]),
        "exact_match": compute_share(answers, examples),
        "what": f"{len(examples):,} held-out questions, decoded greedily",
        **report_citations(model, texts, examples, answers),
        "samples": list_samples(examples, answers),
    }


def report_citations(
    model: Model, texts: ReadingTexts, examples: Sequence[PassageQuestion], answers: Sequence[str]
) -> dict[str, Any]:
    """Return how often the passage that an answer of a Fusion depends on is the right one."""
    if not isinstance(model, Fusion):
        return {}
    rows = []
    for name, is_included in (("all answers", (True, False)), ("exact answers", (True,))):
        pairs = [
            (example, answer)
            for example, answer in zip(examples, answers, strict=True)
            if example.right is not None and len(example.passages) > 1 and (answer == example.answer) in is_included
        ]
        if pairs:
            rows.append({"questions": name, **_score_citations(model, texts, pairs)})
    if not rows:
        return {}
    return {
        "citations": rows,
        "citations_what": "the passage whose cut lowers the log-probability of the answer most, against the passage "
        "with the largest cross-attention: how often is it the one with the right answer? A wrong answer may come from "
        "another passage",
    }


def _score_citations(
    model: Fusion, texts: ReadingTexts, pairs: Sequence[tuple[PassageQuestion, str]]
) -> dict[str, int | float]:
    right_by_cut, right_by_weight, right_drops, other_drops = [], [], [], []
    for example, answer in pairs:
        assert example.right is not None
        effects = measure_passages(model, texts.encode_source(example), texts.encode_answer(answer))
        right_by_cut.append(effects.cited == example.right)
        right_by_weight.append(effects.most_attended == example.right)
        right_drops.append(effects.drops[example.right])
        other_drops += [drop for index, drop in enumerate(effects.drops) if index != example.right]
    return {
        "count": len(pairs),
        "right_by_cutting": round(float(statistics.mean(right_by_cut)), 4),
        "right_by_attention": round(float(statistics.mean(right_by_weight)), 4),
        "median_drop_right_passage": round(statistics.median(right_drops), 3),
        "median_drop_other_passages": round(statistics.median(other_drops), 3),
    }


def compute_share(answers: Sequence[str], examples: Sequence[PassageQuestion]) -> float:
    """Return the share of answers that are exactly right."""
    right = [answer == example.answer for answer, example in zip(answers, examples, strict=True)]
    return round(float(statistics.mean(right)), 4)


def write_example(example: PassageQuestion) -> str:
    """Return a question and its passages as one line, as ``jumok run`` reads it."""
    parts = [example.question, *example.passages]
    return f" {PASSAGE_MARK} ".join(part.replace(PASSAGE_MARK, "/") for part in parts)


def list_samples(examples: Sequence[PassageQuestion], answers: Sequence[str]) -> list[dict[str, Any]]:
    """Return some questions with their answers, wrong ones first."""
    pairs = list(zip(examples, answers, strict=True))
    pairs.sort(key=lambda pair: pair[0].answer == pair[1])
    return [
        {"question": example.question, "expected": example.answer, "answer": answer}
        for example, answer in pairs[:REPORTED_SAMPLES]
    ]


@dataclass(frozen=True)
class PassageEffects:
    """What each passage contributes to an answer.

    Attributes:
        drops: By passage, how much the log-probability of the answer falls when the passage is cut.
        weights: By passage, the cross-attention on it, as the mean over layers, heads and tokens of the answer.
    """

    drops: list[float]
    weights: list[float]

    @property
    def cited(self) -> int:
        """The passage whose cut costs the answer most."""
        return max(range(len(self.drops)), key=lambda index: self.drops[index])

    @property
    def most_attended(self) -> int:
        """The passage with the largest weight."""
        return max(range(len(self.weights)), key=lambda index: self.weights[index])


def measure_passages(model: Fusion, source: list[int], answer: list[int]) -> PassageEffects:
    """Cut each passage in turn. Passages are encoded apart, so cutting one changes no other passage."""
    tokens = torch.tensor([source], device=model.device)
    passages = range(source.count(model.config.separator))
    clean, *cut = score_without_passages(model, tokens, answer, [(), *((number,) for number in passages)]).sum(1)
    weights = measure_passage_attention(model, tokens, answer)
    return PassageEffects([float(clean - score) for score in cut], weights)
