"""Regressions: each of these once gave wrong numbers or a raw traceback."""

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
from jumok.tap import Listener, listen

pytestmark = pytest.mark.usefixtures("tiny_blocks")


def draw_tensors(queries: int = 6, keys: int = 6, heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    shapes = [(1, heads, queries, 4), (1, heads, keys, 4), (1, heads, keys, 4)]
    query, key, value = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return query, key, value


@pytest.mark.parametrize("backend", ["sdpa", "blocked", "auto"])
def test_positions_may_decrease(backend: str) -> None:
    backwards = range(5, -1, -1)
    inputs = draw_tensors()
    settings: dict[str, Any] = {"mask": mask.causal, "query_positions": backwards, "key_positions": backwards}
    assert torch.allclose(attend(*inputs, **settings, backend=backend), attend(*inputs, **settings, backend="explicit"))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8], ids=str)
def test_narrow_integer_positions_give_equal_outputs(dtype: torch.dtype) -> None:
    inputs, positions = draw_tensors(), torch.tensor([0, 2, 3, 4, 1, 5])
    numbers = bias.alibi(2)
    for allowed in (mask.causal & mask.window(2), mask.random_keys(2, 1, 6), mask.documents([0, 0, 1, 1, 2, 2])):
        for backend in ("explicit", "sdpa", "blocked"):
            wide, narrow = (
                attend(*inputs, mask=allowed, bias=numbers, query_positions=p, key_positions=p, backend=backend)
                for p in (positions, positions.to(dtype))
            )
            assert torch.equal(wide, narrow)


def test_blocked_computes_gradients_of_replaced_parameters() -> None:
    def compute_gradients(backend: str) -> list[Tensor]:
        torch.manual_seed(0)
        attention = MultiHead(16, 4, score=score.Additive(4, 4, 5), backend=backend).double()
        inputs = torch.randn(1, 7, 16).double()
        swapped = {name: (tensor.detach() * 1.5).requires_grad_() for name, tensor in attention.named_parameters()}
        torch.func.functional_call(attention, swapped, (inputs,)).square().sum().backward()
        return [tensor.grad for tensor in swapped.values()]

    for explicit, blocked in zip(compute_gradients("explicit"), compute_gradients("blocked"), strict=True):
        assert torch.allclose(explicit, blocked)


@pytest.mark.parametrize("which", [0, 1, 2], ids=["query", "key", "value"])
@pytest.mark.parametrize("allowed", [None, mask.causal & mask.window(40)], ids=["all", "band"])
@pytest.mark.parametrize("backend", ["sdpa", "blocked"])
def test_rows_that_are_not_contiguous(which: int, allowed: Any, backend: str) -> None:
    """PyTorch's kernel for the log-sum-exp reads adjacent numbers and ignores the stride of the last axis."""
    inputs = [torch.randn(2, 3, 256, 16) for _ in range(3)]
    expected = attend(*inputs, mask=allowed, backend="explicit")
    inputs[which] = inputs[which].mT.contiguous().mT
    received: dict[str, Any] = {}

    class Requests(Listener):
        def __call__(self, site: str, value: Any) -> Any:
            return received.setdefault(site, value)

    with listen(Requests()):
        output = attend(*inputs, mask=allowed, backend=backend, site="layer")
    assert (output - expected).abs().max() < 1e-5 and "layer.logsumexp" in received


def test_gradient_of_a_tensor_used_twice_is_counted_once() -> None:
    table = torch.randn(32, 2, dtype=torch.float64).requires_grad_()
    numbers = bias.t5(table) + bias.t5(table, bidirectional=False)
    inputs = draw_tensors()
    grads = [
        torch.autograd.grad(attend(*inputs, bias=numbers, backend=b).sin().sum(), table)[0]
        for b in ("explicit", "blocked")
    ]
    assert torch.allclose(*grads)


def test_blocked_refuses_second_derivatives() -> None:
    query, key, value = draw_tensors()
    query.requires_grad_()
    output = attend(query, key, value, backend="blocked")
    with pytest.raises(BackendError, match="second derivative; use"):
        torch.autograd.grad(output.sum(), query, create_graph=True)
    exact = attend(query, key, value, backend="explicit")
    (slope,) = torch.autograd.grad(exact.sum(), query, create_graph=True)
    assert slope.requires_grad


def test_blocked_detects_a_changed_mask() -> None:
    query, key, value = draw_tensors()
    query.requires_grad_()
    real = torch.ones(1, 6).bool()
    real[0, 4:] = False
    output = attend(query, key, value, mask=mask.padding(real) & mask.causal, backend="blocked")
    real[0, 0] = False
    with pytest.raises(BackendError, match="changed between"):
        output.sum().backward()


