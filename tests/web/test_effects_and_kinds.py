"""Effects and kinds of heads, compared with the functions that the command line calls."""

from __future__ import annotations

import pytest
from page_client import PageClient

import jumok
from jumok.lens import KnockOut, profile_heads
from jumok.lens.effects.metrics import Divergence, LogitDifference, LogProbability, Loss

TEXT = "the cat sat; the cat"


@pytest.fixture(scope="module")
def run(client: PageClient) -> int:
    return client.ask("run", model="tiny", text=TEXT, edits=[{"edit": "Ablate", "layer": 0, "head": 0}])["run"]


def test_effects_of_heads_are_those_of_the_clean_model(client, run) -> None:
    effects = client.ask("effect", run=run, over="heads")
    expected = jumok.effect("tiny", TEXT)
    assert effects["metric"] == "log-probability of token '␣' at position -1"
    assert effects["clean"] == pytest.approx(expected.clean, abs=1e-6)
    assert [(row["site"], row["head"]) for row in effects["rows"]] == [(row.layer, row.head) for row in expected]
    for row, other in zip(effects["rows"], expected, strict=True):
        assert row["effect"] == pytest.approx(other.effect, abs=1e-5) and row["rank"] == other.rank
        assert row["query"] is row["key"] is row["weight"] is row["control_mean"] is None


def test_effects_of_edges_have_controls_of_similar_weight(client, run) -> None:
    client.progress.clear()
    effects = client.ask("effect", run=run, over="edges")
    expected = jumok.effect("tiny", TEXT, over="edges")
    assert len(effects["rows"]) == len(expected)
    for row, other in zip(effects["rows"], expected, strict=True):
        assert (row["site"], row["head"], row["query"], row["key"]) == (
            other.layer,
            other.head,
            other.query,
            other.key,
        )
        assert row["effect"] == pytest.approx(other.effect, abs=1e-5)
        assert row["weight"] == pytest.approx(other.weight, abs=1e-6)
        assert row["control_low"] <= row["control_mean"] <= row["control_high"]
        assert (row["rank"], row["of"]) == (other.rank, other.of)
        larger = sum(abs(effect) >= abs(other.effect) for effect in other.control_effects)
        assert other.rank == larger + 1 and other.of == len(other.control_effects) + 1
    measured = [report for report in client.progress if report["stage"] == "measuring"]
    assert measured and all(report["done"] <= report["total"] for report in measured if report["total"])


@pytest.mark.parametrize(
    ("choice", "by", "metric"),
    [
        ({"name": "kl", "position": 5}, "mean", Divergence(5)),
        ({"name": "loss"}, "zero", Loss(tuple(TEXT.encode()))),
        ({"name": "logit-difference", "token": "␣", "other": ord("t")}, "resample", LogitDifference(" ", "t")),
        ({"name": "log-probability", "token": "s", "position": 7}, "zero", LogProbability("s", 7)),
    ],
)
def test_metric_and_ablation_can_be_chosen(client, run, choice, by, metric) -> None:
    effects = client.ask("effect", run=run, over="heads", by=by, metric=choice)
    expected = jumok.effect("tiny", TEXT, metric=metric, by=by)
    assert effects["by"] == by and effects["metric"] == expected.metric.describe(jumok.load("tiny").tokenizer)
    assert [row["effect"] for row in effects["rows"]] == pytest.approx([row.effect for row in expected], abs=1e-5)


def test_without_a_token_the_most_probable_ones_are_compared(client, run) -> None:
    effects = client.ask("effect", run=run, over="heads", metric={"name": "logit-difference", "position": 3})
    with jumok.Lens("tiny") as lens:
        logits = lens.run(TEXT, logits=True).logits[0, 3]
    right, wrong = logits.topk(2).values.tolist()
    assert effects["clean"] == pytest.approx(right - wrong, abs=1e-4)


def test_heads_are_ranked_by_a_cell_and_by_the_effect_of_cutting_it(client, run) -> None:
    cell = {"site": 1, "query": 19, "key": 7}
    heads = client.ask("cell", run=run, show="clean", **cell)["heads"]
    effects = client.ask("effect", run=run, over="cell", metric={"name": "kl"}, **cell)
    with jumok.Lens("tiny") as lens:
        capture = lens.run(TEXT, logits=True)
        clean = capture.logits[0, -1].log_softmax(-1)
        weights = {(layer, head): float(capture.weights(layer, head)[19, 7]) for layer in (0, 1) for head in (0, 1)}
        assert [(row["site"], row["head"]) for row in heads] == sorted(weights, key=lambda head: -weights[head])
        for row in heads:
            assert row["weight"] == pytest.approx(weights[row["site"], row["head"]], abs=1e-6)
        for row, weight in zip(effects["rows"], heads, strict=True):
            assert (row["site"], row["head"], row["weight"]) == (weight["site"], weight["head"], weight["weight"])
            cut = KnockOut(row["site"], row["head"], 19, 7)
            edited = lens.run(TEXT, edits=[cut], logits=True).logits[0, -1].log_softmax(-1)
            assert row["effect"] == pytest.approx(float((clean.exp() * (clean - edited)).sum()), abs=1e-5)


def test_effects_of_a_translation_measure_its_first_word(client) -> None:
    run = client.ask("run", model="translator", text="나는 매일 학교에 간다", edits=[])
    effects = client.ask("effect", run=run["run"], over="heads")
    assert effects["metric"] == "log-probability of token 'I' at position 0"
    assert len(effects["rows"]) == run["model"]["heads"]
    assert {row["site"] for row in effects["rows"]} == set(range(len(run["sites"])))


def test_kinds_are_those_of_the_profile(client) -> None:
    run = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    heads = client.ask("kinds", run=run)["heads"]
    with jumok.Lens("tiny") as lens:
        capture = lens.run(TEXT)
        expected = profile_heads(lens, capture, lens.tokenizer.encode(TEXT))
    assert [(row["site"], row["head"]) for row in heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for row, profile in zip(heads, expected, strict=True):
        assert row["kind"] == profile.on_text.name and row["kind_on_repeats"] == profile.on_repeats.name
        assert row["entropy"] == pytest.approx(profile.on_text.entropy, abs=1e-5)
        assert row["distance"] == pytest.approx(profile.on_text.distance, abs=1e-5)
    assert heads[2]["kind"] == "induction"


def test_cross_attentions_have_no_kind(client) -> None:
    run = client.ask("run", model="translator", text="나는 매일 학교에 간다", edits=[])
    heads = client.ask("kinds", run=run["run"])["heads"]
    crosses = {index for index, site in enumerate(run["sites"]) if "cross" in site["stack_title"]}
    assert all((row["kind"] == "") == (row["site"] in crosses) for row in heads)
    assert all(row["entropy"] >= 0 for row in heads)
