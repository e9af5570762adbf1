"""Heads against torch.nn.MultiheadAttention, against each other, and against published numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jumok.attention import Cache, Head, MultiHead, mask, score
from jumok.errors import ArgumentError, ShapeError
from jumok.layers import RotaryPositions
from jumok.tap import listen, name_sites

LAYOUTS = ("fused", "batched", "single")


def convert_from_torch(theirs: nn.MultiheadAttention, **settings: Any) -> MultiHead:
    ours = MultiHead(theirs.embed_dim, theirs.num_heads, **settings)
    joined = ours.projection.joined
    joined.weight.data.copy_(theirs.in_proj_weight)
    joined.bias.data.copy_(theirs.in_proj_bias)
    ours.output.load_state_dict(theirs.out_proj.state_dict())
    return ours


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_output_and_weights_equal_torch(backend: str) -> None:
    theirs = nn.MultiheadAttention(35, 5, batch_first=True)
    nn.init.normal_(theirs.in_proj_bias)
    ours = convert_from_torch(theirs, backend=backend)
    inputs = torch.randn(2, 7, 35)
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])  # theirs: True = ignore
    future = torch.ones(7, 7).triu(1).bool()
    expected, weights = theirs(
        inputs, inputs, inputs, key_padding_mask=padding, attn_mask=future, average_attn_weights=False
    )
    allowed = mask.causal & mask.padding(~padding)
    assert torch.allclose(ours(inputs, mask=allowed), expected, atol=1e-6)
    ours.backend = "auto"
    output, actual_weights = ours(inputs, mask=allowed, weights=True)
    assert torch.allclose(output, expected, atol=1e-6) and torch.allclose(actual_weights, weights, atol=1e-6)


def test_cross_attention_equals_torch_for_a_source_of_other_width_and_length() -> None:
    theirs = nn.MultiheadAttention(24, 3, kdim=10, vdim=10, batch_first=True)
    ours = MultiHead(24, 3, source_width=10, projection="batched")
    for name in ("query", "key", "value"):
        linear = getattr(ours.projection, name)
        linear.weight.data.copy_(getattr(theirs, f"{name[0]}_proj_weight"))
        linear.bias.data.zero_()
    ours.output.load_state_dict(theirs.out_proj.state_dict())
    inputs, source = torch.randn(2, 25, 24), torch.randn(2, 20, 10)
    assert torch.allclose(ours(inputs, source), theirs(inputs, source, source)[0], atol=1e-6)


@pytest.mark.parametrize("is_cross", [False, True])
@pytest.mark.parametrize("groups", [6, 3, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_projection_layouts_give_equal_outputs(bias: bool, groups: int, is_cross: bool) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        first = MultiHead(30, 6, groups=groups, value_width=7, bias=bias, projection="single")
        inputs, source = torch.randn(2, 25, 30), torch.randn(2, 20, 30) if is_cross else None
        allowed = None if is_cross else mask.causal
        expected, weights = first(inputs, source, mask=allowed, weights=True)
        for chain in (LAYOUTS, ("batched", "single", "fused")):
            converted = first
            for layout in chain:
                converted = converted.convert_projection(layout)
                output, actual_weights = converted(inputs, source, mask=allowed, weights=True)
                assert torch.allclose(output, expected, atol=1e-12) and torch.allclose(
                    actual_weights, weights, atol=1e-12
                )
        counts = {
            sum(parameter.numel() for parameter in first.convert_projection(layout).parameters()) for layout in LAYOUTS
        }
        assert len(counts) == 1
    finally:
        torch.set_default_dtype(torch.float32)


def test_separate_heads_equal_multi_head() -> None:
    # M3: [1,3,64] -> four times [1,3,16] -> [1,3,64] -> [1,3,64], and equal to one MultiHead of the same parameters
    inputs = torch.randn(1, 3, 64)
    heads = [Head(64, 16) for _ in range(4)]
    outputs = [head(inputs) for head in heads]
    assert [output.shape for output in outputs] == [(1, 3, 16)] * 4
    joined = torch.cat(outputs, -1)
    together = MultiHead(64, 4, projection="single")
    for index, head in enumerate(heads):
        for name in ("query", "key", "value"):
            getattr(together.projection, name)[index].load_state_dict(getattr(head, name).state_dict())
    assert joined.shape == (1, 3, 64)
    assert torch.allclose(together(inputs), together.output(joined), atol=1e-6)


def test_published_parameter_count() -> None:
    # M4: width 512, 8 heads; 1,050,624 parameters with biases
    attention = MultiHead(512, 8, projection="batched")
    output, weights = attention(torch.randn(2, 16, 512), weights=True)
    assert output.shape == (2, 16, 512) and weights.shape == (2, 8, 16, 16)
    assert sum(parameter.numel() for parameter in attention.parameters()) == 1_050_624


@pytest.mark.parametrize("output_width", [None, 9])
@pytest.mark.parametrize("bias", [True, False])
def test_single_head_equals_the_formula(bias: bool, output_width: int | None) -> None:
    head = Head(13, 5, 7, bias=bias, output_width=output_width)
    inputs, source = torch.randn(2, 3, 13), torch.randn(2, 4, 13)
    scores = head.query(inputs) @ head.key(source).mT / 5**0.5
    expected = scores.softmax(-1) @ head.value(source)
    if output_width:
        expected = head.output(expected)
    output, weights = head(inputs, source, weights=True)
    assert torch.allclose(output, expected, atol=1e-6) and weights.shape == (2, 1, 3, 4)
    assert all((linear.bias is not None) == bias for linear in (head.query, head.key, head.value))


def test_causal_mask_zeroes_future_weights() -> None:
    # M6: the weights are exactly 0
    _, weights = MultiHead(32, 4)(torch.randn(1, 9, 32), mask=mask.causal, weights=True)
    assert (weights.triu(1) == 0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(1, 4, 9), atol=1e-6)


def test_the_concat_score_depends_on_the_query() -> None:
    # M10: with one linear map and no tanh, the query's term cancels in the softmax
    formula = score.Concat(6, 6, hidden=8)
    from jumok import attend

    key, value = torch.randn(2, 1, 1, 5, 6)
    first, second = (attend(torch.randn(1, 1, 1, 6), key, value, score=formula, weights=True)[1] for _ in range(2))
    assert (first - second).abs().max() > 1e-2
    straight = torch.randn(12)  # a linear score of [query; key]
    rows = [(straight[:6] * torch.randn(6)).sum() + key @ straight[6:] for _ in range(2)]
    assert torch.allclose(rows[0].softmax(-1), rows[1].softmax(-1), atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_contributions_of_heads_sum_to_the_output(layout: str) -> None:
    attention = MultiHead(24, 4, groups=2, value_width=5, projection=layout)
    received: dict[str, Any] = {}
    with listen(lambda site, value: received.setdefault(site, value)):
        output = attention(torch.randn(2, 7, 24), mask=mask.causal)
    heads = received["attention.output"]
    matrix = attention.output.weight.view(24, 4, 5)
    contributions = torch.einsum("bhqd,whd->bhqw", heads, matrix)
    assert torch.allclose(contributions.sum(1) + attention.output.bias, output, atol=1e-5)
    assert torch.equal(received["attention.block_output"], output)


SETTINGS: dict[str, Callable[[], MultiHead]] = {
    "plain": lambda: MultiHead(24, 4),
    "grouped": lambda: MultiHead(24, 4, groups=2),
    "rotary": lambda: MultiHead(24, 4, rotation=RotaryPositions(6)),
    "additive": lambda: MultiHead(24, 4, score=score.Additive(6, 6, 5)),
    "kernel": lambda: MultiHead(24, 4, score=score.Kernel()),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("capacity", [None, 11, 40])
@pytest.mark.parametrize("chunks", [[1] * 11, [4, 1, 3, 3], [11]])
@pytest.mark.parametrize(
    "allowed", [mask.causal, mask.causal & mask.window(3), mask.causal & mask.padding([9, 11])], ids=repr
)
def test_decoding_with_a_cache_equals_the_full_pass(
    name: str, capacity: int | None, chunks: list[int], allowed: mask.Mask
) -> None:
    attention = SETTINGS[name]().double()
    inputs = torch.randn(2, 11, 24).double()
    with torch.no_grad():
        full = attention(inputs, mask=allowed)
        cache, parts = Cache(capacity), []
        for part in inputs.split(chunks, 1):
            assert cache.length == sum(output.shape[1] for output in parts)
            parts.append(attention(part, mask=allowed, cache=cache))
    assert torch.allclose(torch.cat(parts, 1), full, atol=1e-12)


def test_source_cache_is_filled_once_and_rows_can_be_selected() -> None:
    self_attention, cross = MultiHead(12, 3), MultiHead(12, 3)
    inputs, source = torch.randn(2, 5, 12), torch.randn(2, 8, 12)
    with torch.no_grad():
        expected = cross(inputs, source)
        cache = Cache()
        first = cross(inputs[:, :2], source, cache=cache)
        second_part = cross(inputs[:, 2:], torch.full_like(source, float("nan")), cache=cache)  # not read again
        assert torch.allclose(torch.cat([first, second_part], 1), expected, atol=1e-6)
        self_attention(inputs, mask=mask.causal, cache=cache)
        assert cache.length == 5
        cache.select(torch.tensor([1, 1]))
        assert torch.equal(
            cache.get_or_create_slot(self_attention).key[0], cache.get_or_create_slot(self_attention).key[1]
        )
        assert torch.equal(cache.get_or_create_source_slot(cross).key[0], cache.get_or_create_source_slot(cross).key[1])
        cache.truncate(3)
        assert cache.length == 3 and cache.get_or_create_source_slot(cross).length == 8
        again = self_attention(inputs[1:, 3:].expand(2, -1, -1), mask=mask.causal, cache=cache)
        assert torch.allclose(again[0], self_attention(inputs, mask=mask.causal)[1, 3:], atol=1e-6)


def test_cross_attention_queries_advance_with_the_cache() -> None:
    cross = MultiHead(12, 3)
    inputs, source = torch.randn(1, 4, 12), torch.randn(1, 5, 12)
    allowed = ~mask.edge(query=2, key=1) & mask.window(3)
    with torch.no_grad():
        cache = Cache()
        steps = [cross(inputs[:, step : step + 1], source, mask=allowed, cache=cache) for step in range(4)]
        assert torch.allclose(torch.cat(steps, 1), cross(inputs, source, mask=allowed), atol=1e-6)


def test_cache_refuses_wrong_inputs() -> None:
    attention = MultiHead(12, 3)
    with torch.no_grad():
        cache = Cache(capacity=4)
        with pytest.raises(ShapeError, match="capacity for 4 positions, but 5 are needed"):
            attention(torch.randn(1, 5, 12), cache=cache)
        cache = Cache()
        attention(torch.randn(1, 5, 12), cache=cache)
        with pytest.raises(ShapeError, match="cannot be appended"):
            attention(torch.randn(2, 1, 12), cache=cache)
    with pytest.raises(ArgumentError, match="no_grad"):
        attention(torch.randn(1, 5, 12), cache=Cache())
    with pytest.raises(ArgumentError, match="at least 1"):
        Cache(capacity=0)
    with pytest.raises(ArgumentError, match="at least 0, not -1"):
        Cache().truncate(-1)
    with pytest.raises(ArgumentError, match="slot is empty"):
        _ = Cache().get_or_create_slot("attention").key


def test_dropout_is_off_in_evaluation() -> None:
    attention = MultiHead(24, 4, dropout=0.5)
    inputs = torch.randn(1, 9, 24)
    assert not torch.equal(attention(inputs), attention(inputs))
    _, weights = attention(inputs, weights=True)
    assert torch.allclose(weights.sum(-1), torch.ones(1, 4, 9), atol=1e-6)
    attention.eval()
    assert torch.equal(attention(inputs), attention(inputs))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiHead(10, 3), "width 10 cannot be split evenly into 3 heads"),
        (lambda: MultiHead(12, 6, groups=4), "6 heads cannot be split evenly into 4 groups"),
        (lambda: MultiHead(12, 0), "heads must be at least 1, not 0"),
        (lambda: MultiHead(12, 3, head_width=-1), "head_width must be at least 1, not -1"),
        (lambda: MultiHead(12, 3, projection="magic"), "'magic'; choose one of fused, batched, single"),
        (lambda: MultiHead(12, 3, source_width=5), 'use projection="batched"'),
        (lambda: MultiHead(12, 3)(torch.randn(1, 2, 11)), r"width 12, not \[1, 2, 11\]"),
        (lambda: MultiHead(12, 3)(torch.randn(1, 2, 12), torch.randn(1, 2, 5)), "source of width 12"),
        (lambda: MultiHead(12, 3, source_width=5, projection="batched")(torch.randn(1, 2, 12)), "pass source="),
    ],
)
def test_wrong_arguments_raise(make: Callable[[], Tensor], message: str) -> None:
    with pytest.raises((ArgumentError, ShapeError), match=message):
        make()


def test_sites_are_module_names() -> None:
    model = nn.ModuleDict({"encoder": nn.ModuleList([MultiHead(8, 2), MultiHead(8, 2)])})
    name_sites(model)
    received = []
    with listen(lambda site, value: received.append(site) or value):
        model["encoder"][1](torch.randn(1, 3, 8))
    assert "encoder.1.query" in received and "encoder.1.block_output" in received
