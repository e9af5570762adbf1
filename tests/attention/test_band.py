"""Masks that are a band: the blocked backend computes them by fused calls over windows, equal to the loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies
from torch import Tensor

import oracle
from cases import BOUNDS, MaskCase, Tensors, assert_close, build_mask, make_expressions, make_predicate, make_tensors
from jumok import attend
from jumok.attention import bias, mask, score
from jumok.attention.backends import band
from jumok.attention.mask import Mask
from jumok.attention.mask.base import Band
from jumok.errors import BackendError
from jumok.tap import Listener, listen

REAL = [[True, False, True, True, False, True, True], [False, False, True, True, True, False, True]]
CAUSAL_WINDOW = ("and", ("causal",), ("window", 3))

CASES: dict[str, MaskCase] = {
    "window": MaskCase(mask.window(2), ("window", 2)),
    "causal window": MaskCase(mask.causal & mask.window(3), CAUSAL_WINDOW),
    "own position": MaskCase(mask.window(1), ("window", 1)),
    "lengths": MaskCase(
        mask.causal & mask.window(3) & mask.padding([3, 7]), ("and", CAUSAL_WINDOW, ("padding_lengths", (3, 7)))
    ),
    "table": MaskCase(
        mask.padding(torch.tensor(REAL)) & mask.window(2), ("and", ("padding_table", REAL), ("window", 2))
    ),
    "one edge": MaskCase(
        mask.window(2) & ~mask.edge(query=2, key=1, head=4),
        ("and", ("window", 2), ("not", ("edge", 2, 1, 4, None))),
    ),
    "empty rows": MaskCase(
        mask.window(2) & ~mask.edge(query=[1, 4], batch=1),
        ("and", ("window", 2), ("not", ("edge", (1, 4), None, None, 1))),
    ),
    "hole": MaskCase(mask.window(3) & ~mask.window(1), ("and", ("window", 3), ("not", ("window", 1)))),
    "two windows": MaskCase(mask.window(1) | mask.causal & mask.window(3), ("or", ("window", 1), CAUSAL_WINDOW)),
    "blocks": MaskCase(mask.blocks(2, shift=1), ("blocks", 2, 1)),
}


@pytest.fixture
def band_calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record for every call of the blocked backend whether it was computed in windows."""
    calls: list[bool] = []
    compute = band.compute

    def record(request: Any) -> Any:
        answer = compute(request)
        calls.append(answer is not None)
        return answer

    monkeypatch.setattr(band, "compute", record)
    return calls


class LogSumExp(Listener):
    received: Tensor

    def accepts(self, site: str) -> bool:
        return site == "layer.logsumexp"

    def __call__(self, site: str, value: Tensor) -> Tensor:
        self.received = value
        return value


