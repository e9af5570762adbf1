"""Regressions: each of these once gave wrong numbers or a raw traceback."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from jumok import attend
from jumok.attention import Cache, MultiHead, bias, mask, score
from jumok.attention.feature_maps import FavorPlus
from jumok.data.audio.log_mel import compute_log_mel
from jumok.errors import ArgumentError, BackendError, ShapeError
from jumok.layers import RotaryPositions
from jumok.lens.edits.edit_types import TemperatureScore
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


NEAR_LIMIT = torch.tensor([[0.0, 3e38, -3e38, 1e5, 2e5, 0.0]]).repeat(6, 1)
WIDE = torch.tensor([[0.0, 1e5, 2e5, 0.0, -1e5, 3.0]]).repeat(6, 1)  # beyond the range of float16


@pytest.mark.parametrize("backend", ["auto", "explicit", "sdpa", "blocked"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("allowed", [None, mask.causal, mask.causal & mask.window(3)], ids=repr)
@pytest.mark.parametrize(
    ("scale", "table", "sink"),
    [
        (0.0, None, None),
        (-0.1, None, None),
        (1e-320, None, None),
        (-1e-40, None, None),
        (0.5, NEAR_LIMIT, None),
        (0.5, WIDE, None),
        (0.5, None, math.inf),
        (0.5, None, -math.inf),
        (0.5, None, 1e300),
    ],
)
def test_extreme_settings_equal_float64(
    backend: str, dtype: torch.dtype, allowed: Any, scale: float, table: Tensor | None, sink: float | None
) -> None:
    inputs = [tensor.to(dtype) for tensor in draw_tensors()]
    numbers = None if table is None else bias.given(table)
    sinks = None if sink is None else torch.full((2,), sink, dtype=torch.float64)
    settings: dict[str, Any] = {"mask": allowed, "bias": numbers, "score": score.ScaledDot(scale=scale, sink=sinks)}
    if backend == "sdpa" and sink is not None:
        pytest.skip("sdpa has no sink")
    output = attend(*inputs, **settings, backend=backend)

    distance = torch.arange(6)[:, None] - torch.arange(6)
    is_allowed = torch.ones(6, 6).bool() if allowed is None else distance >= 0
    if allowed is not None and allowed is not mask.causal:
        is_allowed &= distance < 3
    scores = scale * (inputs[0].double() @ inputs[1].double().mT)
    scores = scores if table is None else scores + table.double()
    expected = scores.masked_fill(~is_allowed, -math.inf).softmax(-1) @ inputs[2].double()
    if sink is not None and sink > 0:
        expected = torch.zeros_like(expected)  # the sink takes all of the weight
    assert torch.allclose(output.double(), expected, atol={2: 4e-3, 4: 1e-6, 8: 1e-12}[dtype.itemsize])


@pytest.mark.parametrize(
    "make",
    [
        lambda: score.ScaledDot(scale=math.nan),
        lambda: score.ScaledDot(scale=-math.inf),
        lambda: score.Dot(scale=1e300),
        lambda: score.ScaledDot(softcap=math.inf),
        lambda: score.ScaledDot(softcap=1e300),
        lambda: score.ScaledDot(softcap=1e-300),
        lambda: bias.given(torch.full((6, 6), 1e300, dtype=torch.float64)),
    ],
)
def test_numbers_beyond_float32_raise(make: Any) -> None:
    with pytest.raises(ArgumentError, match="within the range of float32"):
        make()


def test_a_sum_of_biases_stays_finite() -> None:
    for lowest, dtype in ((-3e38, torch.float32), (-6e4, torch.float16)):  # as other libraries write masks
        table = bias.given(torch.full((6, 6), lowest, dtype=dtype))
        for backend in ("explicit", "sdpa", "blocked"):
            assert torch.isfinite(attend(*draw_tensors(), bias=table + table, backend=backend)).all()


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


def test_rotary_positions_are_not_mixed_up_by_a_call_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may call the same module at any time; here it does so before the first call has its table."""
    rotary, vectors = RotaryPositions(4), torch.randn(1, 2, 1, 4)
    expected = [rotary(vectors, range(start, start + 1)) for start in (3, 7)]
    compute = rotary._compute_cos_sin
    waiting = [lambda: rotary(vectors, range(7, 8))]

    def compute_later(positions: range, like: Tensor) -> tuple[Tensor, Tensor]:
        if waiting:
            waiting.pop()()
        return compute(positions, like)

    monkeypatch.setattr(rotary, "_compute_cos_sin", compute_later)
    for start, rotated in zip((3, 7), expected, strict=True):
        assert torch.equal(rotary(vectors, range(start, start + 1)), rotated)


@pytest.mark.parametrize(
    "compute",
    [
        RotaryPositions(8),
        lambda vectors, _: attend(vectors, vectors, vectors, score=score.Kernel(FavorPlus(6, seed=11))),
        lambda vectors, _: attend(vectors, vectors, vectors, mask=mask.causal & mask.window(2), backend="blocked"),
    ],
    ids=["rotary", "features", "band"],
)
@pytest.mark.parametrize("mode", [torch.inference_mode(), FakeTensorMode(allow_non_fake_inputs=True)])
def test_tables_of_another_mode_are_not_reused(compute: Any, mode: Any) -> None:
    vectors = torch.randn(1, 2, 5, 8, dtype=torch.float64)
    with mode, contextlib.suppress(DataDependentOutputException):  # blocked reads the mask, which holds no numbers
        compute(torch.randn(1, 2, 5, 8, dtype=torch.float64), range(5))
    vectors.requires_grad_()
    output = compute(vectors, range(5))
    output.square().sum().backward()
    assert type(output) is Tensor and vectors.grad is not None and torch.isfinite(vectors.grad).all()


