"""The door: every attention of every model passes ``attend``.

It takes four values: a *score* (which formula), a *bias* (finite numbers added), a *mask* (who may attend to whom)
and a *backend* (how it is computed). It checks them, lets listeners read and replace them, picks a backend or
refuses and names one that can, and gives back the output.
"""

from __future__ import annotations

from typing import Any, Literal, cast, overload

import torch
from torch import Tensor

from jumok import axes, tap
from jumok.errors import ArgumentError, BackendError, ShapeError

from .backends import blocked, explicit, flex, linear, sdpa
from .backends.protocol import AttentionOutput, AttentionRequest, Backend
from .bias import Bias
from .grid import Positions, check_positions
from .mask import Mask
from .score import Kernel, ScaledDot, Score

BACKENDS: dict[str, Backend] = {
    "explicit": cast(Backend, explicit),
    "sdpa": cast(Backend, sdpa),
    "blocked": cast(Backend, blocked),
    "flex": cast(Backend, flex),
    "linear": cast(Backend, linear),
}

# Measured (bench/attend.py, LOG.md): below this many cells a dense kernel is done before a plan is made; and a
# mask that reaches more than this share of the cells is not worth one.
SPARSE_FROM = 1024 * 1024
SPARSE_SHARE = 0.5
# An additive score keeps hidden numbers for every cell; past this many the blocked backend, which keeps one
# tile of them, is the only one that fits.
LARGEST_TANH = 2**28

_DEFAULT_SCORE = ScaledDot()


@overload
def attend(
    query: axes.Query,
    key: axes.Key,
    value: axes.Value,
    *,
    mask: Mask | None = None,
    bias: Bias | None = None,
    score: Score = _DEFAULT_SCORE,
    query_positions: Positions | None = None,
    key_positions: Positions | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
    site: str | None = None,
    weights: Literal[False] = False,
) -> axes.Output: ...


@overload
def attend(
    query: axes.Query,
    key: axes.Key,
    value: axes.Value,
    *,
    mask: Mask | None = None,
    bias: Bias | None = None,
    score: Score = _DEFAULT_SCORE,
    query_positions: Positions | None = None,
    key_positions: Positions | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
    site: str | None = None,
    weights: Literal[True],
) -> tuple[axes.Output, axes.Weights]: ...


