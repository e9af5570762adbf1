"""``attend()``: the function that every attention of every model calls.

It takes four values: a *score* (the formula), a *bias* (finite numbers added to the scores), a *mask* (which keys each
query may attend to) and a *backend* (how it is computed). It checks them, passes them through the open listeners,
selects a backend, and returns the output.
"""

from __future__ import annotations

from typing import Any

import torch

from jumok import axes, tap
from jumok.errors import BackendError

from .argument_checks import check_positions, check_settings, check_tensors, make_unknown_argument_error
from .backends import block_plan, blocked, explicit, flex, linear, sdpa
from .backends.protocol import AttentionRequest, Backend
from .bias import Bias
from .grid import Positions
from .isolation import compute_isolated
from .mask import Mask
from .score import Kernel, ScaledDot, Score

BACKENDS: dict[str, Backend] = {"explicit": explicit, "sdpa": sdpa, "blocked": blocked, "flex": flex, "linear": linear}

# Measured (bench/attend.py): with fewer cells, a dense kernel is faster than planning blocks; and a mask that allows
# more than this share of the cells is faster with a dense kernel.
MIN_SPARSE_CELLS = 1024 * 1024
MAX_SPARSE_COVERAGE = 0.5
# Additive scores store a hidden vector for every cell. With more numbers than this, only the blocked backend, which
# stores one tile of them, fits into memory.
MAX_HIDDEN_NUMBERS = 2**28

_DEFAULT_SCORE = ScaledDot()


# `| Any`: arguments of other types are refused by the checks below, which say what to pass instead.
def attend(
    query: axes.Query | Any,
    key: axes.Key | Any,
    value: axes.Value | Any,
    *positional: Any,
    mask: Mask | Any | None = None,
    bias: Bias | Any | None = None,
    score: Score | Any = _DEFAULT_SCORE,
    query_positions: Positions | Any | None = None,
    key_positions: Positions | Any | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
    site: str | None = None,
    weights: bool = False,
    safe: bool = False,
    **unknown: Any,
) -> Any:
    """Return the softmax-weighted sum of values for each query.

    Args:
        query: Queries, ``[batch, head, query, head_width]``.
        key: Keys, ``[batch, group, key, key_width]``; the number of heads must be a multiple of the number of groups.
        value: Values, ``[batch, group, key, value_width]``.
        mask: Which keys each query may attend to, such as ``mask.causal & mask.window(64)``; None allows all. A row
            that may attend to no key has weights 0 and output 0.
        bias: Numbers to add to the scores, such as ``bias.alibi(8)``; None adds nothing.
        score: The formula; by default the scaled dot product.
        query_positions: Positions of the queries, a range or integers ``[query]`` or ``[batch, query]``; from 0 by
            default.
        key_positions: Positions of the keys, likewise.
        dropout: Probability of dropping a weight. There is no training mode: pass 0 in evaluation.
        backend: ``"auto"``, ``"explicit"``, ``"sdpa"``, ``"blocked"``, ``"flex"`` or ``"linear"``. "auto" selects the
            fastest one; a named backend raises BackendError if it cannot compute the request.
        site: Name under which listeners receive query, key, value, mask, bias, score, positions and output, and on
            request the weights and the row log-sum-exp.
        weights: Whether to return the weights too; "auto" then selects "explicit".
        safe: Whether NaN and infinity in a key or value reach only the queries that may attend to it, and dot products
            beyond the range of the dtype are computed in float64. This reads all inputs once more. By default, only
            keys that no query may attend to may hold NaN and infinity.

    Returns:
        The output, ``[batch, head, query, value_width]``; with ``weights=True`` also the weights before dropout,
        ``[batch, head, query, key]``.

    Raises:
        ShapeError: If sizes do not fit together.
        ArgumentError: If an argument has a wrong type, dtype or device.
        BackendError: If the backend is unknown or cannot compute the request.

    >>> import torch
    >>> from jumok import attend
    >>> from jumok.attention import mask
    >>> query, key, value = torch.randn(3, 2, 8, 5, 16)
    >>> output, weights = attend(query, key, value, mask=mask.causal, weights=True)
    >>> output.shape, weights.shape
    (torch.Size([2, 8, 5, 16]), torch.Size([2, 8, 5, 5]))
    """
    if positional or unknown:
        raise make_unknown_argument_error(attend, positional, unknown)
    has_listeners = site is not None and tap.has_listeners()
    weights_requested = has_listeners and tap.is_requested(f"{site}.weights")
    if has_listeners:
        query = tap.tap(f"{site}.query", query)
        key = tap.tap(f"{site}.key", key)
        value = tap.tap(f"{site}.value", value)
        mask = tap.tap(f"{site}.mask", mask)
        bias = tap.tap(f"{site}.bias", bias)
        score = tap.tap(f"{site}.score", score)

    check_tensors(query, key, value)
    check_settings(mask, bias, score, dropout)
    score.check(query, key)

    batch, queries, keys = query.shape[0], query.shape[2], key.shape[2]
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
        weights or weights_requested,
        has_listeners and tap.is_requested(f"{site}.logsumexp"),
    )
    if mask is not None and mask.needs_check:
        mask.check(request.grid)
    if bias is not None:
        bias.check(request.grid)
    if has_listeners:
        tap.tap(f"{site}.positions", (request.query_positions, request.key_positions))

    if safe:
        answer = compute_isolated(request, lambda changed: _select_backend(backend, changed).compute(changed))
    else:
        answer = _select_backend(backend, request).compute(request)
    output = answer.output
    if has_listeners:
        output = tap.tap(f"{site}.output", output)
        if answer.logsumexp is not None:
            tap.tap(f"{site}.logsumexp", answer.logsumexp)
        if weights_requested:
            tap.tap(f"{site}.weights", answer.weights)
    return (output, answer.weights) if weights else output


def check_backend(name: str) -> None:
    """Raise BackendError unless there is a backend of this name, or it is "auto"."""
    if name != "auto" and name not in BACKENDS:
        raise BackendError(f"unknown backend {name!r}; choose one of auto, {', '.join(BACKENDS)}")


def _select_backend(name: str, request: AttentionRequest) -> Backend:
    if name == "auto":
        return BACKENDS[_select_fastest(request)]
    check_backend(name)
    refusal = BACKENDS[name].explain_refusal(request)
    if refusal is not None:
        raise BackendError(refusal)
    return BACKENDS[name]


def _select_fastest(request: AttentionRequest) -> str:
    """Return the fastest backend that can compute the request; never flex, which compiles for many seconds."""
    if request.weights:
        return "explicit"
    if isinstance(request.score, Kernel) and linear.explain_refusal(request) is None:
        return "linear"

    fits_sdpa = sdpa.explain_refusal(request) is None
    if fits_sdpa and (request.mask is None or sdpa.is_kernel_causal(request)):
        return "sdpa"  # a causal kernel skips the keys ahead

    batch, head, queries, _ = request.query.shape
    cells = queries * request.key.shape[2]
    if blocked.explain_refusal(request) is not None or torch.compiler.is_compiling():
        return "sdpa" if fits_sdpa else "explicit"  # a compiler needs one graph, but blocks are selected by Python
    is_large = cells >= MIN_SPARSE_CELLS
    if is_large and block_plan.compute_coverage(request.mask, request.grid) < MAX_SPARSE_COVERAGE:
        return "blocked"
    if fits_sdpa:
        return "sdpa"
    if is_large or batch * head * cells * request.score.hidden_width > MAX_HIDDEN_NUMBERS:
        return "blocked"
    return "explicit"
