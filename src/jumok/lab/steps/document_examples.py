"""Worked examples from introductions to attention, with the numbers that those texts print."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from jumok.attention import mask as masks
from jumok.errors import ArgumentError

from .formula_steps import TEXTS, Example, Step, compute_steps, compute_weight_steps
from .input_steps import build_multihead_steps, build_sentence_steps

EXAMPLE_SENTENCE = "the animal didn't cross the street because it was too tired"
NAN = float("nan")  # where the text prints no number


def _build_mixture() -> Example:
    weights = torch.tensor([[0.1, 0.8, 0.1]])
    values = torch.tensor([[10.0, 10.0], [100.0, 100.0], [5.0, 5.0]])
    printed_parts = torch.tensor([[1.0, 1.0], [80.0, 80.0], [0.5, 0.5]])
    printed_sum = torch.tensor([[81.5, 81.5]])
    words = ["1", "2", "3"]
    headings = {name: TEXTS(f"headings.{name}") for name in ("weights", "value", "parts", "sum")}
    return Example(
        TEXTS("examples.mixture"),
        [
            Step(
                headings["weights"], weights, TEXTS("fixed_weights"), words[:1], words, printed=weights, is_weights=True
            ),
            Step(headings["value"], values, TEXTS("value"), words, printed=values),
            Step(headings["parts"], weights.T * values, TEXTS("parts"), words, printed=printed_parts),
            Step(headings["sum"], weights @ values, TEXTS("output"), words[:1], printed=printed_sum),
        ],
    )


def _build_causal() -> Example:
    table = torch.tensor(
        [[2.1, 1.5, 0.8, 1.2], [1.3, 2.5, 1.1, 0.9], [0.7, 1.8, 2.2, 1.4], [1.0, 1.6, 1.9, 2.3]]
    )  # fmt: skip
    queries, keys = [f"q{index}" for index in range(4)], [f"k{index}" for index in range(4)]
    masked, weights = compute_weight_steps(table, masks.causal, query_labels=queries, key_labels=keys)
    printed = torch.full((4, 4), NAN)
    printed[2] = torch.tensor([0.1, 0.3, 0.6, 0.0])
    return Example(
        TEXTS("examples.causal"),
        [
            Step(TEXTS("headings.scores"), table, TEXTS("scores"), queries, keys, printed=table),
            masked,
            replace(weights, printed=printed),
        ],
        remark=TEXTS("remarks.causal"),
    )


def _build_one_hot() -> Example:
    vectors = torch.eye(3)
    names = ["I", "love", "AI"]
    labels: dict[str, Any] = {"query_labels": names, "key_labels": names}
    unscaled_steps = compute_steps(vectors, vectors, vectors, scaled=False, **labels)
    scaled_steps = compute_steps(vectors, vectors, vectors, **labels)
    query, key, values, products, weights = unscaled_steps[:-1]
    inputs = [replace(step, printed=vectors) for step in (query, key, values)]
    return Example(
        TEXTS("examples.one-hot"),
        [*inputs, products, weights, *scaled_steps[4:]],
        remark=TEXTS("remarks.one-hot"),
    )


def _build_large_scores() -> Example:
    table = torch.tensor([[5.0, 95.0, 12.0]])
    query, keys = ["it"], ["The", "animal", "street"]
    (weights,) = compute_weight_steps(table, None, query_labels=query, key_labels=keys)
    printed = torch.tensor([[0.01, 0.88, 0.03]])
    scores = Step(TEXTS("headings.scores"), table, TEXTS("scores"), query, keys, printed=table)
    return Example(
        TEXTS("examples.scores"),
        [scores, replace(weights, printed=printed)],
        remark=TEXTS("remarks.scores"),
    )


def _build_sentence() -> Example:
    return build_sentence_steps(EXAMPLE_SENTENCE)


def _build_multihead() -> Example:
    example = build_multihead_steps("나는 학교에 간다", heads=4, width=64)
    printed_shapes = {"X": (1, 3, 64), "concatenation of the heads": (1, 3, 64), "concatenation W_O": (1, 3, 64)}
    printed_shapes |= {f"head {head}: output": (1, 3, 16) for head in range(4)}
    steps = [replace(step, printed_shape=printed_shapes.get(step.formula)) for step in example.steps]
    return replace(example, steps=steps)


EXAMPLES: dict[str, Callable[[], Example]] = {
    "mixture": _build_mixture,
    "one-hot": _build_one_hot,
    "causal": _build_causal,
    "scores": _build_large_scores,
    "sentence": _build_sentence,
    "multi-head": _build_multihead,
}


def build_example(name: str) -> Example:
    """Build one of the worked examples: mixture, one-hot, causal, scores, sentence or multi-head.

    >>> [step.formula for step in build_example("causal").steps]
    ['scores', 'masked: causal', 'softmax, row by row']
    """
    if name not in EXAMPLES:
        raise ArgumentError(f"unknown example {name!r}; choose one of {', '.join(EXAMPLES)}")
    return EXAMPLES[name]()
