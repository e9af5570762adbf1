"""Answers beside what they should have been: how many are right, and BLEU (Papineni et al. 2002), by sacrebleu."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from jumok.errors import ArgumentError
from jumok.generate import generate
from jumok.models import Model

AT_ONCE = 256  # answers that are decoded together


def sacrebleu() -> Any:
    """The package; asked for before a run begins, so that none is lost for want of it."""
    try:
        return importlib.import_module("sacrebleu")
    except ImportError:
        raise ArgumentError("BLEU is measured by the package sacrebleu: pip install 'jumok[train]'") from None


def bleu(found: Sequence[str], wanted: Sequence[str]) -> float:
    """Of whole sets of answers, 0 to 100; words are what stands between spaces.

    >>> bleu(["1 2 3 4 5"], ["1 2 3 4 5"]), bleu(["5 4 3"], ["1 2 3 4 5"]) < 10
    (100.0, True)
    """
    score = sacrebleu().corpus_bleu(list(found), [list(wanted)], tokenize="none", force=True)
    return min(100.0, float(score.score))  # its logarithms leave a last bit above 100


def exact(found: Sequence[str], wanted: Sequence[str]) -> float:
    """The share of answers that are right from their first token to their last."""
    return sum(map(str.__eq__, found, wanted)) / len(wanted)


def decoded(model: Model, sources: Sequence[list[int]], limit: int, end: int) -> list[list[int]]:
    """The model's own answers, greedy, without their end."""
    # those of similar length together, so that little is padded
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    answers: list[list[int]] = [[] for _ in sources]
    for first in range(0, len(order), AT_ONCE):
        chosen = order[first : first + AT_ONCE]
        for place, answer in zip(
            chosen, generate(model, [sources[one] for one in chosen], limit=limit, ends=(end,)), strict=True
        ):
            answers[place] = answer[:-1] if answer[-1:] == [end] else answer
    return answers
