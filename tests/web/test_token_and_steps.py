"""One token in every head, and the computation of one head: compared with formulas in float64."""

from __future__ import annotations

import math

import pytest
import torch

import jumok
from jumok.lens import Scale
from jumok.web.answers import token_weights

TEXT = "the cat sat; the cat"


@pytest.mark.parametrize("full_rows", [True, False])
def test_token_lists_rows_and_columns_of_all_heads(client, monkeypatch, full_rows) -> None:
    monkeypatch.setattr(token_weights, "MAX_FULL_ROWS", 10**9 if full_rows else 0)
    number = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    token = client.ask("token", run=number, show="clean", sequence="source", position=9)
    with jumok.Lens("tiny") as lens:
        capture = lens.run(TEXT)
    heads = [(site, head) for site in range(2) for head in range(2)]
    assert [(row["site"], row["head"]) for row in token["as_query"]] == heads
    assert [(row["site"], row["head"]) for row in token["as_key"]] == heads
    for row in token["as_query"]:
        weights = capture.weights(row["site"], row["head"])[9].double()
        best = weights.topk(5)
        assert [key for key, _ in row["top"]] == best.indices.tolist()
        assert [weight for _, weight in row["top"]] == pytest.approx(best.values.tolist(), abs=1e-6)
        assert row["entropy"] == pytest.approx(-float((weights[:10] * weights[:10].log()).sum()), abs=1e-5)
    for row in token["as_key"]:
        weights = capture.weights(row["site"], row["head"])[:, 9].double()
        best = weights.topk(5)
        assert [weight for _, weight in row["top"]] == pytest.approx(best.values.tolist(), abs=1e-5)
        assert all(query >= 9 for query, _ in row["top"])
        assert row["received"] == pytest.approx(float(weights.sum()), abs=1e-4)


def test_token_of_an_encoder_decoder(client) -> None:
    run = client.ask("run", model="translator", text="나는 매일 학교에 간다", edits=[])
    names = [site["stack_title"] for site in run["sites"]]
    token = client.ask("token", run=run["run"], show="clean", sequence="target", position=2)
    assert {names[row["site"]] for row in token["as_query"]} == {"decoder", "decoder, cross-attention"}
    assert {names[row["site"]] for row in token["as_key"]} == {"decoder"}
    token = client.ask("token", run=run["run"], show="clean", sequence="source", position=6)
    assert {names[row["site"]] for row in token["as_query"]} == {"encoder"}
    assert {names[row["site"]] for row in token["as_key"]} == {"encoder", "decoder, cross-attention"}


def test_steps_repeat_the_computation_of_the_model(client) -> None:
    edits = [Scale(layer=0, head=1, temperature=2.5)]
    number = client.ask("run", model="tiny", text=TEXT, edits=[edit.to_json() for edit in edits])["run"]
    for show, temperature in (("clean", 1.0), ("edited", 2.5)):
        steps = client.ask("steps", run=number, show=show, site=0, head=1, query=12, language="en")
        query = torch.tensor(steps["query"], dtype=torch.float64)
        assert len(query) == steps["width"] == 48
        assert steps["formula_scale"] == "/ sqrt(48)" + (" / 2.5" if show == "edited" else "")
        assert [key["key"] for key in steps["keys"]] == list(range(20)) and steps["hidden"] == 0
        exponentials, output = [], torch.zeros(48, dtype=torch.float64)
        for key in steps["keys"]:
            product = float(query @ torch.tensor(key["k"], dtype=torch.float64))
            assert key["product"] == pytest.approx(product, abs=1e-4)
            assert key["scaled"] == pytest.approx(product / math.sqrt(48) / temperature, abs=1e-5)
            assert key["bias"] is None and key["is_allowed"] == (key["key"] <= 12)
            exponentials.append(math.exp(key["scaled"]) if key["is_allowed"] else 0.0)
        for key, exponential in zip(steps["keys"], exponentials, strict=True):
            weight = exponential / sum(exponentials)
            assert key["weight"] == pytest.approx(weight, abs=1e-6)
            output += weight * torch.tensor(key["v"], dtype=torch.float64)
        assert steps["log_sum_exp"] == pytest.approx(math.log(sum(exponentials)), abs=1e-5)
        torch.testing.assert_close(torch.tensor(steps["output"], dtype=torch.float64), output, atol=1e-5, rtol=0)
        assert 0 < steps["difference"] < 1e-5
        assert all(steps["sentences"].values())


def test_steps_of_an_ablated_head_differ_from_its_output(client) -> None:
    number = client.ask("run", model="tiny", text=TEXT, edits=[{"edit": "Ablate", "layer": 0, "head": 1}])["run"]
    steps = client.ask("steps", run=number, show="edited", site=0, head=1, query=12, language="ko")
    assert steps["difference"] == pytest.approx(max(abs(number) for number in steps["output"]), rel=1e-5)
    assert "쿼리" in steps["sentences"]["query"]


def test_steps_list_the_largest_keys_of_a_long_row(client) -> None:
    number = client.ask("run", model="tiny", text="the cat sat; " * 20, edits=[])["run"]
    steps = client.ask("steps", run=number, show="clean", site=0, head=1, query=200, language="en")
    keys = [key["key"] for key in steps["keys"]]
    assert len(keys) == 64 and keys == sorted(keys) and steps["hidden"] == 260 - 64
    listed = sum(key["weight"] for key in steps["keys"])
    assert steps["hidden_weight"] == pytest.approx(1 - listed, abs=1e-6) and steps["hidden_weight"] > 0