# Axes and types stand in the overloads; here anything is taken, so that what does not fit is refused in our words.
def attend(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    score: Any = _DEFAULT_SCORE,
    query_positions: Any = None,
    key_positions: Any = None,
    dropout: float = 0.0,
    backend: str = "auto",
    site: str | None = None,
    weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Each query's mixture of values, by how its score with each key compares.

    query, key, value: ``batch head query head_width``; key and value may have fewer heads (groups) and any length;
        values any width.
    mask: who may attend to whom, e.g. ``mask.causal & mask.window(64)``; a row that may attend to nothing gives 0.
    bias, score: numbers to add, and the formula; the default score is the scaled dot product.
    query_positions, key_positions: where they stand (a range, [length] or [batch, length]); both from 0 by default.
    dropout: the share of weights dropped. There is no training mode here: pass 0 in evaluation.
    backend: "auto", or one of explicit, sdpa, blocked, flex, linear; one that cannot do it refuses.
    site: a name under which listeners hear query, key, value, mask, bias, score, positions and output.
    weights: also give the weights ``batch head query key`` (before dropout); "auto" then means "explicit".

    >>> import torch
    >>> from jumok import attend
    >>> from jumok.attention import mask
    >>> query, key, value = torch.randn(3, 2, 8, 5, 16)
    >>> output, weights = attend(query, key, value, mask=mask.causal, weights=True)
    >>> output.shape, weights.shape
    (torch.Size([2, 8, 5, 16]), torch.Size([2, 8, 5, 5]))
    """
    listened = site is not None and tap.has_listeners()
    if listened:
        query = tap.tap(f"{site}.query", query)
        key = tap.tap(f"{site}.key", key)
        value = tap.tap(f"{site}.value", value)
        mask = tap.tap(f"{site}.mask", mask)
        bias = tap.tap(f"{site}.bias", bias)
        score = tap.tap(f"{site}.score", score)
    _check(query, key, value, mask, bias, score, dropout)
    (batch, _, queries, _), keys = query.shape, key.shape[2]
    request = AttentionRequest(
        query,
        key,
        value,
        mask,
        bias,
        score,
        range(queries) if query_positions is None else check_positions(query_positions, queries, batch, "query"),
        range(keys) if key_positions is None else check_positions(key_positions, keys, batch, "key"),
        dropout,
        weights,
        listened and tap.is_requested(f"{site}.logsumexp"),
    )
    if mask is not None and mask.needs_check:
        mask.check(request.grid)
    if bias is not None:
        bias.check(request.grid)
    if listened:
        tap.tap(f"{site}.positions", (request.query_positions, request.key_positions))
    answer = _chosen(backend, request).compute(request)
    return (
        _told(answer, site, weights)
        if listened
        else ((answer.output, cast(Tensor, answer.weights)) if weights else answer.output)
    )


def _told(answer: AttentionOutput, site: str | None, weights: bool) -> Tensor | tuple[Tensor, Tensor]:
    output = tap.tap(f"{site}.output", answer.output)
    if answer.logsumexp is not None:
        tap.tap(f"{site}.logsumexp", answer.logsumexp)
    return (output, cast(Tensor, answer.weights)) if weights else output


def _chosen(name: str, request: AttentionRequest) -> Backend:
    if name == "auto":
        return BACKENDS[_fastest(request)]
    if name not in BACKENDS:
        raise BackendError(f"unknown backend {name!r}; known are auto, {', '.join(BACKENDS)}")
    refused = BACKENDS[name].explain_refusal(request)
    if refused is not None:
        raise BackendError(refused)
    return BACKENDS[name]


def _fastest(request: AttentionRequest) -> str:
    """The fastest backend that can do what was asked. flex is not among them: it compiles for many seconds."""
    if request.weights:
        return "explicit"
    if isinstance(request.score, Kernel) and linear.explain_refusal(request) is None:
        return "linear"
    cells = request.query.shape[2] * request.key.shape[2]
    fused = sdpa.explain_refusal(request) is None
    if fused and (request.mask is None or sdpa.own_causality(request)):
        return "sdpa"  # its kernel skips the future by itself
    if cells >= SPARSE_FROM and blocked.coverage(request.mask, request.grid) < SPARSE_SHARE:
        return "blocked"
    if fused:
        return "sdpa"
    if cells >= SPARSE_FROM or _tanh_cells(request) > LARGEST_TANH:
        return "blocked"
    return "explicit"


def _tanh_cells(request: AttentionRequest) -> int:
    vector = getattr(request.score, "vector", None)
    if vector is None:
        return 0
    batch, head, queries, _ = request.query.shape
    return int(batch * head * queries * request.key.shape[2] * vector.shape[-1])


def _check(query: Any, key: Any, value: Any, mask: Any, bias: Any, score: Any, dropout: float) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not (isinstance(tensor, Tensor) and tensor.dim() == 4 and tensor.is_floating_point()):
            raise _wrong(name, tensor)
    sizes, key_sizes, value_sizes = query.shape, key.shape, value.shape
    if key_sizes[:3] != value_sizes[:3]:
        raise ShapeError(
            f"key {list(key_sizes)} and value {list(value_sizes)} differ in batch, heads or length; "
            "every key needs its value"
        )
    if sizes[0] != key_sizes[0]:
        raise ShapeError(
            f"query {list(sizes)} and key {list(key_sizes)} differ in batch: {sizes[0]} and {key_sizes[0]}"
        )
    if key_sizes[1] == 0 or sizes[1] % key_sizes[1]:
        raise ShapeError(
            f"{sizes[1]} query heads do not divide into {key_sizes[1]} key/value heads "
            f"(query {list(sizes)}, key {list(key_sizes)})"
        )
    if not (query.dtype is key.dtype is value.dtype):
        raise ArgumentError(f"query, key and value differ in dtype: {query.dtype}, {key.dtype}, {value.dtype}")
    if not query.device == key.device == value.device:
        raise ArgumentError(f"query, key and value are on {query.device}, {key.device}, {value.device}")
    if not isinstance(score, Score):
        raise ArgumentError(f"score must be one of jumok.attention.score, not {_named(score)}")
    if mask is not None and not isinstance(mask, Mask):
        raise ArgumentError(
            f"mask must be one of jumok.attention.mask, not {_named(mask)}; a boolean tensor is "
            "mask.given(tensor), True = may attend"
        )
    if bias is not None and not isinstance(bias, Bias):
        raise ArgumentError(
            f"bias must be one of jumok.attention.bias, not {_named(bias)}; numbers to add are bias.given(tensor)"
        )
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout must be at least 0 and below 1, not {dropout}")
    score.check(query, key)


def _wrong(name: str, tensor: object) -> ArgumentError | ShapeError:
    if not isinstance(tensor, Tensor):
        return ArgumentError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if tensor.dim() != 4:
        return ShapeError(f"{name} must be [batch, head, length, width]; it is {list(tensor.shape)}")
    return ArgumentError(f"{name} must hold floating-point numbers, not {tensor.dtype}")


def _named(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, torch.Tensor) else type(value).__name__
