"""Linear attention: FAVOR+ converges to softmax attention, and the O(n) backend equals the explicit one."""

from __future__ import annotations

import pytest
import torch

from jumok import attend
from jumok.attention import FavorPlus, FourierMixing, mask, score
from jumok.attention.feature_maps import _sample_orthogonal_rows
from jumok.errors import ArgumentError, BackendError


def test_favor_error_falls_with_the_number_of_features() -> None:
    query, key, value = 0.5 * torch.randn(3, 1, 4, 50, 16).double()  # the variance grows as exp(|query + key|^2)
    exact = attend(query, key, value, mask=mask.causal, backend="explicit")

    def compute_error(features: int) -> float:
        outputs = [
            attend(query, key, value, mask=mask.causal, score=score.Kernel(FavorPlus(features, seed)), backend="linear")
            for seed in range(8)
        ]
        return sum(float((output - exact).square().mean().sqrt()) for output in outputs) / len(outputs)

    errors = [compute_error(features) for features in (16, 64, 256, 1024, 4096)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 8  # 256 times the features: a sixteenth of the error, on average


def test_random_features_are_orthogonal_with_gaussian_lengths() -> None:
    rows = _sample_orthogonal_rows(24, 8, 0)
    first = torch.nn.functional.normalize(rows[:8], dim=-1)
    assert torch.allclose(first @ first.T, torch.eye(8).double(), atol=1e-10)
    assert abs(_sample_orthogonal_rows(8000, 8, 0).square().sum(-1).mean() - 8) < 0.2
    assert torch.equal(rows, _sample_orthogonal_rows(24, 8, 0))
    assert not torch.equal(rows, _sample_orthogonal_rows(24, 8, 1))


@pytest.mark.parametrize(("queries", "keys"), [(300, 300), (128, 128), (129, 129), (1, 1)])
@pytest.mark.parametrize("name", ["elu", "favor"])
def test_long_causal_rows_are_computed_in_chunks(name: str, queries: int, keys: int) -> None:
    formula = score.Kernel() if name == "elu" else score.Kernel(FavorPlus(64))
    query, key, value = torch.randn(2, 4, queries, 8).double(), *torch.randn(2, 2, 2, keys, 8).double()
    exact = attend(query, key, value, mask=mask.causal, score=formula, backend="explicit")
    linear = attend(query, key, value, mask=mask.causal, score=formula, backend="linear")
    assert torch.allclose(exact, linear, atol=1e-11)


@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        (range(5, 9), range(9)),
        (range(8, 9), range(9)),
        (range(4), range(2, 11)),
        (range(3), range(9)),
        (range(20, 24), range(9)),
        (range(3), range(5, 14)),
    ],
)
def test_causal_positions_may_start_anywhere(queries: range, keys: range) -> None:
    query, key, value = torch.randn(1, 2, len(queries), 4).double(), *torch.randn(2, 1, 2, len(keys), 4).double()
    outputs = [
        attend(
            query,
            key,
            value,
            mask=mask.causal,
            score=score.Kernel(),
            query_positions=queries,
            key_positions=keys,
            backend=backend,
        )
        for backend in ("explicit", "linear")
    ]
    assert torch.allclose(*outputs, atol=1e-12)


def test_large_numbers_do_not_overflow() -> None:
    query, key, value = 30 * torch.randn(3, 1, 1, 20, 8)
    for feature_map in (FavorPlus(32),):
        output = attend(query, key, value, score=score.Kernel(feature_map))
        assert torch.isfinite(output).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask": mask.window(3)}, r"not window\(3\); use backend=\"blocked\""),
        ({"mask": mask.causal | mask.padding([3])}, "causal and padding"),
        ({"mask": mask.causal, "query_positions": torch.arange(5)}, "ranges"),
        ({"dropout": 0.1}, "drop"),
        ({"weights": True}, "explicit"),
        ({"score": score.ScaledDot()}, "ScaledDot"),
    ],
)
def test_linear_refuses_requests_and_names_a_backend(settings: dict, message: str) -> None:
    settings = {"score": score.Kernel(), **settings}
    with pytest.raises(BackendError, match=message):
        attend(*torch.randn(3, 1, 2, 5, 4), backend="linear", **settings)


def test_fnet_equals_two_transforms_and_refuses_weights() -> None:
    inputs = torch.randn(2, 5, 7)
    rows = torch.exp(torch.outer(torch.arange(5), torch.arange(5)) * (-2j * torch.pi / 5))
    columns = torch.exp(torch.outer(torch.arange(7), torch.arange(7)) * (-2j * torch.pi / 7))
    expected = (rows @ inputs.to(torch.complex64) @ columns).real
    assert torch.allclose(FourierMixing()(inputs), expected, atol=1e-4)
    with pytest.raises(ArgumentError, match="no weights"):
        FourierMixing()(inputs, weights=True)
    with pytest.raises(ArgumentError, match="causal"):
        FourierMixing()(inputs, mask=mask.causal)
