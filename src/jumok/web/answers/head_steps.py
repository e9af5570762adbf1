"""The computation of one head for one query, with numbers: products, scale, bias, mask, softmax, weighted values."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from jumok.attention.score import ScaledDot, Score
from jumok.errors import ArgumentError
from jumok.lab import step_texts as texts
from jumok.lab.bilingual_text import Text
from jumok.lens.capture.captured_attention import CapturedCall
from jumok.lens.edits.apply_edits import TemperatureScore
from jumok.web.forward_pass import MAX_KEPT_POSITIONS, Pass

from .site_maps import WindowMap

MAX_KEYS = 64  # keys that are listed
DIGITS = 7  # of the numbers in the answer


def describe_steps(shown: Pass, site: int, head: int, query: int, language: str) -> dict[str, Any]:
    """Return the computation of one query.

    Args:
        shown: The clean or the edited pass, recorded with values and outputs.
        language: The language of the sentences: "en" or "ko".

    Raises:
        ArgumentError: If the attention has another form, or its values were not recorded.
    """
    site_map = shown.maps[site]
    name = site_map.attention.site
    window, row, positions = 0, query, list(range(site_map.keys))
    if isinstance(site_map, WindowMap):
        window, row = site_map.locate(query)
        positions = site_map.windows[window].tolist()
    call, values, output = _read_recorded(shown, name, window, head)
    steps = _compute(call, window, head, row)
    weights = site_map.attention.tile(window, head, slice(row, row + 1), slice(None))[0].double().cpu()
    total = weights @ values
    listed = _choose_keys(weights, positions)
    listed_weights = weights[listed]
    return {
        "formula_scale": _describe_scale(call.score, head, call.query),
        "width": call.query.shape[-1],
        "query": _round(steps["query"]),
        "keys": [
            {
                "key": positions[index],
                "k": _round(steps["keys"][index]),
                "product": _round_number(steps["products"][index]),
                "scaled": _round_number(steps["scaled"][index]),
                "bias": None if steps["bias"] is None else _round_number(steps["bias"][index]),
                "is_allowed": bool(steps["allowed"][index]),
                "weight": float(weights[index]),
                "v": _round(values[index]),
            }
            for index in listed
        ],
        "hidden": sum(position >= 0 for position in positions) - len(listed),
        "hidden_weight": max(0.0, float(weights.sum() - listed_weights.sum())),
        "log_sum_exp": _round_number(steps["log_sum_exp"]),
        "output": _round(total),
        "difference": float((total - output[row]).abs().max()),
        "sentences": _write_sentences(call, language),
    }


def _read_recorded(shown: Pass, name: str, window: int, head: int) -> tuple[CapturedCall, Tensor, Tensor]:
    """Return the call of an attention, and its values and outputs of one head, in float64."""
    calls, activations = shown.capture.attentions[name].calls, shown.capture.activations
    if not calls:
        raise ArgumentError("the model returned these maps itself, so there are no queries and keys to compute with")
    if len(calls) > 1:
        raise ArgumentError(f"{name} is called once for each token; choose a model that reads all tokens at once")
    if f"{name}.value" not in activations:
        raise ArgumentError(f"the computation is shown for inputs of at most {MAX_KEPT_POSITIONS:,} positions")
    (call,) = calls
    group = head // (call.query.shape[1] // call.key.shape[1])
    values = activations[f"{name}.value"][window, group].double().cpu()
    return call, values, activations[f"{name}.output"][window, head].double().cpu()


def _compute(call: CapturedCall, window: int, head: int, row: int) -> dict[str, Any]:
    """Return the numbers of one row from the queries to the log-sum-exp, in float64."""
    if _find_dot_product(call.score) is None:
        raise ArgumentError(f"the page explains dot products, but this attention computes {type(call.score).__name__}")
    group = head // (call.query.shape[1] // call.key.shape[1])
    query = call.query[window, head, row].double().cpu()
    keys = call.key[window, group].double().cpu()
    rows, columns = slice(row, row + 1), slice(None)
    # a score may have parameters for each head, so it is evaluated on all of them
    every_head = call.score.evaluate(
        call.query[window : window + 1, :, rows].double(), call.key[window : window + 1].double()
    )
    scaled = every_head[0, head, 0].cpu()
    bias = None if call.bias is None else call.evaluate_bias(window, head, rows, columns)[0].double().cpu()
    allowed = call.evaluate_mask(window, head, rows, columns)[0].cpu()
    scores = (scaled if bias is None else scaled + bias).masked_fill(~allowed, -torch.inf)
    if call.score.sink is not None:
        scores = torch.cat([scores, call.score.sink[head : head + 1].double().cpu()])
    return {
        "query": query,
        "keys": keys,
        "products": keys @ query,
        "scaled": scaled,
        "bias": bias,
        "allowed": allowed,
        "log_sum_exp": scores.logsumexp(0),
    }


def _find_dot_product(score: Score) -> ScaledDot | None:
    """Return the dot product inside a score, also under changed temperatures; None for other formulas."""
    while isinstance(score, TemperatureScore):
        score = score.inner
    return score if isinstance(score, ScaledDot) else None


def _describe_scale(score: Score, head: int, query: Tensor) -> str:
    """Return how products become scores, such as "/ sqrt(64)"."""
    temperatures = []
    while isinstance(score, TemperatureScore):
        if score.scaled_heads is None or head in score.scaled_heads:
            temperatures.append(f" / {score.temperature:g}")
        score = score.inner
    assert isinstance(score, ScaledDot)
    scale, width = score.get_scale(query), query.shape[-1]
    text = f"/ sqrt({width})" if abs(scale * width**0.5 - 1) < 1e-6 else f"x {scale:g}"
    if score.softcap is not None:
        text += f", {score.softcap:g} tanh(score / {score.softcap:g})"
    return text + "".join(temperatures)


def _choose_keys(weights: Tensor, positions: list[int]) -> list[int]:
    """Return the keys with the largest weights in the order of their positions; without padding."""
    real = [index for index, position in enumerate(positions) if position >= 0]
    largest = sorted(real, key=lambda index: -float(weights[index]))[:MAX_KEYS]
    return sorted(largest, key=lambda index: positions[index])


def _write_sentences(call: CapturedCall, language: str) -> dict[str, str]:
    """Return one sentence for each step."""
    dot_product = _find_dot_product(call.score)
    assert dot_product is not None
    width = call.query.shape[-1]
    is_usual = abs(dot_product.get_scale(call.query) * width**0.5 - 1) < 1e-6
    sentences = {
        "query": texts.ONE_QUERY,
        "key": texts.ONE_KEY,
        "product": texts.ONE_PRODUCT,
        "scale": texts.SCALED if is_usual else texts.MODEL_SCALE,
        "bias": texts.BIASED if call.bias is not None else texts.NO_BIAS,
        "mask": texts.ONE_MASK if call.mask is not None else texts.NO_MASK,
        "softmax": texts.ONE_SOFTMAX if call.score.sink is None else texts.ONE_SINK_SOFTMAX,
        "value": texts.ONE_VALUE,
        "sum": texts.ONE_SUM,
    }
    return {name: _join(sentence, dot_product, name).select(language) for name, sentence in sentences.items()}


def _join(sentence: Text, dot_product: ScaledDot, name: str) -> Text:
    """Return the sentence about the scale together with the one about a bound of the scores."""
    if name != "scale" or dot_product.softcap is None:
        return sentence
    bound = texts.SOFTCAP
    return Text(f"{sentence.english} {bound.english}", f"{sentence.korean} {bound.korean}")


def _round(vector: Tensor) -> list[float | None]:
    """Return numbers with a few digits; None for what JSON cannot express."""
    return [float(f"{number:.{DIGITS}g}") if math.isfinite(number) else None for number in vector.tolist()]


def _round_number(number: Tensor) -> float | None:
    return _round(number[None])[0]
