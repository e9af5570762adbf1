"""The experiment ``long``: cost of the mixings, their reach, and a digit that only some of them find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from jumok.errors import ArgumentError
from jumok.lab.cost.measurements import measure_peak_memory
from jumok.lab.experiments.long_mixings import (
    MIXINGS,
    MixingGrowth,
    NeedleRow,
    describe_long_mixings,
    measure_long_mixings,
    measure_mixings,
    summarize_growth,
)
from jumok.lab.experiments.setups import needle_task
from jumok.lab.result import Result


@pytest.fixture(scope="module")
def outcome() -> Result:
    return measure_long_mixings([64, 128], mixings=["full", "window"], steps=110, rounds=1)


def test_a_window_fails_beyond_its_reach_and_full_attention_does_not(outcome: Result) -> None:
    full, window = outcome.numbers["needles"]
    assert (full.reach, window.reach, window.reachable) == (63, 6, (2, 4, 6))
    assert full.average([8, 12, 16, 32, 62]) > 0.5, full.right
    assert window.average([8, 12, 16, 32, 62]) < 0.2, window.right  # chance is 1/8
    assert len(full.right[0]) == 10


@pytest.mark.parametrize("mixing", MIXINGS)
def test_reach_is_where_a_changed_token_changes_the_answer(mixing: str) -> None:
    model = needle_task.create_model(mixing, 0).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)  # so that nothing is too small to be seen
    tokens = torch.randint(8, 16, (1, 64), generator=torch.Generator().manual_seed(0)).expand(64, -1)
    changed = torch.where(torch.eye(64).bool(), (tokens + 3) % 8, tokens)  # row i: token i is a digit
    with torch.no_grad():
        difference = (model(changed).hidden[:, -1] - model(tokens[:1]).hidden[:, -1]).abs().amax(-1)
    distances = {63 - position for position in (difference > 0).nonzero().flatten().tolist()}
    assert distances == needle_task.find_reachable_distances(model)
    assert (len(distances) < 20) == (mixing in ("window", "blocks"))


def test_texts_hide_one_digit_at_the_distance() -> None:
    texts, answers = needle_task.create_texts(50, [6, 62], torch.Generator().manual_seed(1))
    assert (texts[:, -1] == needle_task.ASK).all()
    rows, positions = (texts < needle_task.DIGITS).nonzero(as_tuple=True)
    assert torch.equal(rows, torch.arange(50)) and set(positions.tolist()) == {1, 57}
    assert torch.equal(texts[rows, positions], answers)


def test_peak_memory_counts_tensors_that_exist_at_one_time() -> None:
    numbers = torch.zeros(1000)

    def calculate() -> torch.Tensor:
        first = numbers + 1  # 4,000 bytes
        second = first.double()  # 8,000 more
        del first
        return second[:10] * 2  # a view takes nothing; 80 bytes

    assert measure_peak_memory(calculate) == 12_000
    assert measure_peak_memory(lambda: numbers.view(10, 100).mT) == 0
    assert measure_peak_memory(lambda: [numbers + 1 for _ in range(3)]) == 12_000
    for _ in range(3):  # freed tensors do not add up
        assert measure_peak_memory(lambda: [(numbers + number).sum() for number in range(5)]) < 4_100


def test_memory_grows_with_n_not_with_n_squared() -> None:
    costs = measure_mixings([2048, 4096], mixings=["full", "window", "performer"], rounds=1)
    for cost in costs:
        assert 0.5 < cost.memory_exponent < 1.2, (cost.mixing, cost.peak_bytes)
        assert min(cost.milliseconds) > 0
    assert costs[0].peak_bytes[1] < 4 * 4096**2 / 5  # full attention keeps no weights


def test_exponents_are_slopes_of_the_longest_lengths() -> None:
    lengths = (256, 512, 1024, 2048)
    growth = summarize_growth("fnet", lengths, [9.0, 1.0, 2.0, 4.0], [7, 100, 400, 1600])
    assert (growth.exponent, growth.memory_exponent) == (pytest.approx(1.0), pytest.approx(2.0))
    assert growth.theory == pytest.approx(1.145, abs=1e-3)  # of n log n from 512 to 2,048 tokens
    with pytest.raises(ArgumentError, match="at least two increasing numbers"):
        measure_mixings([512, 256])


def build_cost(mixing: str, exponent: float, milliseconds: float) -> MixingGrowth:
    theory = 2.0 if mixing == "full" else 1.0
    return MixingGrowth(mixing, "n", (1.0, milliseconds), (1, 2), exponent, 1.0, theory)


def test_results_that_differ_from_the_lesson_are_reported(outcome: Result, tmp_path: Path) -> None:
    near, far = dict.fromkeys((2, 4, 6), 1.0), dict.fromkeys((8, 12, 16, 32, 62), 0.12)
    right = {**dict.fromkeys((2, 4, 6, 8, 12, 16, 32, 62, 24, 48), 1.0)}
    full = NeedleRow("full", tuple(right), 63, (right,))
    window = NeedleRow("window", (2, 4, 6), 6, ({**near, **far, 24: 0.1, 48: 0.1},))
    costs = build_cost("full", 1.9, 8.0), build_cost("window", 1.1, 2.0)
    numbers = {**outcome.numbers, "costs": costs, "needles": (full, window)}
    clear = describe_long_mixings(**numbers)
    assert clear.exceptions == []
    assert "window alone reaches 6 tokens" in clear.sentences[1].english and "full 100%" in clear.sentences[1].english
    assert "exponent 1.90 (theory 2)" in clear.sentences[0].english

    slow = describe_long_mixings(**{**numbers, "costs": (costs[0], build_cost("window", 1.6, 9.6))})
    sentences = [text.english for text in slow.exceptions]
    assert sentences[0] == "window: up to 128 tokens, the time grows with exponent 1.60, in theory 1.00."
    assert sentences[1] == "window still takes 1.2 times as long as full attention at 128 tokens."
    leaking = replace(window, right=({**right, 4: 0.0},))
    forgetful = replace(full, right=({**right, 24: 0.0},))
    unusual = describe_long_mixings(**{**numbers, "needles": (forgetful, leaking)})
    sentences = [text.english for text in unusual.exceptions]
    assert sentences[0].startswith("full names only 50% at distances that training never showed, instead of 100%")
    assert sentences[1].startswith("window names only 67% of the digits that it can reach, after 110 training steps")
    assert sentences[2].startswith("window names 100% of the digits beyond its reach")
    assert outcome.save_picture(tmp_path / "long.png", "ko").read_bytes().startswith(b"\x89PNG")
    fields = outcome.to_json("ko")
    assert fields["needles"][1]["reach"] == 6 and len(fields["explanation"]) == 2
    assert [len(table.select_language("ko")) for table in outcome.tables] == [3, 4, 3]


def test_the_same_seed_gives_the_same_answers_and_bad_arguments_are_refused(outcome: Result) -> None:
    scores = [needle_task.train_and_score("window", steps=5, seed=3) for _ in range(2)]
    assert scores[0] == scores[1]
    with pytest.raises(ArgumentError, match="must include full and window"):
        measure_long_mixings([64, 128], mixings=["full"])
    with pytest.raises(ArgumentError, match="runs and steps"):
        measure_long_mixings([64, 128], steps=0)
