"""What users do with effects: iterate, tabulate, draw, and measure them by any function."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import jumok
from jumok.errors import ArgumentError, CheckpointError
from jumok.lens import Effect, Effects, KnockOut
from jumok.lens.effects.metrics import Divergence, LogProbability
from jumok.models.bert import BERT, BERTConfig
from jumok.models.classifier import Classifier, ClassifierConfig

TEXT = "the cat sat; the cat"


@pytest.fixture(scope="module")
def heads() -> Effects:
    return jumok.effect("tiny", TEXT)


@pytest.fixture(scope="module")
def edges() -> Effects:
    return jumok.effect("tiny", TEXT, over="edges", verify=None)


def test_a_model_may_be_given_by_its_name_or_folder(heads: Effects, tmp_path: Path) -> None:
    tiny = jumok.load("tiny")
    jumok.save(tiny.model, tmp_path / "copy", tokenizer=tiny.tokenizer)
    for model in (tiny, str(tmp_path / "copy"), tmp_path / "copy"):
        effects = jumok.effect(model, TEXT)
        assert effects.rows == heads.rows and effects.model == ("GPT" if model is tiny else str(tmp_path / "copy"))
        with jumok.Lens(model) as lens:
            assert lens.run("ab").labels == ["a", "b"]
    with pytest.raises(CheckpointError, match=r"there is no folder or \.gguf file 'no-such-model'"):
        jumok.Lens("no-such-model")


def test_weights_of_a_layer_are_those_of_its_heads_and_negative_indices_count_from_the_end() -> None:
    with jumok.Lens("tiny") as lens:
        capture = lens.run("the cat")
    every = capture.weights(1)
    assert every.shape == (2, 7, 7)
    for head in (0, 1):
        assert torch.equal(every[head], capture.weights(1, head))
    assert torch.equal(capture.weights(-1, -2), capture.weights(1, 0))
    assert torch.equal(capture.row(-2, -1, -1), capture.row(0, 1, 6))
    assert torch.equal(capture.tile(0, -1, slice(2, 4), slice(1, 3)), capture.weights(0, 1)[2:4, 1:3])
    assert torch.equal(capture.overview(-1, -1, 3).largest, capture.overview(1, 1, 3).largest)
    assert capture.top(-1, layer=-1) == capture.top(6, layer=1)
    assert torch.equal(capture.mean_weights(-1), every.mean(0))


def test_effects_are_a_sequence(heads: Effects) -> None:
    assert len(heads) == 4 and list(heads) == list(heads.rows)
    assert heads[0] is heads.rows[0] and heads[-1] is heads.rows[-1] and heads[1:3] == heads.rows[1:3]
    assert heads.get(-1, 0) is heads.get(1, 0) is heads.get("blocks.1.attention", 0)
    assert heads.get(0, -1) is heads.get(0, 1) and heads.get(-1, -2) is heads.get(1, 0)
    with pytest.raises(ArgumentError, match=r"has 2 heads, counted from 0 .*; -3 is not one of them"):
        heads.get(0, -3)
    with pytest.raises(ArgumentError, match="there are 2 layers"):
        heads.get(7, 0)


def test_effects_become_a_dataframe(heads: Effects, edges: Effects) -> None:
    pytest.importorskip("pandas")
    table = heads.to_dataframe()
    assert list(table["effect"]) == [row.effect for row in heads]
    assert {"layer", "head", "effect", "rank", "of"} <= set(table.columns) and "query" not in table.columns
    largest = edges.to_dataframe().query("head == 0 and layer == 1").iloc[0]
    assert (largest["query"], largest["key"], largest["row_edges"]) == (19, 7, 20)


def test_a_missing_pandas_is_one_sentence(heads: Effects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ArgumentError, match="needs pandas, which is not installed; run: pip install pandas"):
        heads.to_dataframe()


def test_effects_of_heads_are_drawn_as_layers_by_heads(heads: Effects, edges: Effects, tmp_path: Path) -> None:
    text = heads.plot().save(tmp_path / "effects.svg").read_text(encoding="utf-8")
    shown = re.findall("<!-- (.*?) -->", text)
    values = [f"{heads.get(layer, head).effect:+.2f}".replace("+0.00", "0.00") for layer in (0, 1) for head in (0, 1)]
    assert [label for label in shown if re.fullmatch(r"[+-]?\d\.\d\d", label)] == values
    assert {"layer", "head", "effect"} <= set(shown)
    assert heads.plot()._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(ArgumentError, match='measure them with over="heads"'):
        edges.plot()


def test_effects_of_an_encoder_decoder_have_a_row_for_each_attention(tmp_path: Path) -> None:
    from test_sides import build_transformer

    effects = jumok.effect(build_transformer(), [0, 1, 2], [3, 4], layers=["decoder.0.cross", "encoder.1"])
    shown = effects.plot().save(tmp_path / "effects.svg").read_text(encoding="utf-8")
    rows = [label for label in re.findall("<!-- (.*?) -->", shown) if "coder" in label]
    assert rows == ["encoder.1.attention", "decoder.0.cross"], "in the order of the model"


# Functions as metrics


def measure_space(logits: Tensor) -> Tensor:
    """The log-probability of a space after the text."""
    return logits[-1].log_softmax(-1)[ord(" ")]


@pytest.mark.parametrize("over", ["heads", "edges"])
def test_a_function_measures_like_the_metric_that_it_computes(over: str) -> None:
    expected = jumok.effect("tiny", TEXT, metric=LogProbability(" "), over=over, verify=4, controls=3)
    measured = jumok.effect("tiny", TEXT, metric=measure_space, over=over, verify=4, controls=3)
    assert str(measured.metric) == "metric measure_space" and measured.clean == pytest.approx(expected.clean, abs=1e-5)
    for row, other in zip(measured, expected, strict=True):
        assert (row.layer, row.head, row.query, row.key) == (other.layer, other.head, other.query, other.key)
        assert row.effect == pytest.approx(other.effect, abs=1e-5)


def test_a_function_receives_the_output_of_one_text() -> None:
    shapes: list[tuple[int, ...]] = []

    def record_shape(output: Tensor) -> float:
        shapes.append(tuple(output.shape))
        return float(output.sum())

    jumok.effect("tiny", "the cat", metric=record_shape)
    assert set(shapes) == {(7, 256)}, "logits [position, token]"
    shapes.clear()
    small: dict[str, Any] = {"vocabulary": 20, "length": 8, "width": 8, "layers": 1, "heads": 2, "hidden": 8}
    jumok.effect(BERT(BERTConfig(**small)).eval(), [1, 2, 3], metric=record_shape)
    assert set(shapes) == {(3, 8)}, "vectors [position, width]"
    shapes.clear()
    classifier = Classifier(ClassifierConfig.from_json({"classes": 3, "encoder": {"family": "bert", **small}})).eval()
    jumok.effect(classifier, [1, 2, 3], metric=record_shape)
    assert set(shapes) == {(3,)}, "logits [class]"


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda logits: logits[-1], r"must return one number for a text, not a tensor \[256\]"),
        (lambda logits: None, "must return one number for a text, not a NoneType"),
        (lambda logits: "much", "must return one number for a text, not a str"),
        (lambda logits: logits.sum() * float("nan"), "must return a finite number, not nan"),
        (lambda logits: float("inf"), "must return a finite number, not inf"),
        (lambda logits: 1j, "must return one number for a text, not a complex"),
    ],
)
def test_a_function_must_return_one_finite_number(metric: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"metric <lambda> {message}"):
        jumok.effect("tiny", "the cat", metric=metric)


def test_edges_need_a_function_with_a_gradient() -> None:
    assert len(jumok.effect("tiny", "the cat", metric=lambda logits: logits.max().item())) == 4
    with pytest.raises(ArgumentError, match="metric <lambda> has no gradient"):
        jumok.effect("tiny", "the cat", metric=lambda logits: logits.max().item(), over="edges")


# Weights without effects


def test_edges_without_an_effect_are_not_alone_in_their_row_and_near_zero(edges: Effects) -> None:
    with jumok.Lens("tiny") as lens:
        capture = lens.run(TEXT)
    for edge in edges:
        assert edge.row_edges == int((capture.row(edge.layer, edge.head, edge.query or 0) > 0).sum())
    largest = max(abs(edge.effect) for edge in edges)
    useless = edges.weight_and_effect.looked_at_but_useless
    assert useless and all(edge.query != 0 for edge in useless), "the first token can only attend to itself"
    assert all(abs(edge.effect) <= 0.01 * largest for edge in useless)
    candidates = [edge for edge in edges if abs(edge.effect) <= 0.01 * largest and edge.query != 0]
    assert useless[0].weight == max(edge.weight or 0.0 for edge in candidates)


def test_the_limits_of_no_effect() -> None:
    def make(effect: float, weight: float, row_edges: int) -> Effect:
        return Effect(
            0, 0, effect, KnockOut(0, 0, 1, 0), query=1, key=0, weight=weight, estimate=effect, row_edges=row_edges
        )

    rows = (make(-2.0, 0.9, 3), make(0.1, 0.8, 3), make(0.02, 0.7, 3), make(0.0, 1.0, 1), make(0.5, 0.01, 3))
    relation = Effects("edges", Divergence(), 0.0, rows, sites=("blocks.0.attention",)).weight_and_effect
    assert relation.looked_at_but_useless == (rows[2],), "0.1 is 5% of the largest effect, and 1.0 is alone in its row"
    assert relation.useful_but_little_looked_at == (rows[4],)