def test_failed_call_leaves_the_cache_unchanged() -> None:
    attention, cache = MultiHead(8, 2), Cache()
    inputs = torch.randn(1, 4, 8)
    with torch.no_grad():
        attention(inputs[:, :3], mask=mask.causal, cache=cache)
        with pytest.raises(ShapeError):
            attention(inputs[:, 3:], mask=mask.padding([3, 3]), cache=cache)
        assert cache.length == 3
        last_output = attention(inputs[:, 3:], mask=mask.causal, cache=cache)
        assert torch.allclose(last_output, attention(inputs, mask=mask.causal)[:, 3:], atol=1e-6)


@pytest.mark.parametrize("backend", ["explicit", "blocked", "sdpa"])
def test_autocast_changes_neither_dtype_nor_backward(backend: str) -> None:
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


def test_large_bias_stays_finite_in_half_precision() -> None:
    inputs = [tensor.half() for tensor in draw_tensors()]
    output = attend(*inputs, bias=bias.given(torch.full((6, 6), 1e5)), backend="sdpa")
    assert torch.isfinite(output).all()


def test_learned_sink_is_a_parameter_of_its_attention() -> None:
    attention = MultiHead(8, 2, score=score.ScaledDot(sink=nn.Parameter(torch.zeros(2))))
    assert "sink" in attention.state_dict()
    attention(torch.randn(1, 3, 8)).sum().backward()
    assert attention.sink.grad is not None and attention.sink.grad.abs().sum() > 0


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("allowed", [mask.causal, mask.window(2), mask.padding([3]), ~mask.edge(query=1)], ids=repr)
def test_empty_queries_or_keys_give_zeros(backend: str, queries: int, keys: int, allowed: mask.Mask) -> None:
    output = attend(*draw_tensors(queries, keys), mask=allowed, backend=backend)
    assert output.shape == (1, 2, queries, 4) and not output.any()


def test_edge_of_a_missing_head_raises() -> None:
    with pytest.raises(ShapeError, match="head 9, but there are 2"):
        attend(*draw_tensors(), mask=~mask.edge(head=9))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiHead(8, 2, backend="flash"), "unknown backend 'flash'"),
        (lambda: MultiHead(8, 2, dropout=2.0), "below 1, not 2.0"),
        (lambda: mask.parse("window(size=3)"), r"write window\(n\)"),
        (lambda: mask.parse("random_keys(1, 2)"), r"random_keys\(n, seed, length, block\)"),
        (lambda: mask.parse("casual"), "did you mean causal"),
    ],
)
def test_wrong_arguments_raise_a_clear_error(make: Any, message: str) -> None:
    with pytest.raises((ArgumentError, BackendError), match=message):
        make()


# The runtime type checker of these tests would raise first, so these mistakes are tried in a process without it.
PROGRAM = """
import torch
from jumok.attention import MultiHead, mask, score
from jumok.errors import JumokError

attention, inputs = MultiHead(8, 2), torch.randn(1, 3, 8)
for mistake, message in (
    (lambda: attention(inputs, mask.causal), "pass masks as mask="),
    (lambda: attention(inputs[0]), "inputs must be [batch, length, width]"),
    (lambda: MultiHead(8, 2, score=score.Dot), "such as ScaledDot()"),
):
    try:
        mistake()
    except JumokError as error:
        assert message in str(error), error
    else:
        raise AssertionError(message)
compiled = torch.compile(lambda x: attention(x, mask=mask.causal & mask.padding([2])), fullgraph=True, backend="eager")
assert torch.allclose(compiled(inputs), attention(inputs, mask=mask.causal & mask.padding([2])))
from jumok import attend

key = torch.randn(1, 2, 3, 4)
key[:, :, 2] = float("nan")
compiled = torch.compile(lambda q, k: attend(q, k, k, mask=mask.padding([2])), fullgraph=True, backend="eager")
assert torch.isfinite(compiled(torch.randn(1, 2, 3, 4), key)).all()
from jumok.models import GPT, GPTConfig

model = GPT(GPTConfig(vocabulary=8, length=4, width=8, layers=1, heads=2, hidden=8))
tokens = torch.tensor([[1, 2, 3]])
compiled_model = torch.compile(model, fullgraph=True, backend="eager")  # reading the token values would break the graph
assert torch.allclose(compiled_model(tokens).logits, model(tokens).logits)
print("ok")
"""


def test_errors_and_compilation_without_the_type_checker() -> None:
    process = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert process.stdout == "ok\n", process.stderr[-1500:]
