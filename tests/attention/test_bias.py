"""Biases against Hugging Face's T5 and the slopes of the ALiBi paper."""

from __future__ import annotations

import pytest
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from jumok.attention import attend, bias
from jumok.attention.grid import Grid
from jumok.errors import ArgumentError, ShapeError


@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (7, 20), (16, 50)])
def test_t5_bias_equals_hugging_face(decoder: bool, buckets: int, max_distance: int) -> None:
    config = T5Config(
        d_model=12,
        d_kv=4,
        num_heads=3,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=decoder,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True)
    theirs.relative_attention_bias.weight.data.normal_()
    expected = theirs.compute_bias(150, 170)
    ours = bias.t5(theirs.relative_attention_bias.weight, bidirectional=not decoder, max_distance=max_distance)
    actual = ours.evaluate(Grid(range(1), range(3), range(150), range(170)))
    assert torch.equal(actual, expected)
    # A tile (one head, a range of rows and columns) holds the same numbers.
    tile = ours.evaluate(Grid(range(1), range(1, 2), range(40, 60), range(90, 100)))
    assert torch.equal(tile, expected[:, 1:2, 40:60, 90:100])


def test_alibi_slopes_equal_the_paper() -> None:
    # Press et al. 2022, section 3: for 8 heads 1/2, 1/4, ... 1/256
    actual = bias.alibi(8).evaluate(Grid(range(1), range(8), range(1, 2), range(1)))
    assert torch.equal(-actual.flatten(), torch.tensor([2.0**-power for power in range(1, 9)]))
    # 12 heads: the slopes of 8 heads, then every other slope of 16 (the authors' code)
    more = -bias.alibi(12).evaluate(Grid(range(1), range(12), range(1, 2), range(1))).flatten()
    assert torch.allclose(more[8:], torch.tensor([2.0 ** -(0.5 + step) for step in range(4)]))


def test_biases_compose_by_addition() -> None:
    query, key, value = torch.randn(3, 1, 2, 5, 4).double()
    first, second = torch.randn(5, 5).double(), torch.randn(1, 2, 5, 5).double()
    summed = attend(query, key, value, bias=bias.given(first) + bias.given(second))
    assert torch.allclose(summed, attend(query, key, value, bias=bias.given(first + second)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: bias.given(torch.tensor([[0.0, float("-inf")]])),
            ArgumentError,
            "range of float32; to forbid cells, use mask",
        ),
        (lambda: bias.given(torch.ones(2, 2).bool()), ArgumentError, "floating-point"),
        (lambda: bias.given(torch.ones(3)), ShapeError, r"\[3\]"),
        (lambda: bias.alibi(0), ArgumentError, "at least 1"),
        (lambda: bias.t5(torch.ones(3)), ShapeError, "bucket, head"),
        (lambda: bias.t5(torch.ones(2, 4)), ShapeError, "at least 4 buckets"),
        (lambda: bias.t5(torch.ones(32, 4), max_distance=8), ArgumentError, "above 8"),
    ],
)
def test_wrong_arguments_raise(make: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("wrong_bias", "message"),
    [
        (bias.alibi(3), "3 heads, but the query has 2"),
        (bias.t5(torch.randn(32, 5)), "5 heads"),
        (bias.given(torch.randn(4, 5)), "4 query positions, but there is a query at 4"),
        (bias.given(torch.randn(3, 1, 5, 5)), "3 batch rows"),
    ],
)
def test_bias_of_the_wrong_size_raises(wrong_bias: bias.Bias, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        attend(*torch.randn(3, 1, 2, 5, 4), bias=wrong_bias)
