"""Taps: the identity when nobody listens; with a listener every value at the door can be read and replaced."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from jumok import attend
from jumok.attention import bias, mask, score
from jumok.tap import Listener, has_listeners, is_requested, listen, tap


def replaced(**replacements: Any) -> Any:
    return lambda site, value: replacements.get(site.removeprefix("here."), value)


class Hearing(Listener):
    """Hears the sites that end in a word; "" ends every one."""

    def __init__(self, found: dict[str, Any], ending: str) -> None:
        self.found, self.ending = found, ending

    def accepts(self, site: str) -> bool:
        return site.endswith(self.ending)

    def __call__(self, site: str, value: Any) -> Any:
        return self.found.setdefault(site, value)


@pytest.fixture
def given() -> Tensor:
    return torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)


def test_nobody_listens() -> None:
    value = object()
    assert tap("anywhere", value) is value
    assert not has_listeners() and not is_requested("anywhere")


def test_everything_at_the_door_is_heard(given: Tensor) -> None:
    found: dict[str, Any] = {}
    with listen(Hearing(found, "")):
        output = attend(*given, mask=mask.causal, bias=bias.alibi(2), site="here")
    assert {site.removeprefix("here.") for site in found} == {
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
    assert found["here.mask"] == mask.causal and isinstance(found["here.score"], score.ScaledDot)
    assert torch.equal(found["here.output"], output)
    assert found["here.positions"] == (range(5), range(5))
    # with query, key and the log-sum-exp any weight is found again
    _, weights = attend(*given, mask=mask.causal, bias=bias.alibi(2), weights=True)
    scores = given[0] @ given[1].mT / 2 + bias.alibi(2).evaluate(mask_grid())
    again = torch.exp(scores - found["here.logsumexp"][..., None]).tril()
    assert torch.allclose(again, weights, atol=1e-12)


def mask_grid() -> Any:
    from jumok.attention.grid import Grid

    return Grid(range(1), range(2), range(5), range(5))


def test_no_site_no_tap(given: Tensor) -> None:
    with listen(lambda site, value: pytest.fail(f"heard {site}")):
        attend(*given)


def test_a_listener_hears_what_it_names_and_only_then_is_more_computed(given: Tensor) -> None:
    for named, sites in (("query", ["here.query"]), ("logsumexp", ["here.logsumexp"])):
        found: dict[str, Any] = {}
        with listen(Hearing(found, named)):
            attend(*given, site="here")
        assert list(found) == sites
    plain: dict[str, Any] = {}
    with listen(lambda site, value: plain.setdefault(site, value)):
        attend(*given, site="here", dropout=0.1, backend="sdpa")  # the log-sum-exp could not be had here
    assert "here.output" in plain and "here.logsumexp" not in plain


def test_cutting_an_edge_renormalises_the_row(given: Tensor) -> None:
    cut = mask.causal & ~mask.edge(query=3, key=1, head=0)
    with listen(replaced(mask=cut)):
        output, weights = attend(*given, mask=mask.causal, weights=True, site="here")
    _, plain = attend(*given, mask=mask.causal, weights=True)
    assert weights[0, 0, 3, 1] == 0 and torch.equal(weights[0, 1], plain[0, 1])
    wanted = plain[0, 0, 3].index_fill(0, torch.tensor(1), 0.0)
    assert torch.allclose(weights[0, 0, 3], wanted / wanted.sum())
    assert torch.allclose(output, weights @ given[2])


def test_every_value_can_be_replaced(given: Tensor) -> None:
    query, key, value = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)
    sharper = score.ScaledDot(scale=2.0)
    numbers = bias.given(torch.randn(5, 5).double())
    swapped = replaced(query=query, key=key, value=value, mask=mask.window(2), bias=numbers, score=sharper)
    with listen(swapped):
        found = attend(*given, mask=mask.causal, site="here")
    assert torch.equal(found, attend(query, key, value, mask=mask.window(2), bias=numbers, score=sharper))
    with listen(replaced(output=torch.zeros(1))):
        assert torch.equal(attend(*given, site="here"), torch.zeros(1))


def test_later_listeners_see_what_earlier_ones_left_and_all_is_closed_after() -> None:
    with listen(lambda site, value: value + 1), listen(lambda site, value: value * 10):
        assert tap("here", 1) == 20
    assert tap("here", 1) == 1
    with pytest.raises(ZeroDivisionError), listen(lambda site, value: value / 0):
        tap("here", 1)
    assert tap("here", 1) == 1


def test_a_listener_hears_its_own_thread_alone() -> None:
    found: list[int] = []
    with listen(lambda site, value: value + 1):
        thread = threading.Thread(target=lambda: found.append(tap("here", 1)))
        thread.start()
        thread.join()
        found.append(tap("here", 1))
    assert found == [1, 2]
