"""The experiment ``parts``: what is removed and what is not, the task, and what is said of the results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from jumok.errors import ArgumentError
from jumok.lab.experiments.head_count import LENGTH, TaskQuality
from jumok.lab.experiments.parts import (
    KINDS,
    PARTS,
    PartRow,
    build_model,
    create_pair_rows,
    describe_parts,
    measure_first_gradient,
    measure_parts,
    measure_similarity,
)
from jumok.lab.experiments.setups.toy_training import IGNORED


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return create_pair_rows(0)[1][:3, :LENGTH]


def test_models_without_attention_or_positions_do_not_know_other_tokens_or_their_order(tokens: torch.Tensor) -> None:
    changed = tokens.clone()
    changed[:, 0] = (changed[:, 0] + 1) % KINDS
    swapped = tokens.clone()
    swapped[:, [0, 1]] = tokens[:, [1, 0]]
    for part in PARTS:
        model = build_model(part, 1, seed=0).double().eval()  # untrained effects are small
        with torch.no_grad():
            last, other, reordered = (model(rows).logits[:, -1] for rows in (tokens, changed, swapped))
        assert torch.equal(last, other) == (part == "attention"), part
        assert torch.allclose(last, reordered, rtol=0, atol=1e-14) == (part in ("attention", "positions")), part


def test_only_the_named_part_is_removed(tokens: torch.Tensor) -> None:
    complete = dict(build_model("none", 2, seed=3).named_parameters())
    removed = {
        "attention": ".attention.",
        "positions": "positions.",
        "feedforward": ".feedforward.",
        "norm": "norm.",
        "heads": "none",
        "residual": "none",
    }
    for part, name in removed.items():
        left = {key.replace(".block.", "."): tensor for key, tensor in build_model(part, 2, seed=3).named_parameters()}
        assert set(left) == {key for key in complete if name not in key}, part
        assert all(torch.equal(tensor, complete[key]) for key, tensor in left.items()), part


def test_a_block_without_residual_is_its_layers_one_after_the_other(tokens: torch.Tensor) -> None:
    complete, plain = (build_model(part, 1, seed=1).eval() for part in ("none", "residual"))
    mixtures: list[torch.Tensor] = []
    block = complete.blocks[0]
    block.attention.register_forward_hook(lambda module, inputs, output: mixtures.append(output))
    with torch.no_grad():
        complete(tokens)
        expected = block.feedforward(block.feedforward_norm(mixtures[0]))
        assert torch.allclose(plain(tokens).hidden, plain.norm(expected), atol=1e-6)


def test_gradients_vanish_in_deep_models_without_norm_and_residual() -> None:
    train, _ = create_pair_rows(0)
    shallow, deep, complete = (
        measure_first_gradient(build_model(part, layers, seed=0), train)
        for part, layers in (("norm_and_residual", 1), ("norm_and_residual", 6), ("none", 6))
    )
    assert deep < 1e-6 * shallow and complete > 0.01


def test_tokens_become_alike_in_deep_models_without_residual() -> None:
    train, _ = create_pair_rows(0)
    shallow, deep, complete = (
        measure_similarity(build_model(part, layers, seed=0), train)
        for part, layers in (("residual", 1), ("residual", 6), ("none", 6))
    )
    assert shallow < 0.9 and deep > 0.99 and complete < 0.3
    assert measure_similarity(build_model("norm_and_residual", 6, seed=0), train) > 0.9  # not 0, though very small


def test_labels_are_the_entries_of_one_table_and_every_digit_is_equally_frequent() -> None:
    train, held_out = create_pair_rows(5)
    entries: dict[tuple[int, int], int] = {}
    for row in [*train[:200].tolist(), *held_out[:50].tolist()]:
        digits, labels = row[:LENGTH], row[LENGTH:]
        assert labels[:2] == [IGNORED, IGNORED]
        for position in range(2, LENGTH):
            pair = (digits[position - 2], digits[position - 1])
            assert entries.setdefault(pair, labels[position]) == labels[position]
    assert len(entries) == KINDS**2
    assert sorted(entries.values()) == sorted(list(range(KINDS)) * KINDS)


@pytest.mark.slow
def test_a_model_learns_the_task_and_not_without_attention(tmp_path: Path) -> None:
    outcome = measure_parts((1,), parts=("none", "attention"))
    complete, blind = outcome.numbers["rows"]
    assert complete.quality.share > 0.9 and blind.quality.share < 0.25
    assert outcome.save_picture(tmp_path / "parts.png", "ko").exists()


def test_the_same_seed_gives_the_same_numbers_and_bad_settings_are_refused() -> None:
    first, again, other = (measure_parts((1,), steps=2, parts=("none",), seed=seed) for seed in (0, 0, 1))
    assert first.numbers == again.numbers and first.numbers["rows"] != other.numbers["rows"]
    with pytest.raises(ArgumentError, match="parts 'none' and others"):
        measure_parts((1,), parts=("attention",))


def test_parts_that_are_not_needed_and_unclear_differences_are_reported() -> None:
    complete = PartRow("none", 6, TaskQuality((0.1, 0.2), (1.0, 0.96)), 0.1, 0.0)
    lost = replace(complete, part="residual", quality=TaskQuality((2.0, 2.0), (0.1, 0.2)), gradient=0.0)

    def list_exceptions(*rows: PartRow) -> list[str]:
        return [text.english for text in describe_parts(0, 9, rows).exceptions]

    assert list_exceptions(complete, lost) == []
    assert "it is not a vanishing gradient" in list_exceptions(complete, replace(lost, gradient=0.2))[0]
    unneeded = replace(lost, quality=complete.quality)
    assert "without residual: 98% right, about as many as the complete model" in list_exceptions(complete, unneeded)[0]
    overlapping = replace(lost, quality=TaskQuality((2.0, 0.1), (0.1, 1.0)))
    assert "the ranges of the seeds overlap" in list_exceptions(complete, overlapping)[0]
    unlearned = replace(complete, quality=TaskQuality((0.1, 2.0), (1.0, 0.5)))
    assert "its parts cannot be judged" in list_exceptions(unlearned, lost)[0]
