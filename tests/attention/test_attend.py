"""Every backend against plain loops in float64: outputs, weights, log-sum-exp and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import oracle
from cases import (
    BOUNDS,
    DOT_SCORES,
    MASKS,
    SCORES,
    Tensors,
    assert_close,
    make_bias_case,
    make_predicate,
    make_score_case,
    make_tensors,
)
from jumok import attend
from jumok.attention import FavorPlus, mask, score
from jumok.attention.attend import BACKENDS
from jumok.tap import Listener, listen

pytestmark = pytest.mark.usefixtures("tiny_blocks")

# The scores that each backend computes; flex is tested in test_flex.py.
BACKEND_SCORES = [
    (backend, name)
    for backend, names in (("explicit", SCORES), ("blocked", SCORES), ("sdpa", DOT_SCORES))
    for name in names
]


def run_oracle(inputs: Tensors, case: str, theirs: Any, **settings: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return output, weights and row log-sum-exp of the loops."""
    arrays = (tensor.detach().double().numpy() for tensor in inputs)
    return oracle.compute_attention(*arrays, allowed=make_predicate(MASKS[case]), scores=theirs, **settings)


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize(("backend", "name"), BACKEND_SCORES)
def test_outputs_and_gradients_equal_the_loops(backend: str, name: str, case: str) -> None:
    ours, theirs, parameters = make_score_case(name)
    inputs = Tensors(*(tensor.requires_grad_() for tensor in make_tensors()))
    output = attend(*inputs, mask=MASKS[case].ours, score=ours, backend=backend)
    expected, *_ = run_oracle(inputs, case, theirs)
    assert_close(output, expected, BOUNDS[torch.float64])

    pull = torch.randn(output.shape, dtype=torch.float64)
    output.backward(pull)
    arrays = (tensor.detach().numpy() for tensor in inputs)
    gradients = oracle.compute_gradients(*arrays, pull.numpy(), allowed=make_predicate(MASKS[case]), scores=theirs)
    for tensor, axis in zip(inputs, ("query", "key", "value"), strict=True):
        assert tensor.grad is not None
        assert_close(tensor.grad, gradients[axis], BOUNDS[torch.float64])
    for parameter_name, parameter in parameters.items():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert_close(grad, gradients["parameters"][parameter_name], BOUNDS[torch.float64])


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("name", SCORES)
def test_weights_equal_the_loops_and_rows_sum_to_one_or_zero(name: str, case: str) -> None:
    ours, theirs, _ = make_score_case(name)
    inputs = make_tensors()
    _, weights = attend(*inputs, mask=MASKS[case].ours, score=ours, weights=True)
    assert_close(weights, run_oracle(inputs, case, theirs)[1], BOUNDS[torch.float64])
    allowed = np.ones(weights.shape, bool)
    if MASKS[case].theirs is not None:
        allowed = oracle.evaluate_mask(MASKS[case].theirs, *weights.shape[:2], range(5), range(7))
    assert (weights[torch.as_tensor(~allowed)] == 0).all()
    assert_close(weights.sum(-1), allowed.any(-1).astype(float), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", ["none", "causal", "longformer", "empty rows", "padding table"])
@pytest.mark.parametrize(("backend", "name"), BACKEND_SCORES)
def test_lower_precision_stays_within_its_bound(backend: str, name: str, case: str, dtype: torch.dtype) -> None:
    ours, theirs, _ = make_score_case(name, torch.float32 if dtype.itemsize < 4 else dtype)
    inputs = make_tensors(dtype)
    output = attend(*inputs, mask=MASKS[case].ours, score=ours, backend=backend)
    assert output.dtype == dtype
    assert_close(output, run_oracle(inputs, case, theirs)[0], BOUNDS[dtype])


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("name", ["given", "alibi + given"])
@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_biases_and_their_gradients_equal_the_loops(backend: str, name: str, case: str) -> None:
    numbers, theirs, table = make_bias_case(name)
    assert table is not None
    inputs = make_tensors()
    output = attend(*inputs, mask=MASKS[case].ours, bias=numbers, backend=backend)
    expected, *_ = run_oracle(inputs, case, oracle.ScaledDot(), bias=theirs)
    assert_close(output, expected, BOUNDS[torch.float64])
    pull = torch.randn(output.shape, dtype=torch.float64)
    output.backward(pull)
    cells = oracle.compute_gradients(
        *(tensor.numpy() for tensor in inputs),
        pull.numpy(),
        allowed=make_predicate(MASKS[case]),
        scores=oracle.ScaledDot(),
        bias=theirs,
    )["bias"]
    assert table.grad is not None
    summed = cells.sum(0, keepdims=True) if table.dim() == 4 else cells.sum((0, 1))
    assert_close(table.grad, summed, BOUNDS[torch.float64])


@pytest.mark.parametrize("case", ["none", "causal", "empty rows", "longformer"])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("has_sink", [False, True])
@pytest.mark.parametrize("backend", ["explicit", "blocked"])
def test_softcap_and_sink_equal_the_loops(backend: str, has_sink: bool, softcap: float | None, case: str) -> None:
    sink = torch.randn(6, dtype=torch.float64).requires_grad_() if has_sink else None
    numbers = None if sink is None else sink.tolist()
    inputs = Tensors(*(tensor.requires_grad_() for tensor in make_tensors()))
    output = attend(*inputs, mask=MASKS[case].ours, score=score.ScaledDot(softcap=softcap, sink=sink), backend=backend)
    assert_close(output, run_oracle(inputs, case, oracle.ScaledDot(), softcap=softcap, sink=numbers)[0], 1e-12)
    pull = torch.randn(output.shape, dtype=torch.float64)
    output.backward(pull)
    gradients = oracle.compute_gradients(
        *(tensor.detach().numpy() for tensor in inputs),
        pull.numpy(),
        allowed=make_predicate(MASKS[case]),
        scores=oracle.ScaledDot(),
        softcap=softcap,
        sink=numbers,
    )
    for tensor, axis in zip(inputs, ("query", "key", "value"), strict=True):
        assert_close(tensor.grad, gradients[axis], 1e-12)
    if sink is not None:
        assert_close(sink.grad, gradients["sink"], 1e-12)


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("backend", ["explicit", "blocked", "sdpa"])
def test_listener_receives_the_row_log_sum_exp(backend: str, case: str) -> None:
    received: dict[str, Tensor] = {}

    class LogSumExpListener(Listener):
        def accepts(self, site: str) -> bool:
            return site == "layer.logsumexp"

        def __call__(self, site: str, value: Any) -> Any:
            received[site] = value
            return value

    inputs = make_tensors(value_width=11)
    with listen(LogSumExpListener()):
        output = attend(*inputs, mask=MASKS[case].ours, backend=backend, site="layer")
    outputs, _, expected = run_oracle(inputs, case, oracle.ScaledDot())
    assert_close(output, outputs, 1e-12)
    logsumexp, is_finite = received["layer.logsumexp"], np.isfinite(expected)
    if backend != "sdpa":  # the kernel leaves rows that attend to no key undefined
        assert torch.equal(torch.isneginf(logsumexp), torch.as_tensor(~is_finite))
    assert_close(logsumexp[torch.as_tensor(is_finite)], expected[is_finite], 1e-12)


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
@pytest.mark.parametrize("name", DOT_SCORES[:1])
def test_query_and_key_lengths_may_differ(backend: str, name: str) -> None:
    # M7: code that reshapes keys by the length of the queries fails here
    inputs = make_tensors(queries=25, keys=20)
    output = attend(*inputs, backend=backend)
    assert_close(output, run_oracle(inputs, "none", oracle.ScaledDot())[0], 1e-12)


@pytest.mark.parametrize("backend", ["explicit", "blocked"])
@pytest.mark.parametrize("name", ["scaled_dot", "additive"])
@pytest.mark.parametrize("case", ["padding lengths", "padding table", "causal", "swin"])
def test_nan_in_a_forbidden_key_does_not_reach_the_output(backend: str, name: str, case: str) -> None:
    ours, _, _ = make_score_case(name)
    inputs = Tensors(*(tensor.requires_grad_() for tensor in make_tensors()))
    allowed = torch.as_tensor(oracle.evaluate_mask(MASKS[case].theirs, 2, 6, range(5), range(7)))
    unread = ~allowed.any(2).view(2, 3, 2, 7).any(2)  # [batch, group, key]: masked for every query
    assert unread.any()
    key, value = (torch.where(unread[..., None], float("nan"), tensor) for tensor in inputs[1:])
    output = attend(inputs.query, key, value, mask=MASKS[case].ours, score=ours, backend=backend)
    assert_close(output, attend(*inputs, mask=MASKS[case].ours, score=ours, backend="explicit"), 1e-12)
    output.sum().backward()
    for tensor in inputs:
        assert torch.isfinite(tensor.grad).all()


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_no_keys_give_zeros(backend: str) -> None:
    output = attend(*make_tensors(keys=0), backend=backend)
    assert output.shape == (2, 6, 5, 13)
    assert not output.any()


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_no_queries_give_an_empty_output(backend: str) -> None:
    assert attend(*make_tensors(queries=0), backend=backend).shape == (2, 6, 0, 13)


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
@pytest.mark.parametrize("case", ["causal", "causal window", "bigbird", "blocks", "documents"])
def test_query_positions_select_rows(backend: str, case: str) -> None:
    """Some rows, at their real positions, equal the same rows of the full output; the cache relies on it."""
    inputs = make_tensors(queries=7)
    full = attend(*inputs, mask=MASKS[case].ours, backend="explicit")
    for positions in (range(3, 7), torch.tensor([6, 0, 3]), torch.tensor([[6, 0, 3], [1, 5, 2]])):
        rows = positions if isinstance(positions, Tensor) else torch.arange(3, 7)
        rows = rows.expand(2, -1)[:, None, :, None].expand(-1, 6, -1, 13)
        query = inputs.query.gather(2, rows[..., :11])
        part = attend(query, *inputs[1:], mask=MASKS[case].ours, query_positions=positions, backend=backend)
        assert_close(part, full.gather(2, rows), 1e-12)


def test_keys_may_be_in_any_order() -> None:
    inputs, order = make_tensors(), torch.tensor([3, 6, 0, 5, 1, 4, 2])
    full = attend(*inputs, mask=mask.causal, backend="explicit")
    for backend in ("explicit", "sdpa", "blocked"):
        key, value = inputs.key[:, :, order], inputs.value[:, :, order]
        mixed = attend(inputs.query, key, value, mask=mask.causal, key_positions=order, backend=backend)
        assert_close(mixed, full, 1e-12)


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_dropout_preserves_the_mean_and_the_returned_weights(backend: str) -> None:
    query, key, value = make_tensors(torch.float32, queries=3, keys=500)
    ones = torch.ones_like(value)
    if backend == "explicit":
        _, weights = attend(query, key, ones, dropout=0.5, weights=True)
        assert_close(weights.sum(-1), torch.ones(2, 6, 3), 1e-5)
    output = attend(query, key, ones, dropout=0.5, backend=backend)
    assert 0.5 < output.min() < output.mean() < output.max() < 1.8
    assert abs(output.mean() - 1) < 0.1
    assert output.std() > 0.01  # something was dropped
    torch.manual_seed(5)
    first = attend(query, key, value, dropout=0.3, backend=backend)
    torch.manual_seed(5)
    assert torch.equal(first, attend(query, key, value, dropout=0.3, backend=backend))


def test_blocked_drops_the_same_weights_in_the_backward_pass() -> None:
    inputs = Tensors(*(tensor.requires_grad_() for tensor in make_tensors()))

    def run(value: Tensor) -> Tensor:
        torch.manual_seed(1)
        return attend(inputs.query, inputs.key, value, mask=mask.causal, dropout=0.4, backend="blocked")

    # The output is linear in value: its gradient for value, times value, is the output.
    output = run(inputs.value)
    pull = torch.randn_like(output)
    gradient = torch.autograd.grad(output, inputs.value, pull)[0]
    assert_close((gradient * inputs.value).sum(), (output * pull).sum().detach(), 1e-10)
    # The gradient of the query, by finite differences.
    step = torch.randn_like(inputs.query) * 1e-6

    def attend_shifted(sign: int) -> Tensor:
        torch.manual_seed(1)
        shifted = inputs.query.detach() + sign * step
        return attend(shifted, inputs.key, inputs.value, mask=mask.causal, dropout=0.4, backend="blocked")

    slope = ((attend_shifted(1) - attend_shifted(-1)) * pull).sum() / 2
    gradient = torch.autograd.grad(run(inputs.value), inputs.query, pull)[0]
    assert_close((gradient * step).sum() * 1e6, slope.detach() * 1e6, 1e-4)


@pytest.mark.parametrize("case", ["none", "causal", "padding lengths", "padding table"])
@pytest.mark.parametrize("feature_map", [None, FavorPlus(features=19)], ids=["elu", "favor"])
def test_linear_backend_equals_the_explicit_one(feature_map: FavorPlus | None, case: str) -> None:
    formula = score.Kernel() if feature_map is None else score.Kernel(feature_map)
    inputs = Tensors(*(tensor.requires_grad_() for tensor in make_tensors(queries=5, keys=7)))
    outputs = [
        attend(*inputs, mask=MASKS[case].ours, score=formula, backend=backend) for backend in ("explicit", "linear")
    ]
    assert_close(outputs[1], outputs[0].detach(), 1e-11)
    pull = torch.randn_like(outputs[0])
    exact, linear = (torch.autograd.grad(output, list(inputs), pull) for output in outputs)
    for exact_gradient, linear_gradient in zip(exact, linear, strict=True):
        assert_close(linear_gradient, exact_gradient, 1e-10)


def test_auto_selects_a_backend_that_can_compute_the_request() -> None:
    from jumok.attention.attend import _select_fastest
    from jumok.attention.backends.protocol import AttentionRequest
    from jumok.lens.edits.edit_types import TemperatureScore

    def select(queries: int, **settings: Any) -> str:
        query, key, value = make_tensors(torch.float32, queries=queries, keys=queries, batch=1, heads=1, groups=1)
        plain = {"mask": None, "bias": None, "score": score.ScaledDot(), "dropout": 0.0, "weights": False}
        request = AttentionRequest(
            query,
            key,
            value,
            **{**plain, **settings},
            query_positions=range(queries),
            key_positions=range(queries),
            logsumexp=False,
        )
        return _select_fastest(request)

    assert select(50) == "sdpa"
    assert select(50, weights=True) == "explicit"
    assert select(50, score=score.Kernel()) == "linear"
    assert select(50, score=score.Kernel(), mask=mask.window(3)) == "explicit"
    assert select(50, score=score.Additive(11, 11, 4)) == "explicit"
    assert select(50, score=score.Additive(11, 11, 2**18)) == "blocked"
    assert select(50, score=TemperatureScore(score.Additive(11, 11, 2**18), None, 2.0)) == "blocked"
    assert select(50, score=score.ScaledDot(softcap=3.0)) == "explicit"
    assert select(50, mask=mask.causal & mask.window(3)) == "sdpa"
    assert select(2048, mask=mask.causal) == "sdpa"
    assert select(2048, mask=mask.causal & mask.window(100)) == "blocked"
    assert select(2048, score=score.ScaledDot(softcap=3.0)) == "blocked"
    assert set(BACKENDS) == {"explicit", "sdpa", "blocked", "flex", "linear"}


class TutorialAdditive(torch.nn.Module):
    """Bahdanau's attention as many tutorials write it, with three linear layers and their biases."""

    def __init__(self, query_width: int, key_width: int, hidden: int) -> None:
        super().__init__()
        self.query_layer = torch.nn.Linear(query_width, hidden)
        self.key_layer = torch.nn.Linear(key_width, hidden)
        self.score_layer = torch.nn.Linear(hidden, 1)

    def forward(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.query_layer(query)[:, None] + self.key_layer(keys))
        scores = self.score_layer(hidden).squeeze(-1)
        weights = scores.softmax(-1)
        return (weights[:, None] @ keys).squeeze(1), weights


@pytest.mark.parametrize("backend", ["explicit", "blocked"])
def test_additive_score_with_biases_equals_a_plain_module(backend: str) -> None:
    torch.manual_seed(5)
    batch, keys, query_width, key_width, hidden = 2, 7, 3, 5, 11
    tutorial = TutorialAdditive(query_width, key_width, hidden)
    ours = score.Additive(query_width, key_width, hidden, bias=True)
    layers = {"query": tutorial.query_layer, "key": tutorial.key_layer}
    with torch.no_grad():
        for name, layer in layers.items():
            getattr(ours, f"{name}_matrix").copy_(layer.weight[None])
            getattr(ours, f"{name}_bias").copy_(layer.bias[None])
        ours.vector.copy_(tutorial.score_layer.weight)
        ours.vector_bias.copy_(tutorial.score_layer.bias)
    query, key = torch.randn(batch, query_width), torch.randn(batch, keys, key_width)
    expected, weights = tutorial(query, key)
    output = attend(query[:, None, None], key[:, None], key[:, None], score=ours, backend=backend)
    torch.testing.assert_close(output[:, 0, 0], expected)
    _, ours_weights = attend(query[:, None, None], key[:, None], key[:, None], score=ours, weights=True)
    torch.testing.assert_close(ours_weights[:, 0, 0], weights)

    expected.square().sum().backward()
    output.square().sum().backward()
    for name, layer in layers.items():
        torch.testing.assert_close(getattr(ours, f"{name}_matrix").grad[0], layer.weight.grad)
        torch.testing.assert_close(getattr(ours, f"{name}_bias").grad[0], layer.bias.grad)
    torch.testing.assert_close(ours.vector.grad, tutorial.score_layer.weight.grad)
    assert float(ours.vector_bias.grad.abs().max()) < 1e-6, "the softmax cancels it"


def test_additive_score_has_parameters_of_its_own_for_each_head() -> None:
    torch.manual_seed(6)
    joint = score.Additive(3, 5, 7, heads=2, bias=True)
    with torch.no_grad():
        for parameter in joint.parameters():
            parameter.normal_()
    query, key = torch.randn(2, 2, 11, 3), torch.randn(2, 2, 13, 5)
    for head in range(2):
        single = score.Additive(3, 5, 7, bias=True)
        single.load_state_dict({name: tensor[head : head + 1] for name, tensor in joint.state_dict().items()})
        expected = single.evaluate(query[:, head : head + 1], key[:, head : head + 1])
        torch.testing.assert_close(joint.evaluate(query, key)[:, head : head + 1], expected)
    assert set(score.Additive(3, 5, 7).state_dict()) == {"query_matrix", "key_matrix", "vector"}
