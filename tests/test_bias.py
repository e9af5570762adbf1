"""Biases against Hugging Face's T5 and the slopes that the ALiBi paper prints."""

from __future__ import annotations

import pytest
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from jumok.attention import attend, bias
from jumok.attention.grid import Grid
from jumok.errors import ArgumentError, ShapeError


@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (7, 20), (16, 50)])
def test_t5_buckets_are_those_of_hugging_face(decoder: bool, buckets: int, farthest: int) -> None:
    config = T5Config(
        d_model=12,
        d_kv=4,
        num_heads=3,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=farthest,
        is_decoder=decoder,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True)
    theirs.relative_attention_bias.weight.data.normal_()
    wanted = theirs.compute_bias(150, 170)
    ours = bias.t5(theirs.relative_attention_bias.weight, bidirectional=not decoder, max_distance=farthest)
    found = ours.evaluate(Grid(range(1), range(3), range(150), range(170)))
    assert torch.equal(found, wanted)
    # a tile is the same numbers: one head, some rows, some columns
    tile = ours.evaluate(Grid(range(1), range(1, 2), range(40, 60), range(90, 100)))
    assert torch.equal(tile, wanted[:, 1:2, 40:60, 90:100])


def test_alibi_slopes_are_the_published_ones() -> None:
    # Press et al. 2022, section 3: for 8 heads 1/2, 1/4, ... 1/256
    found = bias.alibi(8).evaluate(Grid(range(1), range(8), range(1, 2), range(1)))
    assert torch.equal(-found.flatten(), torch.tensor([2.0**-power for power in range(1, 9)]))
    # 12 heads: those of 8, then every other one of 16 (the authors' code)
    more = -bias.alibi(12).evaluate(Grid(range(1), range(12), range(1, 2), range(1))).flatten()
    assert torch.allclose(more[8:], torch.tensor([2.0 ** -(0.5 + step) for step in range(4)]))


def test_biases_add() -> None:
    query, key, value = torch.randn(3, 1, 2, 5, 4).double()
    one, two = torch.randn(5, 5).double(), torch.randn(1, 2, 5, 5).double()
    both = attend(query, key, value, bias=bias.given(one) + bias.given(two))
    assert torch.allclose(both, attend(query, key, value, bias=bias.given(one + two)))


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (
            lambda: bias.given(torch.tensor([[0.0, float("-inf")]])),
            ArgumentError,
            "finite numbers; to forbid cells, use mask",
        ),
        (lambda: bias.given(torch.ones(2, 2).bool()), ArgumentError, "floating-point"),
        (lambda: bias.given(torch.ones(3)), ShapeError, r"\[3\]"),
        (lambda: bias.alibi(0), ArgumentError, "at least 1"),
        (lambda: bias.t5(torch.ones(3)), ShapeError, "bucket, head"),
        (lambda: bias.t5(torch.ones(2, 4)), ShapeError, "at least 4 buckets"),
        (lambda: bias.t5(torch.ones(32, 4), max_distance=8), ArgumentError, "above 8"),
    ],
)
def test_what_cannot_be_meant_is_refused(make: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (bias.alibi(3), "3 heads, but the query has 2"),
        (bias.t5(torch.randn(32, 5)), "5 heads"),
        (bias.given(torch.randn(4, 5)), "4 query positions, but there is a query at 4"),
        (bias.given(torch.randn(3, 1, 5, 5)), "3 batch rows"),
    ],
)
def test_a_bias_of_the_wrong_size_is_refused(made: bias.Bias, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        attend(*torch.randn(3, 1, 2, 5, 4), bias=made)
