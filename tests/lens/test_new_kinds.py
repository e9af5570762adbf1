"""A new edit or metric is one class: what it says about itself is enough for runs, generation, JSON and effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from test_lens import build_gpt
from torch import Tensor

import jumok
from jumok.errors import ArgumentError
from jumok.lens import Edit, Lens
from jumok.lens.edits.edit_base import TapCall
from jumok.lens.effects.metrics import Metric, select_position
from jumok.tap import listen

TEXT = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


@pytest.fixture
def multiply(monkeypatch: pytest.MonkeyPatch) -> type[Edit]:
    monkeypatch.setattr(Edit, "kinds", dict(Edit.kinds))

    @dataclass(frozen=True)
    class Multiply(Edit):
        """Multiply the output of heads by a number."""

        tap_word = "output"
        factor: float = 1.0

        @classmethod
        def check_field(cls, name: str, content: object) -> None:
            if name == "factor" and not isinstance(content, int | float):
                raise ArgumentError(f"factor must be a number, not {content!r}")
            super().check_field(name, content)

        def apply(self, value: Tensor, call: TapCall) -> Tensor:
            return call.change_heads(value, lambda output: output * self.factor)

    return Multiply


def test_a_new_edit_equals_a_hook_in_runs_reuse_and_generation(multiply: Any) -> None:
    def triple(site: str, value: Any) -> Any:
        if site != "blocks.1.attention.output":
            return value
        tripled = value.clone()
        tripled[:, [0, 3]] *= 3
        return tripled

    model, edit = build_gpt(), multiply(1, head=(-1, 0), factor=3.0)
    with Lens(model) as lens, torch.no_grad():
        clean = lens.run(TEXT, logits=True, reusable=True)
        edited = lens.run(TEXT, edits=edit, logits=True)
        reused = lens.run(TEXT, edits=edit, logits=True, reuse=clean)
        generation = lens.generate(TEXT, edits=edit, limit=5)
        with listen(triple):
            expected = model(TEXT).logits
            tokens = TEXT
            for _ in generation.token_ids:
                tokens = torch.cat([tokens, model(tokens).logits[:, -1:].argmax(-1)], 1)
    assert not torch.allclose(expected, clean.logits)
    assert torch.equal(edited.logits, expected) and torch.equal(reused.logits, expected)
    assert generation.token_ids == tokens[0, TEXT.shape[1] :].tolist()


def test_a_new_edit_converts_to_json_and_is_refused_with_wrong_fields(multiply: Any) -> None:
    edit = multiply(1, head=2, factor=0.5)
    assert edit.to_json() == {"edit": "Multiply", "layer": 1, "head": 2, "factor": 0.5}
    assert Edit.from_json(edit.to_json()) == edit
    with pytest.raises(ArgumentError, match="factor must be a number, not 'x'"):
        Edit.from_json({"edit": "Multiply", "factor": "x"})
    with Lens(build_gpt()) as lens, pytest.raises(ArgumentError, match="has 4 heads"):
        lens.run(TEXT, edits=multiply(0, head=4))


def test_a_new_metric_is_measured_described_and_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Metric, "kinds", dict(Metric.kinds))

    @dataclass(frozen=True)
    class LargestLogit(Metric):
        """The largest logit at a position."""

        name = "largest-logit"
        position: int = -1

        def __call__(self, logits: Tensor, clean: Tensor) -> Tensor:
            return select_position(logits, self.position).amax(-1)

        def describe(self, tokenizer: Any = None) -> str:
            return f"largest logit at position {self.position}"

    model = build_gpt()
    for over in ("heads", "edges"):
        effects = jumok.effect(model, TEXT, metric=LargestLogit(), over=over, verify=3, controls=2)
        by_function = jumok.effect(model, TEXT, metric=lambda logits: logits[-1].max(), over=over, verify=3, controls=2)
        assert effects.clean == pytest.approx(by_function.clean)
        assert [row.effect for row in effects] == pytest.approx([row.effect for row in by_function], abs=1e-6)
        assert str(effects.metric) == "largest logit at position -1"
        assert effects.to_json()["metric_fields"] == {"metric": "LargestLogit", "position": -1}
