"""Long texts: kinds by a sample of the queries, and passes that keep fewer vectors."""

from __future__ import annotations

import pytest
import torch
from page_client import PageClient

import jumok
from jumok.lens import Ablate
from jumok.lens.describe.head_kinds import classify_heads, sample_queries
from jumok.models import GPT
from jumok.models.gpt import GPTConfig
from jumok.web import opened_model
from jumok.web.answers import head_measures

TEXT = "the cat sat; the cat sat on the mat; the dog sat on the cat " * 4


def test_kinds_of_a_sample_are_those_of_all_queries(client: PageClient, monkeypatch: pytest.MonkeyPatch) -> None:
    run = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    complete = client.ask("kinds", run=run)
    monkeypatch.setattr(head_measures, "MAX_COMPLETE_QUERIES", 100)
    monkeypatch.setattr(head_measures, "SAMPLED_QUERIES", 90)
    sampled = client.ask("kinds", run=run)
    assert complete["sampled"] is None and sampled["sampled"] == 90
    assert [head["kind"] for head in sampled["heads"]] == [head["kind"] for head in complete["heads"]]
    for head, other in zip(sampled["heads"], complete["heads"], strict=True):
        assert head["entropy"] != other["entropy"] and head["entropy"] == pytest.approx(other["entropy"], rel=0.2)


def test_all_queries_as_a_sample_have_the_same_scores() -> None:
    with jumok.Lens("tiny") as lens:
        capture = lens.run(TEXT)
        tokens = lens.tokenizer.encode(TEXT)
    complete, sampled = (
        classify_heads(capture, tokens, queries=queries) for queries in (None, sample_queries(len(tokens), len(tokens)))
    )
    for head, other in zip(sampled, complete, strict=True):
        assert head.scores == pytest.approx(other.scores, abs=1e-6)
        assert head.scores_without_first == pytest.approx(other.scores_without_first, abs=1e-6)


def test_a_run_that_keeps_some_blocks_is_reused_exactly() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=50, length=32, width=24, layers=7, heads=3))
    tokens = torch.randint(50, (1, 20))
    with jumok.Lens(model) as lens:
        clean = lens.run(tokens, reusable=3)
        assert clean.reusable is not None
        stored = [name for name, output in clean.reusable.restart.outputs.items() if output is not None]
        assert stored == ["blocks.2", "blocks.5", "blocks.6"]
        for layer, skipped in ((2, 0), (4, 3), (6, 6)):
            edit = Ablate(layer=layer, head=1)
            assert len(clean.reusable.restart.list_blocks_before([f"blocks.{layer}"])) == skipped
            reused = lens.run(tokens, edits=edit, logits=True, reuse=clean)
            assert torch.equal(reused.logits, lens.run(tokens, edits=edit, logits=True).logits)


def test_a_long_run_keeps_fewer_vectors(client: PageClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_model, "MAX_STREAM_POSITIONS", 100)
    text = TEXT + "the end"
    run = client.ask("run", model="tiny", text=text, edits=[{"edit": "Ablate", "layer": 1, "head": 0}])["run"]
    steps = client.ask("steps", run=run, show="clean", site=1, head=0, query=150)
    assert steps["difference"] is None and len(steps["output"]) == steps["width"]