def attend_in_windows(inputs: Tensors, **settings: Any) -> tuple[Tensor, Tensor]:
    """Return the output and the row log-sum-exp."""
    listener = LogSumExp()
    with listen(listener):
        output = attend(*inputs, **settings, backend="blocked", site="layer")
    return output, listener.received


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("case", CASES)
def test_output_log_sum_exp_and_gradients_equal_the_loops(
    case: str, groups: int, dtype: torch.dtype, band_calls: list[bool]
) -> None:
    ours, theirs = CASES[case].ours, oracle.ScaledDot(0.7)
    inputs = Tensors(*(tensor.requires_grad_() for tensor in make_tensors(dtype, groups=groups)))
    output, logsumexp = attend_in_windows(inputs, mask=ours, score=score.ScaledDot(scale=0.7))
    assert band_calls == [True]
    assert output.dtype == dtype

    arrays = [tensor.detach().double().numpy() for tensor in inputs]
    settings: dict[str, Any] = {"allowed": make_predicate(CASES[case]), "scores": theirs}
    expected, _, expected_logsumexp = oracle.compute_attention(*arrays, **settings)
    assert_close(output, expected, BOUNDS[dtype])
    is_finite = np.isfinite(expected_logsumexp)
    assert torch.equal(torch.isneginf(logsumexp), torch.as_tensor(~is_finite))
    assert_close(logsumexp[torch.as_tensor(is_finite)], expected_logsumexp[is_finite], max(BOUNDS[dtype], 1e-6))

    pull = torch.randn(output.shape, dtype=torch.float64).to(dtype)
    output.backward(pull)
    gradients = oracle.compute_gradients(*arrays, pull.double().numpy(), **settings)
    for tensor, axis in zip(inputs, ("query", "key", "value"), strict=True):
        assert_close(tensor.grad, gradients[axis], BOUNDS[dtype])


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("queries", "keys"),
    [(range(5), range(7)), (range(2, 7), range(7)), (range(6, 7), range(7)), (range(3), range(2, 7))],
)
def test_positions_select_windows(case: str, queries: range, keys: range, band_calls: list[bool]) -> None:
    """A cache passes fewer queries than keys; windows begin and end anywhere."""
    inputs = make_tensors(queries=len(queries), keys=len(keys), groups=2, value_width=3)
    settings: dict[str, Any] = {"mask": CASES[case].ours, "query_positions": queries, "key_positions": keys}
    output, logsumexp = attend_in_windows(inputs, **settings)
    assert all(band_calls) or len(keys) < 7  # fewer keys than a window of three blocks
    listener = LogSumExp()
    with listen(listener):
        expected = attend(*inputs, **settings, backend="explicit", site="layer")
    assert_close(output, expected, 1e-12)
    assert_close(logsumexp, listener.received, 1e-12)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("allowed", "queries"),
    [(mask.causal & mask.window(61), 389), (mask.window(37), 389), (mask.causal & mask.window(300), 1103)],
    ids=str,
)
def test_long_sequences_equal_the_explicit_backend(
    allowed: Mask, queries: int, padded: bool, band_calls: list[bool]
) -> None:
    """With blocks of the real size, of which the last one is incomplete."""
    allowed = allowed & mask.padding([211, queries]) if padded else allowed
    inputs = Tensors(*(t.requires_grad_() for t in make_tensors(queries=queries, keys=queries, heads=2, groups=1)))
    outputs = [attend(*inputs, mask=allowed, backend=backend) for backend in ("blocked", "explicit")]
    assert band_calls == [True]
    assert_close(outputs[0], outputs[1], 1e-12)
    pull = torch.randn_like(outputs[0])
    gradients = [torch.autograd.grad(output, list(inputs), pull) for output in outputs]
    for ours, expected in zip(*gradients, strict=True):
        assert_close(ours, expected, 1e-12)


@pytest.mark.usefixtures("tiny_blocks")
@given(expression=make_expressions(7, 2, 2), size=strategies.integers(1, 3), is_causal=strategies.booleans())
def test_any_mask_inside_a_window_equals_the_explicit_backend(expression: Any, size: int, is_causal: bool) -> None:
    allowed = mask.window(size) & build_mask(expression)
    if is_causal:
        allowed = allowed & mask.causal
    inputs = Tensors(*(t.requires_grad_() for t in make_tensors(queries=7, keys=7, heads=2, groups=1)))
    outputs = [attend(*inputs, mask=allowed, backend=backend) for backend in ("blocked", "explicit")]
    assert_close(outputs[0], outputs[1], 1e-12)
    gradients = [torch.autograd.grad(output.sin().sum(), list(inputs)) for output in outputs]
    for ours, expected in zip(*gradients, strict=True):
        assert_close(ours, expected, 1e-12)