def test_mel_filters_of_inference_mode_take_part_in_a_backward_pass() -> None:
    samples = torch.randn(800)
    with torch.inference_mode():
        compute_log_mel(samples, 7)
    compute_log_mel(samples.requires_grad_(), 7).sum().backward()


@pytest.mark.parametrize("backend", ["auto", "explicit", "sdpa", "blocked"])
@pytest.mark.parametrize("safe", [False, True])
def test_an_empty_batch_gives_an_empty_output(backend: str, safe: bool) -> None:
    tensors = torch.zeros(3, 0, 2, 7, 4).requires_grad_()
    for allowed in (None, mask.causal, mask.causal & mask.window(2), mask.documents([0] * 7)):
        output = attend(*tensors, mask=allowed, backend=backend, safe=safe)
        assert output.shape == (0, 2, 7, 4)
        output.sum().backward()


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch has no batching rule for its kernel
def test_transforms_of_torch_func(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocked backend has no rule for them, so "auto" selects another one, and "blocked" refuses."""
    monkeypatch.setattr(sys.modules["jumok.attention.attend"], "MIN_SPARSE_CELLS", 1)
    vectors = torch.randn(2, 1, 2, 6, 4, dtype=torch.float64)
    for allowed in (mask.window(2), mask.documents([0, 0, 0, 0, 1, 1])):

        def compute(x: Tensor, backend: str = "auto", allowed: mask.Mask = allowed) -> Tensor:
            return attend(x, x, x, mask=allowed, backend=backend)

        expected = torch.stack([compute(x, "explicit") for x in vectors])
        assert torch.allclose(torch.func.vmap(compute)(vectors), expected)
        leaf = vectors[0].clone().requires_grad_()
        compute(leaf, "explicit").sin().sum().backward()
        assert torch.allclose(torch.func.grad(lambda x: compute(x).sin().sum())(vectors[0]), leaf.grad)
        with pytest.raises(BackendError, match=r"torch.func .*; use backend=.explicit. or .sdpa."):
            torch.func.vmap(lambda x: compute(x, "blocked"))(vectors)


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
windowed = torch.compile(lambda q: attend(q, q, q, mask=mask.causal & mask.window(9)), fullgraph=True, backend="eager")
for length in (1030, 1040):  # "auto" selects blocked there, but not while a compiler needs one graph
    query = torch.randn(1, 1, length, 4)
    assert torch.allclose(windowed(query), attend(query, query, query, mask=mask.causal & mask.window(9)), atol=1e-6)
from jumok.attention import bias

for settings in (
    {"mask": mask.causal},
    {"mask": mask.causal & mask.window(2)},
    {"mask": mask.padding([3, 5]) & mask.documents([0] * 4 + [1] * 4)},
    {"bias": bias.alibi(2), "score": score.ScaledDot(softcap=3.0)},
):
    compiled = torch.compile(lambda q: attend(q, q, q, **settings), dynamic=True, fullgraph=True, backend="eager")
    for length in (5, 7):
        query = torch.randn(2, 2, length, 4)
        assert torch.allclose(compiled(query), attend(query, query, query, **settings), atol=1e-6)
from jumok.models import GPT, GPTConfig

model = GPT(GPTConfig(vocabulary=8, length=4, width=8, layers=1, heads=2, hidden=8))
tokens = torch.tensor([[1, 2, 3]])
compiled_model = torch.compile(model, fullgraph=True, backend="eager")  # reading the token values would break the graph
assert torch.allclose(compiled_model(tokens).logits, model(tokens).logits)
exported = torch.export.export(model, (tokens,), strict=False).module()
assert torch.allclose(exported(tokens).logits, model(tokens).logits)
print("ok")
"""


def test_errors_and_compilation_without_the_type_checker() -> None:
    process = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert process.stdout == "ok\n", process.stderr[-1500:]


@pytest.mark.parametrize(
    "inner", [score.Additive(11, 11, 5), score.ScaledDot(softcap=5.0)], ids=["additive", "softcap"]
)
def test_a_temperature_on_scores_that_no_kernel_computes(inner: score.Score) -> None:
    query, key, value = torch.randn(2, 3, 5, 11), torch.randn(2, 3, 7, 11), torch.randn(2, 3, 7, 11)
    expected = (inner.evaluate(query, key) / 2).softmax(-1) @ value
    for mask_of_band in (None, mask.window(100)):
        output = attend(query, key, value, mask=mask_of_band, score=TemperatureScore(inner, None, 2.0))
        torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_documents_of_two_sequences(backend: str) -> None:
    query, key, value = torch.randn(2, 3, 5, 11), torch.randn(2, 3, 7, 11), torch.randn(2, 3, 7, 11)
    ids, key_ids = torch.tensor([[0, 0, 1, 1, 2], [0, 1, 1, 1, 2]]), torch.tensor([0, 1, 1, 2, 2, 2, 0])
    forbidden = (ids[:, None, :, None] != key_ids).expand(2, 3, 5, 7)
    scores = (query @ key.transpose(-1, -2) / 11**0.5).masked_fill(forbidden, -torch.inf)
    output = attend(query, key, value, mask=mask.documents(ids, key_ids), backend=backend)
    torch.testing.assert_close(output, scores.softmax(-1) @ value)
