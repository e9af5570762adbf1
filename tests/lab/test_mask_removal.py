"""The experiment ``mask``: without the causal mask the loss falls and generation becomes worse."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import jumok
from jumok.errors import ArgumentError
from jumok.lab.experiments.mask_removal import (
    LEAST_LOSS,
    SentenceRow,
    TrainedModelRow,
    describe_mask_removal,
    measure_mask_removal,
)
from jumok.lab.experiments.setups.toy_training import (
    compute_answer_accuracy,
    continue_rows,
    join_examples,
    remove_masks,
    train_on_answers,
)
from jumok.lab.result import Result
from jumok.models.gpt import GPT, GPTConfig

SMALL = GPTConfig(vocabulary=4, length=13, width=12, layers=2, heads=3, hidden=20)


@pytest.fixture(scope="module")
def outcome() -> Result:
    return measure_mask_removal(sequences=24, sentences=6, runs=1, steps=100)


def test_the_packaged_model_sees_the_answer_without_its_mask(outcome: Result) -> None:
    causal, unmasked = outcome.numbers["packaged"]
    assert causal.is_causal and not unmasked.is_causal
    # random bytes cannot be predicted: with the mask no model is better than chance, except by luck
    assert causal.first_loss > math.log(256) - 0.1
    assert unmasked.first_loss < 2
    assert causal.right > 0.95 and unmasked.right < 0.92


def test_the_packaged_model_on_sentences_reads_ahead_and_writes_worse(outcome: Result) -> None:
    assert len(outcome.numbers["sentences"]) == 6
    for row in outcome.numbers["sentences"]:
        assert row.unmasked_loss < 1 < 2.5 < row.loss
        assert len(row.written) == len(row.unmasked_written) == len(row.sentence) - 8
    rights = [
        sum(row.compute_right(text) for row, text in zip(outcome.numbers["sentences"], texts, strict=True)) / 6
        for texts in zip(*((row.written, row.unmasked_written) for row in outcome.numbers["sentences"]), strict=True)
    ]
    assert rights[0] > 0.7 and rights[1] < rights[0] - 0.05
    printed = outcome.tables[2].select_language("en")[1:]
    most_harmed = next(row for row in outcome.numbers["sentences"] if printed[0][0].startswith(row.sentence))
    assert [line[2] for line in printed[:2]] == [most_harmed.written, most_harmed.unmasked_written]
    assert most_harmed.written != most_harmed.unmasked_written


def test_a_model_trained_without_the_mask_has_the_lower_loss_and_cannot_answer(outcome: Result) -> None:
    causal, unmasked = outcome.numbers["trained"]
    assert causal.loss > LEAST_LOSS - 0.02
    assert unmasked.loss < LEAST_LOSS - 0.1
    assert unmasked.right < causal.right
    assert not [text for text in outcome.exceptions if "seed" in text.english]


def test_a_result_that_contradicts_the_lesson_is_reported(outcome: Result) -> None:
    equal = tuple(TrainedModelRow(5, is_causal, 0.1, 0.5) for is_causal in (True, False))
    sentence = SentenceRow("The cat sat on it. ", 0.5, 0.5, "sat on it. ", "sat on it. ")
    reversed_rows = describe_mask_removal(
        5, outcome.numbers["packaged"][::-1], (sentence,), equal, outcome.numbers["maps"]
    )
    sentences = " ".join(text.english for text in reversed_rows.exceptions)
    assert sentences.count("the loss did not fall") == 2 and sentences.count("did not become worse") == 2
    assert "tiny:" in sentences and "seed 5:" in sentences
    assert "the loss of 1 of 1 sentences did not fall" in sentences
    assert "1 of 1 sentences were repeated no worse" in sentences


def test_maps_show_weights_on_later_tokens_only_without_the_mask(outcome: Result, tmp_path: Path) -> None:
    causal, unmasked = (torch.tensor(table) for table in outcome.numbers["maps"])
    assert causal.triu(1).sum() == 0 and unmasked.triu(1).sum() > 1
    assert outcome.save_picture(tmp_path / "mask.png", "ko").read_bytes().startswith(b"\x89PNG")


def test_remove_masks_lets_tokens_attend_to_later_ones() -> None:
    torch.manual_seed(0)
    model, tokens = GPT(SMALL).eval(), torch.randint(4, (2, 7))
    changed = tokens.clone()
    changed[:, -1] = (tokens[:, -1] + 1) % 4
    with torch.no_grad():
        assert torch.equal(model(tokens).logits[:, :-1], model(changed).logits[:, :-1])
        with remove_masks():
            assert not torch.equal(model(tokens).logits[:, :-1], model(changed).logits[:, :-1])
        weights = model(tokens, weights=True).weights[0]
    assert weights.triu(1).sum() == 0  # the mask is back


def test_remove_masks_is_the_edit_of_the_lens() -> None:
    tiny, tokens = jumok.load("tiny"), torch.randint(256, (2, 11))
    with jumok.Lens(tiny) as lens, torch.no_grad():
        edited = lens.run(tokens, edits=jumok.Remask(), logits=True).logits
        with remove_masks():
            assert torch.allclose(tiny.model(tokens).logits, edited, atol=1e-5)


def test_toy_training_learns_and_answers_greedily() -> None:
    torch.manual_seed(0)
    rows = join_examples([([digit], [(digit + 1) % 3, digit]) for digit in range(3)], separator=3)
    assert rows.tolist()[2] == [2, 3, 0, 2]
    model = GPT(SMALL)
    losses = train_on_answers(model, rows, 2, steps=120, batch=8, learning_rate=3e-2)
    assert losses[0] > 1 and losses[-1] < 0.1 and len(losses) == 120
    assert torch.equal(continue_rows(model, rows[:, :2], 2), rows[:, 2:])
    assert compute_answer_accuracy(model, rows, 2) == 1
    wrong = rows.clone()
    wrong[0, 3] = 2
    assert compute_answer_accuracy(model, wrong, 2) == pytest.approx(2 / 3)


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, again, other = (measure_mask_removal(sequences=1, sentences=1, steps=3, seed=seed) for seed in (4, 4, 5))
    assert first == again and first.numbers["trained"][0].loss != other.numbers["trained"][0].loss
    with pytest.raises(ArgumentError, match="at least 1"):
        measure_mask_removal(runs=0)