@pytest.mark.usefixtures("tiny_blocks")
def test_windows_in_many_small_calls_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = Tensors(*(tensor.requires_grad_() for tensor in make_tensors()))

    def run() -> list[Tensor]:
        output = attend(*inputs, mask=CASES["lengths"].ours, backend="blocked")
        return [output, *torch.autograd.grad(output.sin().sum(), list(inputs))]

    expected = run()
    monkeypatch.setattr(band, "MAX_WINDOW_NUMBERS", 1)
    for ours, reference in zip(run(), expected, strict=True):
        assert_close(ours, reference, 1e-14)


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize("name", ["general", "no kernel"])
def test_scores_with_parameters_and_missing_kernels(
    name: str, band_calls: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "no kernel":
        monkeypatch.setattr(band, "_has_kernel", lambda query: False)
    formula = score.General(11, 11, heads=6).double()
    inputs = Tensors(*(tensor.requires_grad_() for tensor in make_tensors()))
    leaves = [*inputs, formula.matrix]
    outputs = [
        attend(*inputs, mask=CASES["lengths"].ours, score=formula, backend=backend)
        for backend in ("blocked", "explicit")
    ]
    assert band_calls == [name == "general"]
    assert_close(outputs[0], outputs[1], 1e-12)
    gradients = [torch.autograd.grad(output.sin().sum(), leaves) for output in outputs]
    for ours, expected in zip(*gradients, strict=True):
        assert_close(ours, expected, 1e-12)


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("case", ["lengths", "table"])
def test_padding_may_hold_anything(case: str, number: float, band_calls: list[bool]) -> None:
    allowed = torch.as_tensor(oracle.evaluate_mask(CASES[case].theirs, 2, 6, range(5), range(7)))
    is_unread = ~allowed.any(2)[:, :1]  # [batch, 1, key]: no query may attend to it
    assert is_unread.any() and not is_unread.all()
    inputs = Tensors(*(tensor.requires_grad_() for tensor in make_tensors()))
    key, value = (torch.where(is_unread[..., None], number, tensor) for tensor in inputs[1:])
    output = attend(inputs.query, key, value, mask=CASES[case].ours, backend="blocked")
    assert band_calls == [True]
    assert_close(output, attend(*inputs, mask=CASES[case].ours, backend="explicit"), 1e-12)
    output.sum().backward()
    for tensor in inputs:
        assert torch.isfinite(tensor.grad).all()


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e200])
def test_key_that_overflows_reaches_only_its_readers(number: float) -> None:
    """The kernel would spread it over a block, as -inf + NaN is NaN; the output tells, and tiles are used instead."""
    query, key, value = make_tensors(queries=7, keys=7)
    key[:, :, 3] = number
    # of one sign: whether the sum of inf and -inf is NaN on the way depends on the order, hence on the processor
    query = query.abs() * (1e200 if number == 1e200 else 1)
    outputs = [
        attend(query, key, value, mask=mask.causal & mask.window(2), backend=backend)
        for backend in ("blocked", "explicit")
    ]
    assert outputs[1][:, :, 5:].isfinite().all() and not outputs[1][:, :, 3:5].isfinite().all()
    assert torch.equal(outputs[0].isfinite(), outputs[1].isfinite())


@pytest.mark.usefixtures("tiny_blocks")
def test_windows_refuse_second_derivatives_and_changed_masks() -> None:
    query, key, value = make_tensors()
    query.requires_grad_()
    real = torch.tensor(REAL)
    output = attend(query, key, value, mask=mask.window(2) & mask.padding(real), backend="blocked")
    with pytest.raises(BackendError, match="second derivative; use"):
        torch.autograd.grad(output.sum(), query, create_graph=True)
    real[0, 0] = False
    with pytest.raises(BackendError, match="changed between"):
        output.sum().backward()


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize(
    "settings",
    [
        {"mask": mask.causal},
        {"mask": mask.window(5)},  # its windows would be wider than the keys
        {"mask": mask.window(2), "bias": bias.alibi(6)},
        {"mask": mask.window(2), "score": score.ScaledDot(softcap=2.0)},
        {"mask": mask.window(2), "score": score.ScaledDot(sink=torch.zeros(6, dtype=torch.float64))},
        {"mask": mask.window(2), "score": score.Kernel()},
        {"mask": mask.window(2), "dropout": 0.5},
        {"mask": mask.window(2), "key_positions": torch.arange(7)},
        {"mask": mask.window(2), "key_positions": range(0, 14, 2)},
    ],
)
def test_other_requests_are_computed_tile_by_tile(settings: dict[str, Any], band_calls: list[bool]) -> None:
    attend(*make_tensors(), **settings, backend="blocked")
    assert band_calls == [False]


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (mask.causal, Band(None, 0)),
        (mask.window(4), Band(3, 3)),
        (mask.causal & mask.window(4), Band(3, 0)),
        (mask.window(4) & mask.padding([3]) & mask.causal, Band(3, 0)),
        (mask.window(4) & ~mask.edge(query=1, key=1), Band(3, 3)),
        (mask.window(4) & (mask.causal | mask.global_at([0])), Band(3, 3)),
        (mask.window(4) | mask.window(2) & mask.causal, Band(3, 3)),
        (mask.window(4) | mask.global_at([0]), Band(None, None)),
        (~mask.window(4), Band(None, None)),
        (mask.padding([3]), Band(None, None)),
        (mask.blocks(5), Band(4, 4)),
        (mask.blocks((2, 3), grid=(4, 7)), Band(9, 9)),
        (mask.blocks((2, 30), grid=(4, 7)), Band(13, 13)),
    ],
    ids=repr,
)
def test_masks_derive_their_band(allowed: Mask, expected: Band) -> None:
    assert allowed.band == expected
    queries, keys = allowed.dense(28, 28).nonzero()[:, 2:].T if not allowed.table_sizes else (None, None)
    if queries is None:
        return
    distances = queries - keys
    if expected.behind is not None:
        assert distances.max() <= expected.behind
    if expected.ahead is not None:
        assert -distances.min() <= expected.ahead
