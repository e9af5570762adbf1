"""Wrong arguments of attend() raise an error that says what is wrong, where, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from jumok import attend
from jumok.attention import mask, score
from jumok.errors import ArgumentError, BackendError, JumokError, ShapeError


def make_zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


VALID = make_zeros(2, 6, 5, 4)


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        (
            (VALID, make_zeros(2, 6, 7, 3), make_zeros(2, 6, 7, 4)),
            ShapeError,
            r"width 4 and key 3.*\[2, 6, 5, 4\].*6, 7, 3\]",
        ),
        (
            (VALID, make_zeros(2, 6, 7, 4), make_zeros(2, 6, 8, 4)),
            ShapeError,
            r"\[2, 6, 7, 4\] and value \[2, 6, 8, 4\]",
        ),
        (
            (VALID, make_zeros(3, 6, 7, 4), make_zeros(3, 6, 7, 4)),
            ShapeError,
            r"\[2, 6, 5, 4\] and key \[3, 6, 7, 4\].*2 and 3",
        ),
        (
            (VALID, make_zeros(2, 4, 7, 4), make_zeros(2, 4, 7, 4)),
            ShapeError,
            "6 query heads cannot be split evenly into 4",
        ),
        (
            (make_zeros(6, 5, 4), VALID, VALID),
            ShapeError,
            r"query must be \[batch, head, length, width\]; it is \[6, 5, 4\]",
        ),
        ((VALID, VALID.long(), VALID), ArgumentError, "key must hold floating-point numbers, not torch.int64"),
        ((VALID, VALID.double(), VALID), ArgumentError, "float32, torch.float64, torch.float32"),
        (([1.0], VALID, VALID), ArgumentError, "query must be a tensor, not list"),
    ],
)
def test_tensors_that_do_not_fit_raise(tensors: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        attend(*tensors)
    assert isinstance(caught.value, JumokError) and isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"backend": "cuda"},
            BackendError,
            "unknown backend 'cuda'; choose one of auto, explicit, sdpa, blocked",
        ),
        ({"mask": torch.ones(5, 5).bool()}, ArgumentError, r"mask.given\(tensor\), True = may attend"),
        ({"bias": torch.ones(5, 5)}, ArgumentError, r"bias.given\(tensor\)"),
        ({"score": "dot"}, ArgumentError, "score must be a Score"),
        ({"dropout": 1.0}, ArgumentError, "below 1, not 1.0"),
        ({"dropout": -0.1}, ArgumentError, "at least 0"),
        ({"query_positions": range(4)}, ShapeError, "query_positions has 4 entries, but there are 5"),
        ({"key_positions": torch.zeros(3, 5).long()}, ShapeError, r"\[3, 5\]; it must be \[5\] or \[2, 5\]"),
        ({"key_positions": torch.zeros(5)}, ShapeError, "integer tensor, not a tensor of torch.float32"),
        ({"key_positions": [0, 1, 2, 3, 4]}, ShapeError, "range or an integer tensor, not list"),
        ({"score": score.General(3, 4)}, ShapeError, "queries of width 3"),
        ({"score": score.Additive(4, 5, 6)}, ShapeError, "keys of width 5"),
        ({"score": score.Concat(4, 4, 6, heads=5)}, ShapeError, "5 heads, but the query has 6"),
        ({"score": score.ScaledDot(sink=torch.zeros(5))}, ShapeError, r"sink has shape \[5\].* 6 heads"),
        ({"backend": "sdpa", "weights": True}, BackendError, 'sdpa keeps no weights; use backend="explicit"'),
        ({"backend": "blocked", "weights": True}, BackendError, 'use backend="explicit"'),
        ({"backend": "sdpa", "score": score.ScaledDot(softcap=2.0)}, BackendError, 'softcap; use backend="blocked"'),
        ({"backend": "sdpa", "score": score.ScaledDot(sink=torch.zeros(6))}, BackendError, "no sink; use"),
        ({"backend": "sdpa", "score": score.Additive(4, 4, 3)}, BackendError, "not Additive; use backend="),
        ({"backend": "sdpa", "score": score.Kernel()}, BackendError, "not Kernel; use backend="),
        ({"backend": "flex", "weights": True}, BackendError, 'use backend="explicit"'),
        ({"backend": "flex", "dropout": 0.1}, BackendError, "no dropout; use backend="),
        ({"backend": "flex", "mask": mask.random_keys(2, 0, 5)}, BackendError, "random_keys"),
        ({"backend": "flex", "score": score.General(4, 4)}, BackendError, 'use backend="explicit"'),
    ],
)
def test_wrong_settings_raise(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        attend(VALID, VALID, VALID, **settings)


def test_flex_refuses_to_train() -> None:
    query = VALID.clone().requires_grad_()
    with pytest.raises(BackendError, match=r"inference.*use backend"):
        attend(query, VALID, VALID, backend="flex")


@pytest.mark.parametrize("make", [lambda: score.ScaledDot(softcap=0.0), lambda: score.General(0, 4)])
def test_wrong_score_arguments_raise(make: Any) -> None:
    with pytest.raises(ArgumentError):
        make()
