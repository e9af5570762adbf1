"""Kinds of heads against TransformerLens, on the same model. It lives in an environment of its own: what it said of
`tiny` lies in references/transformerlens.json, which `make transformerlens` makes anew and compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.lens import classify_heads, score_induction

THEIRS: dict[str, Any] = json.loads((Path(__file__).parent / "references" / "transformerlens.json").read_text())
NAMES = {"previous": "previous_token_head", "duplicate": "duplicate_token_head", "induction": "induction_head"}


@pytest.mark.parametrize("text", THEIRS["texts"], ids=lambda text: bytes(text["tokens"]).decode())
def test_heads_are_detected_as_transformerlens_does(text: dict[str, Any]) -> None:
    with jumok.Lens(jumok.load("tiny")) as lens:
        run = lens.run(text["tokens"], logits=True)
    assert int(run.logits[0, -1].argmax()) == text["likeliest"]
    assert float(run.logits[0, -1].max()) == pytest.approx(text["logit"], abs=1e-4)
    found = classify_heads(run, text["tokens"])
    assert len(found) == 4
    for one in found:
        layer = run.sites.get_layer(one.site)
        wanted = torch.tensor(text["last_rows"][layer][one.head])
        assert torch.allclose(run.row(layer, one.head, len(wanted) - 1), wanted, atol=1e-6)
        for ours, theirs in NAMES.items():
            assert one.shares[ours] == pytest.approx(text["detected"][theirs][layer][one.head], abs=1e-5), ours


def test_the_induction_score_is_theirs() -> None:
    tokens = THEIRS["repeated"]["tokens"]
    with jumok.Lens(jumok.load("tiny")) as lens:
        run = lens.run(tokens)
    for layer, heads in enumerate(THEIRS["repeated"]["scores"]):
        for head, wanted in enumerate(heads):
            assert score_induction(run, layer, head, len(tokens) // 2) == pytest.approx(wanted, abs=1e-5)
    assert max(max(heads) for heads in THEIRS["repeated"]["scores"]) > 0.9, "the head is known"
    with pytest.raises(jumok.ArgumentError, match="do not repeat after 500"):
        score_induction(run, 0, 0, 500)
