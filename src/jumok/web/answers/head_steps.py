"""The computation of one head for one query, with numbers: products, scale, bias, mask, softmax, weighted values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from jumok.attention.score import ScaledDot, Score
from jumok.errors import ArgumentError
from jumok.lab.steps.formula_steps import TEXTS, has_usual_scale
from jumok.lab.steps.model_steps import HeadNumbers, read_head
from jumok.lens.capture.captured_attention import CapturedCall, WeightTable
from jumok.lens.edits.edit_types import TemperatureScore
from jumok.web import messages
from jumok.web.maps.site_maps import WindowMap
from jumok.web.opened_model import MAX_KEPT_POSITIONS, Pass

MAX_KEYS = 64  # keys that are listed
DIGITS = 7  # of the numbers in the answer


def describe_steps(shown: Pass, site: int, head: int, query: int, language: str) -> messages.Steps:
    """Return the computation of one query.

    Raises:
        ArgumentError: If the attention has another form, or its values were not recorded.
    """
    site_map = shown.maps[site]
    name = site_map.attention.site
    window, row, positions = 0, query, list(range(site_map.keys))
    if isinstance(site_map, WindowMap):
        window, row = site_map.locate(query)
        positions = site_map.windows[window].tolist()
    numbers = _read_recorded(shown, name, window, head, row)
    call, values = numbers.call, numbers.values
    scaled = _compute_scores(numbers, window, head, row)
    weights = site_map.attention.tile(window, head, slice(row, row + 1), slice(None))[0].double().cpu()
    total = weights @ values
    listed = _choose_keys(weights, positions)
    listed_weights = weights[listed]
    return messages.Steps(
        formula_scale=describe_scale(call.score, head, call.query),
        width=call.query.shape[-1],
        query=_round(numbers.query[0]),
        keys=[
            messages.StepKey(
                key=positions[index],
                k=_round(numbers.key[index]),
                product=_round_number(numbers.products[0, index]),
                scaled=_round_number(scaled[index]),
                bias=None if numbers.bias is None else _round_number(numbers.bias[0, index]),
                is_allowed=bool(numbers.allowed[0, index]),
                weight=float(weights[index]),
                v=_round(values[index]),
            )
            for index in listed
        ],
        hidden=sum(position >= 0 for position in positions) - len(listed),
        hidden_weight=max(0.0, float(weights.sum() - listed_weights.sum())),
        log_sum_exp=_round_number(_sum_exponentials(numbers, scaled, head)),
        output=_round(total),
        difference=None if numbers.output is None else float((total - numbers.output[0]).abs().max()),
        sentences=write_sentences(call, language),
    )


def _read_recorded(shown: Pass, name: str, window: int, head: int, row: int) -> HeadNumbers:
    """Return the numbers of one head for one query, in float64."""
    calls = shown.capture.attentions[name].calls
    if isinstance(calls[0], WeightTable):
        raise ArgumentError("the model returned these maps itself, so there are no queries and keys to compute with")
    if len(calls) == 1 and f"{name}.value" not in shown.capture.activations:
        raise ArgumentError(f"the computation is shown for inputs of at most {MAX_KEPT_POSITIONS:,} positions")
    return read_head(shown.capture, name, head, row=window, queries=slice(row, row + 1), dtype=torch.float64)


def _compute_scores(numbers: HeadNumbers, window: int, head: int, row: int) -> Tensor:
    """Return the scores of one query before bias and mask, in float64."""
    call = numbers.call
    if find_dot_product(call.score) is None:
        raise ArgumentError(f"the page explains dot products, but this attention computes {type(call.score).__name__}")
    # a score may have parameters for each head, so it is evaluated on all of them
    query, key = call.query[window : window + 1, :, row : row + 1], call.key[window : window + 1]
    return call.score.evaluate(query.double(), key.double())[0, head, 0].cpu()


def _sum_exponentials(numbers: HeadNumbers, scaled: Tensor, head: int) -> Tensor:
    """Return the logarithm of the sum that the softmax divides by."""
    scores = scaled if numbers.bias is None else scaled + numbers.bias[0]
    scores = scores.masked_fill(~numbers.allowed[0], -torch.inf)
    sink = numbers.call.score.sink
    if sink is not None:
        scores = torch.cat([scores, sink[head : head + 1].double().cpu()])
    return scores.logsumexp(0)


def find_dot_product(score: Score) -> ScaledDot | None:
    """Return the dot product inside a score, also under changed temperatures; None for other formulas."""
    while isinstance(score, TemperatureScore):
        score = score.inner
    return score if isinstance(score, ScaledDot) else None


def describe_scale(score: Score, head: int, query: Tensor) -> str:
    """Return how products become scores, such as "/ sqrt(64)"."""
    temperatures = []
    while isinstance(score, TemperatureScore):
        if score.scaled_heads is None or head in score.scaled_heads:
            temperatures.append(f" / {score.temperature:g}")
        score = score.inner
    assert isinstance(score, ScaledDot)
    text = f"/ sqrt({query.shape[-1]})" if has_usual_scale(score, query) else f"x {score.get_scale(query):g}"
    if score.softcap is not None:
        text += f", {score.softcap:g} tanh(score / {score.softcap:g})"
    return text + "".join(temperatures)


def _choose_keys(weights: Tensor, positions: list[int]) -> list[int]:
    """Return the keys with the largest weights in the order of their positions; without padding."""
    real = [index for index, position in enumerate(positions) if position >= 0]
    largest = sorted(real, key=lambda index: -float(weights[index]))[:MAX_KEYS]
    return sorted(largest, key=lambda index: positions[index])


def write_sentences(call: CapturedCall, language: str) -> dict[messages.StepName, str]:
    """Return one sentence for each step."""
    dot_product = find_dot_product(call.score)
    assert dot_product is not None
    names: dict[messages.StepName, str] = {
        "query": "one_query",
        "key": "one_key",
        "product": "one_product",
        "scale": "scaled" if has_usual_scale(dot_product, call.query) else "model_scale",
        "bias": "no_bias" if call.bias is None else "biased",
        "mask": "no_mask" if call.mask is None else "one_mask",
        "softmax": "one_softmax" if call.score.sink is None else "one_sink_softmax",
        "value": "one_value",
        "sum": "one_sum",
    }
    sentences = {name: TEXTS(text).select(language) for name, text in names.items()}
    if dot_product.softcap is not None:
        sentences["scale"] += f" {TEXTS('softcap').select(language)}"
    return sentences


def _round(vector: Tensor) -> list[float | None]:
    """Return numbers with a few digits; None for what JSON cannot express."""
    return [float(f"{number:.{DIGITS}g}") if math.isfinite(number) else None for number in vector.tolist()]


def _round_number(number: Tensor) -> float | None:
    return _round(number[None])[0]
