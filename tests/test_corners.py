"""Corners that once were wrong: each of these gave other numbers, or a raw error, before it had a test."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jumok import attend
from jumok.attention import Cache, MultiHead, bias, mask, score
from jumok.errors import ArgumentError, BackendError, ShapeError

pytestmark = pytest.mark.usefixtures("tiny_blocks")


def drawn(queries: int = 6, keys: int = 6, heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    shape = [(1, heads, queries, 4), (1, heads, keys, 4), (1, heads, keys, 4)]
    query, key, value = (torch.randn(one, dtype=torch.float64) for one in shape)
    return query, key, value


@pytest.mark.parametrize("backend", ["sdpa", "blocked", "auto"])
def test_positions_may_run_backwards(backend: str) -> None:
    back = range(5, -1, -1)
    given = drawn()
    settings: dict[str, Any] = {"mask": mask.causal, "query_positions": back, "key_positions": back}
    assert torch.allclose(attend(*given, **settings, backend=backend), attend(*given, **settings, backend="explicit"))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8], ids=str)
def test_positions_of_narrow_integers_mean_the_same(dtype: torch.dtype) -> None:
    given, places = drawn(), torch.tensor([0, 2, 3, 4, 1, 5])
    numbers = bias.alibi(2)
    for who in (mask.causal & mask.window(2), mask.random_keys(2, 1, 6), mask.documents([0, 0, 1, 1, 2, 2])):
        for backend in ("explicit", "sdpa", "blocked"):
            one, two = (
                attend(*given, mask=who, bias=numbers, query_positions=p, key_positions=p, backend=backend)
                for p in (places, places.to(dtype))
            )
            assert torch.equal(one, two)


def test_blocked_reaches_parameters_that_are_swapped_in() -> None:
    def gradients(backend: str) -> list[Tensor]:
        torch.manual_seed(0)
        attention = MultiHead(16, 4, score=score.Additive(4, 4, 5), backend=backend).double()
        inputs = torch.randn(1, 7, 16).double()
        swapped = {name: (one.detach() * 1.5).requires_grad_() for name, one in attention.named_parameters()}
        torch.func.functional_call(attention, swapped, (inputs,)).square().sum().backward()
        return [one.grad for one in swapped.values()]

    for one, two in zip(gradients("explicit"), gradients("blocked"), strict=True):
        assert torch.allclose(one, two)


def test_a_tensor_that_serves_twice_gets_its_gradient_once() -> None:
    table = torch.randn(32, 2, dtype=torch.float64).requires_grad_()
    numbers = bias.t5(table) + bias.t5(table, bidirectional=False)
    given = drawn()
    grads = [
        torch.autograd.grad(attend(*given, bias=numbers, backend=b).sin().sum(), table)[0]
        for b in ("explicit", "blocked")
    ]
    assert torch.allclose(*grads)


def test_blocked_says_that_it_has_no_second_derivative() -> None:
    query, key, value = drawn()
    query.requires_grad_()
    output = attend(query, key, value, backend="blocked")
    with pytest.raises(BackendError, match="second derivative; use"):
        torch.autograd.grad(output.sum(), query, create_graph=True)
    exact = attend(query, key, value, backend="explicit")
    (slope,) = torch.autograd.grad(exact.sum(), query, create_graph=True)
    assert slope.requires_grad


def test_blocked_notices_that_a_mask_was_changed() -> None:
    query, key, value = drawn()
    query.requires_grad_()
    real = torch.ones(1, 6).bool()
    real[0, 4:] = False
    output = attend(query, key, value, mask=mask.padding(real) & mask.causal, backend="blocked")
    real[0, 0] = False
    with pytest.raises(BackendError, match="changed between"):
        output.sum().backward()


def test_what_was_refused_was_not_seen() -> None:
    attention, cache = MultiHead(8, 2), Cache()
    inputs = torch.randn(1, 4, 8)
    with torch.no_grad():
        attention(inputs[:, :3], mask=mask.causal, cache=cache)
        with pytest.raises(ShapeError):
            attention(inputs[:, 3:], mask=mask.padding([3, 3]), cache=cache)
        assert cache.length == 3
        last = attention(inputs[:, 3:], mask=mask.causal, cache=cache)
        assert torch.allclose(last, attention(inputs, mask=mask.causal)[:, 3:], atol=1e-6)


@pytest.mark.parametrize("backend", ["explicit", "blocked", "sdpa"])
def test_autocast_changes_neither_type_nor_backward(backend: str) -> None:
    torch.manual_seed(0)
    query, key, value = (5 * torch.randn(1, 2, 40, 8) for _ in range(3))
    value.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        output = attend(query, key, value, mask=mask.causal, backend=backend)
    assert output.dtype == torch.float32
    output.backward(torch.ones_like(output))
    assert value.grad is not None
    # every row of weights sums to 1, so the gradients of a head's values sum to its rows
    bound = 1e-4 if backend != "sdpa" else 0.02
    assert torch.allclose(value.grad.sum(2), torch.full((1, 2, 8), 40.0), rtol=bound)


def test_a_large_bias_stays_finite_in_half_precision() -> None:
    given = [one.half() for one in drawn()]
    output = attend(*given, bias=bias.given(torch.full((6, 6), 1e5)), backend="sdpa")
    assert torch.isfinite(output).all()


def test_a_learned_sink_is_a_parameter_of_its_attention() -> None:
    attention = MultiHead(8, 2, score=score.ScaledDot(sink=nn.Parameter(torch.zeros(2))))
    assert "sink" in attention.state_dict()
    attention(torch.randn(1, 3, 8)).sum().backward()
    assert attention.sink.grad is not None and attention.sink.grad.abs().sum() > 0


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("who", [mask.causal, mask.window(2), mask.padding([3]), ~mask.edge(query=1)], ids=repr)
def test_nothing_to_ask_or_to_see(backend: str, queries: int, keys: int, who: mask.Mask) -> None:
    output = attend(*drawn(queries, keys), mask=who, backend=backend)
    assert output.shape == (1, 2, queries, 4) and not output.any()


def test_an_edge_of_a_head_that_is_not_there_is_refused() -> None:
    with pytest.raises(ShapeError, match="head 9, but there are 2"):
        attend(*drawn(), mask=~mask.edge(head=9))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MultiHead(8, 2, backend="flash"), "unknown backend 'flash'"),
        (lambda: MultiHead(8, 2, dropout=2.0), "below 1, not 2.0"),
        (lambda: mask.parse("window(size=3)"), r"write window\(n\)"),
        (lambda: mask.parse("random_keys(1, 2)"), r"random_keys\(n, seed, length\)"),
        (lambda: mask.parse("casual"), "did you mean causal"),
    ],
)
def test_mistakes_get_a_sentence(make: Any, says: str) -> None:
    with pytest.raises((ArgumentError, BackendError), match=says):
        make()


# What the runtime type checker of these tests would catch first is tried in a process without it.
PLAIN = """
import torch
from jumok.attention import MultiHead, mask, score
from jumok.errors import JumokError

