"""Attention step by step in one head of a model, as the lens recorded it; the page shows one row of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.attention.score import ScaledDot
from jumok.errors import ArgumentError
from jumok.lens.capture.captured_attention import CapturedCall
from jumok.lens.capture.model_capture import Capture

from .formula_steps import TEXTS, Example, Step, compute_score_steps, list_input_steps

MAX_TOKENS = 64  # a larger table cannot be read on a screen
KEPT = ("value", "output")  # what the lens must record besides queries and keys


@dataclass(frozen=True, eq=False)
class HeadNumbers:
    """What one head of a recorded attention computes with.

    Attributes:
        products: Queries times keys.
        bias: What is added to the scores; None if nothing is.
        allowed: True = the query may attend to the key.
        output: What the model computed; None if the capture does not have it.
    """

    call: CapturedCall
    query: Float[Tensor, "query head_width"]
    key: Float[Tensor, "key head_width"]
    values: Float[Tensor, "key value_width"]
    products: Float[Tensor, "query key"]
    bias: Float[Tensor, "query key"] | None
    allowed: Bool[Tensor, "query key"]
    output: Float[Tensor, "query value_width"] | None


def read_head(
    capture: Capture, site: str, head: int, *, row: int = 0, queries: slice = slice(None), dtype: torch.dtype
) -> HeadNumbers:
    """Return the numbers of one head, on the CPU.

    Args:
        capture: A capture made with ``keep=KEPT``.
        row: The row of the batch.
        queries: Which queries; default: all of them.
    """
    calls = capture.attentions[site].calls
    if len(calls) > 1:
        raise ArgumentError(f"{site} is called once for each token; choose a model that reads all tokens at once")
    (call,) = calls
    output = capture.activations.get(f"{site}.output")
    group = head // (call.query.shape[1] // call.key.shape[1])
    query, key = call.query[row, head, queries].to("cpu", dtype), call.key[row, group].to("cpu", dtype)
    keys = slice(None)
    return HeadNumbers(
        call,
        query,
        key,
        values=capture.activations[f"{site}.value"][row, group].to("cpu", dtype),
        products=query @ key.T,
        bias=None if call.bias is None else call.evaluate_bias(row, head, queries, keys).to("cpu", dtype),
        allowed=call.evaluate_mask(row, head, queries, keys).cpu(),
        output=None if output is None else output[row, head, queries].to("cpu", dtype),
    )


def build_model_steps(
    capture: Capture, layer: int | str, head: int, query_labels: Sequence[str], key_labels: Sequence[str]
) -> Example:
    """Compute the steps of one head from the queries, keys and values that a lens recorded.

    Args:
        capture: A capture of one input, made with ``keep=KEPT``.
        layer: The layer's number or site name.
        head: The head, counted from 0, or from the end if negative.
    """
    attention = capture.attention(layer)
    site = attention.site
    if not -attention.heads <= head < attention.heads:
        raise ArgumentError(f"there is no head {head}; {site} has heads 0 to {attention.heads - 1}, and -1 is the last")
    head %= attention.heads
    numbers = read_head(capture, site, head, dtype=torch.float32)
    if max(numbers.products.shape) > MAX_TOKENS:
        raise ArgumentError(
            f"this input has {max(numbers.products.shape)} tokens; give at most {MAX_TOKENS}, or use: jumok look"
        )

    call, score = numbers.call, numbers.call.score
    assert numbers.output is not None
    if not isinstance(score, ScaledDot):
        raise ArgumentError(f"jumok steps explains dot products, but this attention computes {type(score).__name__}")
    rows, columns = _fit_labels(query_labels, len(numbers.query)), _fit_labels(key_labels, len(numbers.key))
    steps = list_input_steps(numbers.query, numbers.key, numbers.values, rows, columns)
    steps += compute_score_steps(score, numbers.query, numbers.key, rows, columns)
    if numbers.bias is not None:
        steps.append(Step(TEXTS("headings.biased"), steps[-1].numbers + numbers.bias, TEXTS("biased"), rows, columns))
    if call.mask is not None:
        masked = steps[-1].numbers.masked_fill(~numbers.allowed, -torch.inf)
        steps.append(Step(TEXTS("headings.masked"), masked, TEXTS("masked"), rows, columns))
    weights = capture.weights(site, head).float().cpu()
    explanation = TEXTS("weights" if score.sink is None else "sink_weights")
    steps.append(Step(TEXTS("headings.softmax"), weights, explanation, rows, columns, is_weights=True))
    steps.append(Step(TEXTS("headings.output"), numbers.output, TEXTS("output"), rows))

    remark = TEXTS("model_remark", difference=float((weights @ numbers.values - numbers.output).abs().max()))
    title = TEXTS("titles.model", head=head, site=site)
    return Example(title, steps, rows, [] if rows == columns else columns, remark)


def _fit_labels(labels: Sequence[str], count: int) -> list[str]:
    """Return the labels, or numbers if there is not one label per position."""
    return list(labels) if len(labels) == count else [str(index) for index in range(count)]
