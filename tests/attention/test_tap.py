"""Taps: the identity without listeners; with one, every value of attend() can be read and replaced."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from jumok import attend
from jumok.attention import bias, mask, score
from jumok.tap import Listener, has_listeners, is_requested, listen, tap


def make_replacer(**replacements: Any) -> Any:
    return lambda site, value: replacements.get(site.removeprefix("layer."), value)


class RecordingListener(Listener):
    """Records the values at the sites with this ending; "" records all."""

    def __init__(self, received: dict[str, Any], ending: str) -> None:
        self.received, self.ending = received, ending

    def accepts(self, site: str) -> bool:
        return site.endswith(self.ending)

    def __call__(self, site: str, value: Any) -> Any:
        return self.received.setdefault(site, value)


@pytest.fixture(name="tensors")
def make_tensors() -> Tensor:
    return torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)


def test_tap_without_listeners_is_the_identity() -> None:
    value = object()
    assert tap("layer", value) is value
    assert not has_listeners() and not is_requested("layer")


def test_listener_receives_every_value_of_attend(tensors: Tensor) -> None:
    received: dict[str, Any] = {}
    with listen(RecordingListener(received, "")):
        output = attend(*tensors, mask=mask.causal, bias=bias.alibi(2), site="layer")
    assert {site.removeprefix("layer.") for site in received} == {
        "query",
        "key",
        "value",
        "mask",
        "bias",
        "score",
        "positions",
        "output",
        "logsumexp",
    }
    assert received["layer.mask"] == mask.causal and isinstance(received["layer.score"], score.ScaledDot)
    assert torch.equal(received["layer.output"], output)
    assert received["layer.positions"] == (range(5), range(5))
    # query, key and the log-sum-exp give the weights
    _, weights = attend(*tensors, mask=mask.causal, bias=bias.alibi(2), weights=True)
    scores = tensors[0] @ tensors[1].mT / 2 + bias.alibi(2).evaluate(make_grid())
    recomputed = torch.exp(scores - received["layer.logsumexp"][..., None]).tril()
    assert torch.allclose(recomputed, weights, atol=1e-12)


def make_grid() -> Any:
    from jumok.attention.grid import Grid

    return Grid(range(1), range(2), range(5), range(5))


def test_attend_without_a_site_is_not_tapped(tensors: Tensor) -> None:
    with listen(lambda site, value: pytest.fail(f"received {site}")):
        attend(*tensors)


def test_listener_receives_accepted_sites_and_requests_optional_values(tensors: Tensor) -> None:
    for named, sites in (("query", ["layer.query"]), ("logsumexp", ["layer.logsumexp"])):
        received: dict[str, Any] = {}
        with listen(RecordingListener(received, named)):
            attend(*tensors, site="layer")
        assert list(received) == sites
    plain: dict[str, Any] = {}
    with listen(lambda site, value: plain.setdefault(site, value)):
        attend(*tensors, site="layer", dropout=0.1, backend="sdpa")  # this backend has no log-sum-exp with dropout
    assert "layer.output" in plain and "layer.logsumexp" not in plain


def test_forbidding_an_edge_renormalises_the_row(tensors: Tensor) -> None:
    cut = mask.causal & ~mask.edge(query=3, key=1, head=0)
    with listen(make_replacer(mask=cut)):
        output, weights = attend(*tensors, mask=mask.causal, weights=True, site="layer")
    _, plain = attend(*tensors, mask=mask.causal, weights=True)
    assert weights[0, 0, 3, 1] == 0 and torch.equal(weights[0, 1], plain[0, 1])
    expected = plain[0, 0, 3].index_fill(0, torch.tensor(1), 0.0)
    assert torch.allclose(weights[0, 0, 3], expected / expected.sum())
    assert torch.allclose(output, weights @ tensors[2])


def test_every_value_can_be_replaced(tensors: Tensor) -> None:
    query, key, value = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)
    sharper = score.ScaledDot(scale=2.0)
    numbers = bias.given(torch.randn(5, 5).double())
    replacer = make_replacer(query=query, key=key, value=value, mask=mask.window(2), bias=numbers, score=sharper)
    with listen(replacer):
        output = attend(*tensors, mask=mask.causal, site="layer")
    assert torch.equal(output, attend(query, key, value, mask=mask.window(2), bias=numbers, score=sharper))
    with listen(make_replacer(output=torch.zeros(1))):
        assert torch.equal(attend(*tensors, site="layer"), torch.zeros(1))


def test_listeners_are_chained_and_closed() -> None:
    with listen(lambda site, value: value + 1), listen(lambda site, value: value * 10):
        assert tap("layer", 1) == 20
    assert tap("layer", 1) == 1
    with pytest.raises(ZeroDivisionError), listen(lambda site, value: value / 0):
        tap("layer", 1)
    assert tap("layer", 1) == 1


def test_listener_receives_values_of_its_own_thread_only() -> None:
    received: list[int] = []
    with listen(lambda site, value: value + 1):
        thread = threading.Thread(target=lambda: received.append(tap("layer", 1)))
        thread.start()
        thread.join()
        received.append(tap("layer", 1))
    assert received == [1, 2]