attention, inputs = MultiHead(8, 2), torch.randn(1, 3, 8)
for mistake, says in (
    (lambda: attention(inputs, mask.causal), "pass masks as mask="),
    (lambda: attention(inputs[0]), "inputs must be [batch, length, width]"),
    (lambda: MultiHead(8, 2, score=score.Dot), "such as ScaledDot()"),
):
    try:
        mistake()
    except JumokError as refused:
        assert says in str(refused), refused
    else:
        raise AssertionError(says)
compiled = torch.compile(lambda x: attention(x, mask=mask.causal & mask.padding([2])), fullgraph=True, backend="eager")
assert torch.allclose(compiled(inputs), attention(inputs, mask=mask.causal & mask.padding([2])))
from jumok.models import GPT, GPTConfig

model = GPT(GPTConfig(vocabulary=8, length=4, width=8, layers=1, heads=2, hidden=8))
tokens = torch.tensor([[1, 2, 3]])
whole = torch.compile(model, fullgraph=True, backend="eager")  # a check of the tokens' values would break the graph
assert torch.allclose(whole(tokens).logits, model(tokens).logits)
print("ok")
"""


def test_mistakes_and_a_compiler_without_the_type_checker() -> None:
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, check=False)
    assert done.stdout == "ok\n", done.stderr[-1500:]
