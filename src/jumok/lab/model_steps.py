"""Attention step by step in one head of a model, as the lens recorded it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from jumok.attention.score import ScaledDot, Score
from jumok.errors import ArgumentError
from jumok.lens.capture.captured_attention import CapturedCall
from jumok.lens.capture.model_capture import Capture

from . import step_texts as texts
from .bilingual_text import Text
from .formula_steps import Example, Matrix, Step

MAX_TOKENS = 64  # a larger table cannot be read on a screen
KEPT = ("value", "output")  # what the lens must record besides queries and keys


def build_model_steps(
    capture: Capture, layer: int | str, head: int, query_labels: Sequence[str], key_labels: Sequence[str]
) -> Example:
    """Compute the steps of one head from the queries, keys and values that a lens recorded.

    Args:
        capture: A capture of one input, made with ``keep=("value", "output")``.
        layer: The layer's number or site name.
        head: The head, counted from 0, or from the end if negative.

    Raises:
        ArgumentError: If the head does not exist, or the attention has too many tokens or another form.
    """
    attention = capture.attention(layer)
    site = attention.site
    if not -attention.heads <= head < attention.heads:
        raise ArgumentError(f"there is no head {head}; {site} has heads 0 to {attention.heads - 1}, and -1 is the last")
    head %= attention.heads
    if len(attention.calls) > 1:
        raise ArgumentError(f"{site} is called once for each token; choose a model that reads all tokens at once")
    (call,) = attention.calls
    if max(call.queries, call.keys) > MAX_TOKENS:
        raise ArgumentError(
            f"this input has {max(call.queries, call.keys)} tokens; give at most {MAX_TOKENS}, or use: jumok look"
        )

    group = head // (call.query.shape[1] // call.key.shape[1])
    query, key = call.query[0, head].float().cpu(), call.key[0, group].float().cpu()
    values = capture.activations[f"{site}.value"][0, group].float().cpu()
    rows, columns = _fit_labels(query_labels, call.queries), _fit_labels(key_labels, call.keys)
    steps = [
        Step("Q", query, texts.QUERY, rows),
        Step("K", key, texts.KEY, columns),
        Step("V", values, texts.VALUE, columns),
        *_compute_score_steps(call, head, group, rows, columns),
    ]
    weights = capture.weights(site, head).float().cpu()
    has_sink = call.score.sink is not None
    explanation = texts.SINK_WEIGHTS if has_sink else texts.WEIGHTS
    steps.append(Step("softmax, row by row", weights, explanation, rows, columns, is_weights=True))
    output = capture.activations[f"{site}.output"][0, head].float().cpu()
    steps.append(Step("weights V", output, texts.OUTPUT, rows))

    difference = float((weights @ values - output).abs().max())
    remark = Text(
        "Q, K and V are those of the model, after position encoding; weights V differs from what the model computed "
        f"by at most {difference:.0e}.",
        "Q, K, V는 위치 인코딩까지 적용된 모델의 값이며, 가중치와 V의 곱은 모델이 계산한 값과 최대 "
        f"{difference:.0e} 다릅니다.",
    )
    title = Text(f"head {head} of {site}", f"{site}의 헤드 {head}")
    return Example(title, steps, rows, [] if rows == columns else columns, remark)


def _compute_score_steps(
    call: CapturedCall, head: int, group: int, rows: Sequence[str], columns: Sequence[str]
) -> list[Step]:
    """Return the lines from products to masked scores, as the model's score defines them."""
    labels: dict[str, Any] = {"rows": rows, "columns": columns}
    steps = _compute_products(call.score, call.query[0, head].float().cpu(), call.key[0, group].float().cpu(), labels)
    scores = steps[-1].numbers
    everything = slice(None)
    if call.bias is not None:
        bias = call.evaluate_bias(0, head, everything, everything).float().cpu()
        scores = scores + bias
        steps.append(Step("+ bias", scores, texts.BIASED, **labels))
    if call.mask is not None:
        allowed = call.evaluate_mask(0, head, everything, everything).cpu()
        steps.append(Step("masked", scores.masked_fill(~allowed, -torch.inf), texts.MASKED, **labels))
    return steps


def _compute_products(score: Score, query: Matrix, key: Matrix, labels: dict[str, Any]) -> list[Step]:
    if not isinstance(score, ScaledDot):
        raise ArgumentError(f"jumok steps explains dot products, but this attention computes {type(score).__name__}")
    products = query @ key.T
    steps = [Step("Q K^T", products, texts.PRODUCTS, **labels)]
    scale = score.get_scale(query)
    scaled = products * scale
    width = query.shape[-1]
    if abs(scale * width**0.5 - 1) < 1e-6:
        steps.append(Step(f"/ sqrt({width})", scaled, texts.SCALED, **labels))
    elif scale != 1:
        steps.append(Step(f"x {scale:g}", scaled, texts.MODEL_SCALE, **labels))
    if score.softcap is not None:
        capped = score.softcap * torch.tanh(scaled / score.softcap)
        steps.append(Step(f"{score.softcap:g} tanh(scores / {score.softcap:g})", capped, texts.SOFTCAP, **labels))
    return steps


def _fit_labels(labels: Sequence[str], count: int) -> list[str]:
    """Return the labels, or numbers if there is not one label per position."""
    return list(labels) if len(labels) == count else [str(index) for index in range(count)]
