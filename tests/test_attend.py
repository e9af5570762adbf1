"""Every backend against plain loops in float64: outputs, weights, log-sum-exp and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import oracle
from cases import BOUNDS, DOT_SCORES, MASKS, SCORES, Tensors, allows, bias_case, close, score_case, tensors
from jumok import attend
from jumok.attention import FavorPlus, mask, score
from jumok.attention.attend import BACKENDS
from jumok.tap import Listener, listen

pytestmark = pytest.mark.usefixtures("tiny_blocks")

# what each backend claims: which scores and which number types (flex has a file of its own)
CLAIMS = [
    (backend, name)
    for backend, names in (("explicit", SCORES), ("blocked", SCORES), ("sdpa", DOT_SCORES))
    for name in names
]


def expected(given: Tensors, case: str, theirs: Any, **settings: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    arrays = (one.detach().double().numpy() for one in given)
    return oracle.attention(*arrays, allowed=allows(MASKS[case]), scores=theirs, **settings)


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize(("backend", "name"), CLAIMS)
def test_outputs_and_gradients_are_those_of_the_loops(backend: str, name: str, case: str) -> None:
    ours, theirs, parameters = score_case(name)
    given = Tensors(*(one.requires_grad_() for one in tensors()))
    output = attend(*given, mask=MASKS[case].ours, score=ours, backend=backend)
    wanted, *_ = expected(given, case, theirs)
    close(output, wanted, BOUNDS[torch.float64])

    pull = torch.randn(output.shape, dtype=torch.float64)
    output.backward(pull)
    arrays = (one.detach().numpy() for one in given)
    gradients = oracle.gradients(*arrays, pull.numpy(), allowed=allows(MASKS[case]), scores=theirs)
    for tensor, axis in zip(given, ("query", "key", "value"), strict=True):
        assert tensor.grad is not None
        close(tensor.grad, gradients[axis], BOUNDS[torch.float64])
    for part, parameter in parameters.items():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        close(grad, gradients["parameters"][part], BOUNDS[torch.float64])


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("name", SCORES)
def test_weights_are_those_of_the_loops_and_rows_sum_to_one_or_zero(name: str, case: str) -> None:
    ours, theirs, _ = score_case(name)
    given = tensors()
    _, weights = attend(*given, mask=MASKS[case].ours, score=ours, weights=True)
    close(weights, expected(given, case, theirs)[1], BOUNDS[torch.float64])
    allowed = np.ones(weights.shape, bool)
    if MASKS[case].theirs is not None:
        allowed = oracle.mask_dense(MASKS[case].theirs, *weights.shape[:2], range(5), range(7))
    assert (weights[torch.as_tensor(~allowed)] == 0).all()  # exactly
    close(weights.sum(-1), allowed.any(-1).astype(float), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", ["none", "causal", "longformer", "empty rows", "padding table"])
@pytest.mark.parametrize(("backend", "name"), CLAIMS)
def test_other_number_types_stay_within_their_bound(backend: str, name: str, case: str, dtype: torch.dtype) -> None:
    ours, theirs, _ = score_case(name, torch.float32 if dtype.itemsize < 4 else dtype)
    given = tensors(dtype)
    output = attend(*given, mask=MASKS[case].ours, score=ours, backend=backend)
    assert output.dtype == dtype
    close(output, expected(given, case, theirs)[0], BOUNDS[dtype])


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("name", ["given", "alibi + given"])
@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_biases_and_their_gradients(backend: str, name: str, case: str) -> None:
    numbers, theirs, table = bias_case(name)
    assert table is not None
    given = tensors()
    output = attend(*given, mask=MASKS[case].ours, bias=numbers, backend=backend)
    wanted, *_ = expected(given, case, oracle.ScaledDot(), bias=theirs)
    close(output, wanted, BOUNDS[torch.float64])
    pull = torch.randn(output.shape, dtype=torch.float64)
    output.backward(pull)
    cells = oracle.gradients(
        *(one.numpy() for one in given),
        pull.numpy(),
        allowed=allows(MASKS[case]),
        scores=oracle.ScaledDot(),
        bias=theirs,
    )["bias"]
    assert table.grad is not None
    summed = cells.sum(0, keepdims=True) if table.dim() == 4 else cells.sum((0, 1))
    close(table.grad, summed, BOUNDS[torch.float64])


@pytest.mark.parametrize("case", ["none", "causal", "empty rows", "longformer"])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("backend", ["explicit", "blocked"])
def test_softcap_and_sink(backend: str, sunk: bool, softcap: float | None, case: str) -> None:
    sink = torch.randn(6, dtype=torch.float64).requires_grad_() if sunk else None
    numbers = None if sink is None else sink.tolist()
    given = Tensors(*(one.requires_grad_() for one in tensors()))
    output = attend(*given, mask=MASKS[case].ours, score=score.ScaledDot(softcap=softcap, sink=sink), backend=backend)
    close(output, expected(given, case, oracle.ScaledDot(), softcap=softcap, sink=numbers)[0], 1e-12)
    pull = torch.randn(output.shape, dtype=torch.float64)
    output.backward(pull)
    gradients = oracle.gradients(
        *(one.detach().numpy() for one in given),
        pull.numpy(),
        allowed=allows(MASKS[case]),
        scores=oracle.ScaledDot(),
        softcap=softcap,
        sink=numbers,
    )
    for tensor, axis in zip(given, ("query", "key", "value"), strict=True):
        close(tensor.grad, gradients[axis], 1e-12)
    if sink is not None:
        close(sink.grad, gradients["sink"], 1e-12)


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("backend", ["explicit", "blocked", "sdpa"])
def test_the_row_log_sum_exp_that_a_listener_hears(backend: str, case: str) -> None:
    heard: dict[str, Tensor] = {}

    class LogSumExpListener(Listener):
        def accepts(self, site: str) -> bool:
            return site == "here.logsumexp"

        def __call__(self, site: str, value: Any) -> Any:
            heard[site] = value
            return value

    given = tensors(value_width=11)
    with listen(LogSumExpListener()):
        output = attend(*given, mask=MASKS[case].ours, backend=backend, site="here")
    outputs, _, wanted = expected(given, case, oracle.ScaledDot())
    close(output, outputs, 1e-12)
    found, seen = heard["here.logsumexp"], np.isfinite(wanted)
    if backend != "sdpa":  # the kernel writes what it likes for rows that attend to nothing
        assert torch.equal(torch.isneginf(found), torch.as_tensor(~seen))
    close(found[torch.as_tensor(seen)], wanted[seen], 1e-12)


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
@pytest.mark.parametrize("name", DOT_SCORES[:1])
def test_twenty_five_queries_against_twenty_keys(backend: str, name: str) -> None:
    # M7: the document's code reshapes the keys by the target's length, and fails
    given = tensors(queries=25, keys=20)
    output = attend(*given, backend=backend)
    close(output, expected(given, "none", oracle.ScaledDot())[0], 1e-12)


@pytest.mark.parametrize("backend", ["explicit", "blocked"])
@pytest.mark.parametrize("name", ["scaled_dot", "additive"])
@pytest.mark.parametrize("case", ["padding lengths", "padding table", "causal", "swin"])
def test_not_a_number_in_a_forbidden_key_stays_there(backend: str, name: str, case: str) -> None:
    ours, _, _ = score_case(name)
    given = Tensors(*(one.requires_grad_() for one in tensors()))
    allowed = torch.as_tensor(oracle.mask_dense(MASKS[case].theirs, 2, 6, range(5), range(7)))
    unread = ~allowed.any(2).view(2, 3, 2, 7).any(2)  # [batch, group, key]: masked for every query
    assert unread.any()
    key, value = (torch.where(unread[..., None], float("nan"), one) for one in given[1:])
    output = attend(given.query, key, value, mask=MASKS[case].ours, score=ours, backend=backend)
    close(output, attend(*given, mask=MASKS[case].ours, score=ours, backend="explicit"), 1e-12)
    output.sum().backward()
    for one in given:
        assert torch.isfinite(one.grad).all()


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_no_keys_at_all_gives_zeros(backend: str) -> None:
    output = attend(*tensors(keys=0), backend=backend)
    assert output.shape == (2, 6, 5, 13)
    assert not output.any()


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_no_queries_gives_nothing(backend: str) -> None:
    assert attend(*tensors(queries=0), backend=backend).shape == (2, 6, 0, 13)


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
@pytest.mark.parametrize("case", ["causal", "causal window", "bigbird", "blocks", "documents"])
def test_positions_may_stand_anywhere(backend: str, case: str) -> None:
    """A part of the rows at their real positions gives a part of the whole: what a cache relies on."""
    given = tensors(queries=7)
    whole = attend(*given, mask=MASKS[case].ours, backend="explicit")
    for positions in (range(3, 7), torch.tensor([6, 0, 3]), torch.tensor([[6, 0, 3], [1, 5, 2]])):
        rows = positions if isinstance(positions, Tensor) else torch.arange(3, 7)
        rows = rows.expand(2, -1)[:, None, :, None].expand(-1, 6, -1, 13)
        query = given.query.gather(2, rows[..., :11])
        part = attend(query, *given[1:], mask=MASKS[case].ours, query_positions=positions, backend=backend)
        close(part, whole.gather(2, rows), 1e-12)


def test_keys_may_stand_in_any_order() -> None:
    given, order = tensors(), torch.tensor([3, 6, 0, 5, 1, 4, 2])
    whole = attend(*given, mask=mask.causal, backend="explicit")
    for backend in ("explicit", "sdpa", "blocked"):
        key, value = given.key[:, :, order], given.value[:, :, order]
        mixed = attend(given.query, key, value, mask=mask.causal, key_positions=order, backend=backend)
        close(mixed, whole, 1e-12)


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_dropout_keeps_the_mean_and_never_touches_the_weights(backend: str) -> None:
    query, key, value = tensors(torch.float32, queries=3, keys=500)
    ones = torch.ones_like(value)
    if backend == "explicit":
        _, weights = attend(query, key, ones, dropout=0.5, weights=True)
        close(weights.sum(-1), torch.ones(2, 6, 3), 1e-5)
    output = attend(query, key, ones, dropout=0.5, backend=backend)
    assert 0.5 < output.min() < output.mean() < output.max() < 1.8
    assert abs(output.mean() - 1) < 0.1
    assert output.std() > 0.01  # something was dropped
    torch.manual_seed(5)
    one = attend(query, key, value, dropout=0.3, backend=backend)
    torch.manual_seed(5)
    assert torch.equal(one, attend(query, key, value, dropout=0.3, backend=backend))


def test_dropout_of_the_blocked_backend_drops_the_same_in_the_backward_pass() -> None:
    given = Tensors(*(one.requires_grad_() for one in tensors()))

    def run(value: Tensor) -> Tensor:
        torch.manual_seed(1)
        return attend(given.query, given.key, value, mask=mask.causal, dropout=0.4, backend="blocked")

    # output is linear in value: its gradient for value, applied to value, is the output itself
    output = run(given.value)
    pull = torch.randn_like(output)
    gradient = torch.autograd.grad(output, given.value, pull)[0]
    close((gradient * given.value).sum(), (output * pull).sum().detach(), 1e-10)
    # and for the query, by differences
    step = torch.randn_like(given.query) * 1e-6

    def at(sign: int) -> Tensor:
        torch.manual_seed(1)
        shifted = given.query.detach() + sign * step
        return attend(shifted, given.key, given.value, mask=mask.causal, dropout=0.4, backend="blocked")

    slope = ((at(1) - at(-1)) * pull).sum() / 2
    gradient = torch.autograd.grad(run(given.value), given.query, pull)[0]
    close((gradient * step).sum() * 1e6, slope.detach() * 1e6, 1e-4)


@pytest.mark.parametrize("case", ["none", "causal", "padding lengths", "padding table"])
@pytest.mark.parametrize("feature_map", [None, FavorPlus(features=19)], ids=["elu", "favor"])
def test_linear_attention_is_its_explicit_form(feature_map: FavorPlus | None, case: str) -> None:
    formula = score.Kernel() if feature_map is None else score.Kernel(feature_map)
    given = Tensors(*(one.requires_grad_() for one in tensors(queries=5, keys=7)))
    outputs = [attend(*given, mask=MASKS[case].ours, score=formula, backend=one) for one in ("explicit", "linear")]
    close(outputs[1], outputs[0].detach(), 1e-11)
    pull = torch.randn_like(outputs[0])
    exact, linear = (torch.autograd.grad(one, list(given), pull) for one in outputs)
    for one, other in zip(exact, linear, strict=True):
        close(other, one, 1e-10)


def test_auto_picks_a_backend_that_can() -> None:
    from jumok.attention.attend import _select_fastest
    from jumok.attention.backends.protocol import AttentionRequest

    def picked(queries: int, **settings: Any) -> str:
        query, key, value = tensors(torch.float32, queries=queries, keys=queries, batch=1, heads=1, groups=1)
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

    assert picked(50) == "sdpa"
    assert picked(50, weights=True) == "explicit"
    assert picked(50, score=score.Kernel()) == "linear"
    assert picked(50, score=score.Kernel(), mask=mask.window(3)) == "explicit"
    assert picked(50, score=score.Additive(11, 11, 4)) == "explicit"
    assert picked(50, score=score.ScaledDot(softcap=3.0)) == "explicit"
    assert picked(50, mask=mask.causal & mask.window(3)) == "sdpa"
    assert picked(2048, mask=mask.causal) == "sdpa"
    assert picked(2048, mask=mask.causal & mask.window(100)) == "blocked"
    assert picked(2048, score=score.ScaledDot(softcap=3.0)) == "blocked"
    assert set(BACKENDS) == {"explicit", "sdpa", "blocked", "flex", "linear"}
