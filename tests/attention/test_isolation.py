"""NaN, infinity and huge numbers: what reaches the output by default, and with safe=True."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cases import MASKS, Tensors, assert_close, make_tensors
from jumok import attend
from jumok.attention import bias, mask, score
from jumok.attention.mask import Mask

NOT_FINITE = [float("nan"), float("inf"), float("-inf")]


def run(inputs: Tensors, number: float, is_bad: Tensor, axis: str, **settings: Any) -> tuple[Tensor, list[Tensor]]:
    """Return output and gradients if the keys or values in ``is_bad`` [batch, group, key] are replaced by a number."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    query, key, value = leaves
    if "key" in axis:
        key = torch.where(is_bad[..., None], number, key)
    if "value" in axis:
        value = torch.where(is_bad[..., None], number, value)
    output = attend(query, key, value, **settings)
    finite = torch.where(output.isfinite(), output, 0.0)
    return output.detach(), list(torch.autograd.grad(finite.float().sin().sum(), leaves))


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize("axis", ["key", "value", "key and value"])
@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize("case", ["padding lengths", "padding table", "causal", "swin", "causal window"])
@pytest.mark.parametrize("backend", ["auto", "sdpa", "blocked", "explicit"])
def test_keys_that_no_query_reads_may_hold_anything(backend: str, case: str, number: float, axis: str) -> None:
    """Without safe=True, on every backend: padding often holds uninitialised numbers."""
    inputs, allowed = make_tensors(), MASKS[case].ours
    assert allowed is not None
    is_bad = ~allowed.dense(5, 7, heads=6, batch=2).any(2).view(2, 3, 2, 7).any(2)
    if not is_bad.any():
        pytest.skip("every key is read")
    output, gradients = run(inputs, number, is_bad, axis, mask=allowed, backend=backend)
    expected, expected_gradients = run(inputs, 0.5, is_bad, axis, mask=allowed, backend="explicit")
    assert_close(output, expected, 1e-12)
    for gradient, reference in zip(gradients, expected_gradients, strict=True):
        assert_close(gradient, reference, 1e-12)


@pytest.mark.parametrize("numbers", [None, bias.alibi(6)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_with_nan_is_ignored_by_default(dtype: torch.dtype, numbers: bias.Bias | None) -> None:
    query, key, value = make_tensors(dtype)
    key[0, :, 4:] = value[0, :, 4:] = float("nan")
    output = attend(query, key, value, mask=mask.padding([4, 7]), bias=numbers)
    assert torch.isfinite(output).all()


def test_padding_with_nan_is_ignored_in_mapped_functions() -> None:
    query, key, value = make_tensors(torch.float32)
    key[0, :, 4:] = value[0, :, 4:] = float("nan")
    padded = mask.padding([4, 7])
    mapped = torch.func.vmap(lambda q: attend(q, key, value, mask=padded))(query[None])
    assert torch.isfinite(mapped).all()


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize("axis", ["key", "value", "key and value"])
@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("backend", ["auto", "sdpa", "blocked", "explicit"])
def test_safe_rows_depend_only_on_their_keys(backend: str, case: str, number: float, axis: str) -> None:
    """Rows that may attend to a bad key are NaN; the other rows, and their gradients, do not change."""
    inputs, allowed = make_tensors(), MASKS[case].ours
    is_bad = torch.zeros(2, 3, 7, dtype=torch.bool)
    is_bad[0, 1, 3] = is_bad[1, 2, 0] = is_bad[1, 0, 6] = True
    cells = torch.ones(2, 6, 5, 7).bool() if allowed is None else allowed.dense(5, 7, heads=6, batch=2)
    reads_bad = (cells & is_bad.repeat_interleave(2, 1)[:, :, None]).any(-1)

    output, gradients = run(inputs, number, is_bad, axis, mask=allowed, backend=backend, safe=True)
    assert output[reads_bad].isnan().all() and output[~reads_bad].isfinite().all()
    expected = attend(*inputs, mask=allowed, backend="explicit")
    assert_close(output[~reads_bad], expected[~reads_bad], 1e-12)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_safe_weights_and_bad_values() -> None:
    query, key, value = make_tensors()
    value[:, :, 2] = float("nan")
    output, weights = attend(query, key, value, mask=mask.causal, weights=True, safe=True)
    assert output[:, :, :2].isfinite().all() and output[:, :, 2:].isnan().all()
    assert_close(weights.sum(-1), torch.ones(2, 6, 5), 1e-12)
    key[:, :, 3] = float("nan")
    _, weights = attend(query, key, value, mask=mask.causal, weights=True, safe=True)
    assert weights[:, :, :3].isfinite().all() and weights[:, :, 3:].isnan().all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("allowed", [None, mask.causal, mask.window(2) & mask.padding([6, 7])], ids=str)
@pytest.mark.parametrize("backend", ["auto", "sdpa", "blocked", "explicit"])
def test_safe_computes_products_beyond_the_range(
    backend: str, allowed: Mask | None, dtype: torch.dtype, sign: int
) -> None:
    query, key, value = make_tensors(dtype)
    query, key = query.abs() * 1e20, key.abs() * sign * 1e20  # products up to 1e41
    settings: dict[str, Any] = {"mask": allowed, "backend": backend}
    expected = attend(query.double(), key.double(), value.double(), mask=allowed, backend="explicit")
    output = attend(query, key, value, **settings, safe=True)
    assert output.dtype == dtype
    assert_close(output, expected, 0.01)


def test_safe_changes_nothing_for_ordinary_numbers() -> None:
    inputs = make_tensors(torch.float32)
    for settings in ({}, {"mask": mask.causal}, {"score": score.Additive(11, 11, 3)}, {"score": score.General(11, 11)}):
        assert torch.equal(attend(*inputs, **settings, safe=True), attend(*inputs, **settings))


@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize("backend", ["auto", "sdpa", "blocked", "explicit"])
def test_safe_marks_queries_that_are_not_finite(backend: str, number: float) -> None:
    query, key, value = make_tensors()
    allowed = mask.causal & ~mask.edge(query=3)  # row 3 may attend to nothing
    expected = attend(query, key, value, mask=allowed, backend="explicit")
    query[:, :, 2:4, 0] = number
    output = attend(query, key, value, mask=allowed, backend=backend, safe=True)
    assert output[:, :, 2].isnan().all() and (output[:, :, 3] == 0).all()
    for row in (0, 1, 4):
        assert_close(output[:, :, row], expected[:, :, row], 1e-12)
