"""The experiment ``recurrence``: attention removes the bottleneck of one vector, and only LSTMs wait for each token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from jumok.errors import ArgumentError
from jumok.lab.experiments.recurrence import (
    QualityRow,
    Recurrence,
    SpeedRow,
    describe_recurrence,
    measure_recurrence,
)
from jumok.lab.experiments.setups.copy_task import (
    BUILDERS,
    create_held_out_sequences,
    create_training_sequences,
    draw_batches,
)
from jumok.lab.experiments.setups.dependent_steps import count_dependent_steps
from jumok.lab.result import Result
from jumok.tap import listen

SETTINGS: dict[str, Any] = {"lengths": (4, 8), "longer": (10,), "runs": 1, "steps": 150, "tokens": (3, 7), "rounds": 1}


@contextmanager
def silence_attention() -> Iterator[None]:
    """Let every attention return 0, in training too."""

    def clear(site: str, content: Any) -> Any:
        return torch.zeros_like(content) if site.endswith(".block_output") else content

    with listen(clear):
        yield


@pytest.fixture(scope="module")
def outcome() -> Result:
    return measure_recurrence(["lstm", "luong"], **SETTINGS)


def find_sentences(outcome: Result, text: str) -> list[str]:
    return [sentence.english for sentence in outcome.exceptions if text in sentence.english]


def set_quality(outcome: Result, model: str, length: int, shares: tuple[float, ...]) -> Result:
    rows = [row for row in outcome.numbers["quality"] if (row.model, row.length) != (model, length)]
    return change(outcome, quality=(*rows, QualityRow(model, length, shares, shares)))


def change(outcome: Result, **numbers: object) -> Result:
    return describe_recurrence(Recurrence(**{**outcome.numbers, **numbers}))


def get_quality(outcome: Result, model: str, length: int) -> QualityRow:
    return next(row for row in outcome.numbers["quality"] if (row.model, row.length) == (model, length))


def get_speed(outcome: Result, model: str) -> SpeedRow:
    return next(row for row in outcome.numbers["speed"] if row.model == model)


def test_attention_removes_the_bottleneck(outcome: Result) -> None:
    short, long = (get_quality(outcome, "lstm", length) for length in (4, 8))
    assert short.generated[0] > long.generated[0] + 0.1 and short.forced[0] > long.forced[0] + 0.1
    assert get_quality(outcome, "luong", 8).generated[0] > long.generated[0] + 0.3
    assert find_sentences(outcome, "clearly better than the LSTM") == []
    assert find_sentences(outcome, "did not become worse") == []
    # the digit to copy next gets most of the weight
    assert [(row.model, row.layer, row.head, row.offset) for row in outcome.numbers["views"]] == [("luong", 1, 1, 0)]
    assert 0.3 < outcome.numbers["views"][0].weight <= 1


def test_without_its_attention_the_model_is_not_better() -> None:
    with silence_attention():
        outcome = measure_recurrence(["lstm", "luong"], **SETTINGS)
    assert get_quality(outcome, "luong", 8).generated[0] < get_quality(outcome, "lstm", 8).generated[0] + 0.2
    assert get_quality(outcome, "luong", 8).generated[0] < 0.6


def test_only_recurrent_models_wait_for_each_token() -> None:
    for name in BUILDERS:
        model = BUILDERS[name]()
        counts = []
        for length in (8, 16, 24):
            tokens = torch.zeros(1, length, dtype=torch.long)
            counts.append(count_dependent_steps(lambda model=model, tokens=tokens: model(tokens, tokens)))
        if name in ("lstm", "bahdanau", "luong"):
            assert counts[2] - counts[1] == counts[1] - counts[0] >= 2 * 8  # one step of encoder and decoder per token
        else:
            assert counts[0] == counts[1] == counts[2] < 100


def test_dependent_steps_are_the_longest_chain() -> None:
    numbers = torch.rand(5, 3)

    def compute() -> None:
        branch = numbers.exp().sin().T  # a view computes nothing
        (branch.cos() + numbers.T).add_(1).sum()
        numbers.exp().exp()

    assert count_dependent_steps(compute) == 6  # exp, sin, cos, +, add_, sum


def test_models_have_equal_sizes() -> None:
    counts = [BUILDERS[name]().parameter_count for name in BUILDERS]
    assert max(counts) < 1.06 * min(counts) and min(counts) > 90_000


def test_batches_are_repeatable_and_held_out_sequences_are_new() -> None:
    training = create_training_sequences(4, 5, seed=3)
    held_out = create_held_out_sequences(100, 4, seed=3)
    assert not {tuple(row) for row in training[4].tolist()} & {tuple(row) for row in held_out.tolist()}
    streams = [draw_batches(training, size=7, seed=2) for _ in range(2)]
    pairs = [[next(stream) for stream in streams] for _ in range(9)]
    assert all(torch.equal(*pair) for pair in pairs) and {len(pair[0]) for pair in pairs} == {7}
    assert {pair[0].shape[1] for pair in pairs} == {4, 5}


def test_cases_in_which_the_lesson_fails_are_reported(outcome: Result) -> None:
    overlapping = set_quality(set_quality(outcome, "luong", 8, (0.5, 0.9)), "lstm", 8, (0.2, 0.6))
    assert find_sentences(overlapping, "clearly better") == [
        "Luong was not clearly better than the LSTM without attention at 8 digits: 70 (50-90) and 40 (20-60) percent."
    ]
    clear = set_quality(set_quality(outcome, "luong", 8, (0.7, 0.9)), "luong", 4, (1.0, 1.0))
    assert find_sentences(clear, "clearly better") == []
    assert find_sentences(clear, "became worse") == ["Luong became worse with length, too: 100% at 4 digits, 80% at 8."]
    stable = set_quality(set_quality(outcome, "lstm", 4, (0.3,)), "lstm", 8, (0.25,))
    assert len(find_sentences(stable, "did not become worse: 30% at 4 digits, 25% at 8.")) == 1
    longer = set_quality(set_quality(outcome, "luong", 8, (1.0,)), "luong", 10, (0.6,))
    assert find_sentences(longer, "longer sequences")[0].endswith("at 10 digits: Luong 60%.")
    assert find_sentences(set_quality(longer, "luong", 10, (0.95,)), "longer sequences") == []


def test_equal_times_and_equal_heads_are_reported(outcome: Result) -> None:
    renamed = {"luong": "multi_head"}
    speed, quality = (
        tuple(replace(row, model=renamed.get(row.model, row.model)) for row in outcome.numbers[name])
        for name in ("speed", "quality")
    )
    slow, fast = (
        change(outcome, speed=tuple(replace(row, milliseconds=times[row.model]) for row in speed), quality=quality)
        for times in (
            {"lstm": (1.0, 8.0), "lstm_unfused": (1.0, 8.0), "multi_head": (1.0, 2.0)},
            {"lstm": (1.0, 1.5), "lstm_unfused": (1.0, 8.0), "multi_head": (1.0, 2.0)},
        )
    )
    assert find_sentences(slow, "do not show in the time") == []
    assert "the time of LSTM x1.5 (4 heads x2.0)" in find_sentences(fast, "do not show in the time")[0]

    heads = [
        QualityRow(model, length, shares, shares)
        for model, shares in {"single_head": (0.8, 0.9), "multi_head": (0.85, 1.0)}.items()
        for length in (4, 8, 10)
    ]
    equal = change(outcome, speed=speed, quality=(*outcome.numbers["quality"], *heads))
    assert len(find_sentences(equal, "4 heads were not clearly better than 1 at 8 digits: 92 (85-100) and 85")) == 1
    assert find_sentences(set_quality(equal, "multi_head", 8, (0.95, 1.0)), "were not clearly better") == []


def test_tables_sentences_and_picture_come_from_the_numbers(outcome: Result, tmp_path: Path) -> None:
    generated, forced, speed, views = outcome.tables
    assert [row[0] for row in generated.rows] == ["4", "8", "10 *"] == [row[0] for row in forced.rows]
    assert generated.select_language("ko")[0] == ["길이", "LSTM", "Luong"]
    assert speed.rows[0][1:4] == speed.rows[1][1:4]  # the same LSTM, not fused
    assert len(views.rows) == 1
    english, korean = ([text.select(language) for text in outcome.sentences] for language in ("en", "ko"))
    share = f"{get_quality(outcome, 'lstm', 8).generated[0]:.0%}"
    assert share in english[0] and share in korean[0] and len(english) == 2
    assert f"{get_speed(outcome, 'lstm').steps[1]:,}" in english[1]
    picture = outcome.save_picture(tmp_path / "recurrence.png", "ko")
    assert picture.read_bytes().startswith(b"\x89PNG")
    fields = outcome.to_json("ko")
    assert len(fields["quality"]) == 6 and fields["exceptions"] == [text.korean for text in outcome.exceptions]


def test_the_same_seed_gives_the_same_quality() -> None:
    settings = {**SETTINGS, "lengths": (4,), "longer": (), "steps": 2, "tokens": (3,)}
    first, again, other = (measure_recurrence(["lstm", "cnn"], **settings, seed=seed) for seed in (1, 1, 2))
    assert first.numbers["quality"] == again.numbers["quality"] != other.numbers["quality"]
    assert first.numbers["views"] == again.numbers["views"] != other.numbers["views"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models": ["luong"]}, "models must be 'lstm' and at least one of"),
        ({"models": ["lstm"]}, "models must be 'lstm'"),
        ({"models": ["lstm", "gru"]}, r"not \['lstm', 'gru'\]"),
        ({"models": ["lstm", "cnn", "cnn"]}, "each once"),
        ({"runs": 0}, "runs, steps and rounds must be at least 1"),
        ({"lengths": (8, 4)}, r"lengths and longer must be different numbers in ascending order, not \[8, 4, 16\]"),
        ({"lengths": ()}, "lengths must be 4 to 1,024"),
        ({"lengths": (2, 8)}, "lengths must be 4 to 1,024"),
        ({"tokens": (32, 2048)}, "tokens 1 to 1,024"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        measure_recurrence(**settings)
