"""Wrong arguments of attend() raise an error that says what is wrong, where, and what to do."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from jumok import attend
from jumok.attention import mask, score
from jumok.errors import ArgumentError, BackendError, JumokError, ShapeError


def make_zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


VALID = make_zeros(2, 6, 5, 4)
with warnings.catch_warnings():  # PyTorch calls nested tensors a prototype
    warnings.simplefilter("ignore")
    NESTED = torch.nested.nested_tensor([make_zeros(6, 5, 4), make_zeros(6, 3, 4)])
    JAGGED = torch.nested.nested_tensor([make_zeros(5, 6, 4), make_zeros(3, 6, 4)], layout=torch.jagged).transpose(1, 2)


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
        ((VALID, VALID, VALID.cfloat()), ArgumentError, "value must hold floating-point numbers, not torch.complex64"),
        (
            (VALID.to(torch.float8_e4m3fn),) * 3,
            ArgumentError,
            r"query must be float16, .* not torch.float8_e4m3fn; pass",
        ),
        ((VALID, VALID.to_sparse(), VALID), ArgumentError, r"key is sparse \(torch.sparse_coo\); pass key.to_dense"),
        ((NESTED,) * 3, ArgumentError, "query is a nested tensor; pad it by"),
        ((JAGGED,) * 3, ArgumentError, "query is a nested tensor; pad it by"),
        ((VALID[..., :0], VALID[..., :0], VALID), ShapeError, r"\[2, 6, 5, 0\].* need a width of at least 1"),
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


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("is_causal", "write mask=mask.causal"),
        ("attn_mask", r"mask=mask.given\(booleans\), in which True = may attend, or bias="),
        ("key_padding_mask", r"mask=mask.padding\(~key_padding_mask\)"),
        ("dropout_p", "write dropout="),
        ("enable_gqa", "leave it out"),
        ("scale", r"score.ScaledDot\(scale="),
        ("need_weights", "write weights=True"),
        ("average_attn_weights", "write weights=True"),
        ("masks", r"did you mean mask\?"),
        ("zzz", "choose from query, key, value, mask, bias, .* weights, safe$"),
    ],
)
def test_argument_names_of_other_libraries_raise_with_a_hint(name: str, hint: str) -> None:
    function: Any = attend
    with pytest.raises(ArgumentError, match=rf"attend\(\) has no argument '{name}'; .*{hint}"):
        function(VALID, VALID, VALID, **{name: None})


def test_mask_by_position_raises() -> None:
    function: Any = attend
    with pytest.raises(ArgumentError, match=r"got Causal as the fourth one: for a mask, write mask="):
        function(VALID, VALID, VALID, mask.causal)


@pytest.mark.parametrize("allowed", [None, mask.causal, mask.window(2) & mask.padding([3, 4])], ids=str)
@pytest.mark.parametrize("backend", ["auto", "explicit", "sdpa"])
def test_tensors_without_numbers_give_shapes(backend: str, allowed: mask.Mask | None) -> None:
    empty = VALID.to("meta")
    output = attend(empty, empty, empty, mask=allowed, backend=backend, safe=True)
    assert output.is_meta and output.shape == VALID.shape
    long = torch.empty(1, 1, 2048, 8, device="meta")
    assert attend(long, long, long, mask=mask.window(9)).shape == long.shape
    _, weights = attend(empty, empty, empty, mask=allowed, weights=True)
    assert weights.shape == (2, 6, 5, 5)
    with pytest.raises(BackendError, match="meta device hold no numbers; use backend="):
        attend(empty, empty, empty, mask=allowed, backend="blocked")
