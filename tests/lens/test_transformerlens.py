"""Kinds of heads compared with TransformerLens on the same model.

TransformerLens needs its own environment. references/transformerlens.json holds its output for `tiny`;
`make transformerlens` regenerates and compares it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.lens import classify_heads, score_induction

REFERENCE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "references" / "transformerlens.json").read_text())
NAMES = {"previous": "previous_token_head", "duplicate": "duplicate_token_head", "induction": "induction_head"}


@pytest.mark.parametrize("text", REFERENCE["texts"], ids=lambda text: bytes(text["tokens"]).decode())
def test_shares_equal_detect_head_of_transformerlens(text: dict[str, Any]) -> None:
    with jumok.Lens(jumok.load("tiny")) as lens:
        capture = lens.run(text["tokens"], logits=True)
    assert int(capture.logits[0, -1].argmax()) == text["likeliest"]
    assert float(capture.logits[0, -1].max()) == pytest.approx(text["logit"], abs=1e-4)
    kinds = classify_heads(capture, text["tokens"])
    assert len(kinds) == 4
    for kind in kinds:
        layer = capture.sites.get_layer(kind.site)
        expected = torch.tensor(text["last_rows"][layer][kind.head])
        assert torch.allclose(capture.row(layer, kind.head, len(expected) - 1), expected, atol=1e-6)
        for name, reference_name in NAMES.items():
            share = text["detected"][reference_name][layer][kind.head]
            assert kind.shares[name] == pytest.approx(share, abs=1e-5), name


def test_the_induction_score_equals_that_of_transformerlens() -> None:
    tokens = REFERENCE["repeated"]["tokens"]
    with jumok.Lens(jumok.load("tiny")) as lens:
        capture = lens.run(tokens)
    for layer, heads in enumerate(REFERENCE["repeated"]["scores"]):
        for head, expected in enumerate(heads):
            assert score_induction(capture, layer, head, len(tokens) // 2) == pytest.approx(expected, abs=1e-5)
    assert max(max(heads) for heads in REFERENCE["repeated"]["scores"]) > 0.9, "tiny has an induction head"
    with pytest.raises(jumok.ArgumentError, match="are too few to repeat after 500"):
        score_induction(capture, 0, 0, 500)
