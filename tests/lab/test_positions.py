"""The experiment ``positions``: without positions word order is lost, and encodings differ in longer texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from jumok.draw import LinePanel, MapPanel, save_panel_row
from jumok.errors import ArgumentError, DrawError
from jumok.lab.experiments.position_encodings import (
    WORDS,
    EncodingRow,
    LengthScore,
    create_repeat_examples,
    create_word_model,
    describe_positions,
    encode_words,
    measure_positions,
    measure_word_order,
)
from jumok.lab.experiments.setups.toy_training import remove_masks
from jumok.lab.result import Result
from jumok.models.gpt import POSITIONS


@pytest.fixture(scope="module")
def outcome() -> Result:
    return measure_positions(encodings=["none", "learned", "alibi"], runs=1, steps=80)


def create_row(encoding: str, *right: float) -> EncodingRow:
    scores = [LengthScore(length, (0.1,), (share,)) for length, share in zip((16, 32, 64), right, strict=False)]
    return EncodingRow(encoding, 1, tuple(scores))


def test_words_have_equal_vectors_in_both_orders_only_without_positions() -> None:
    for row in measure_word_order(seed=5):
        assert list(row.differences) == list(row.causal_differences) == ["I", "am", "a", "boy"]
        if row.encoding == "none":
            assert max(row.differences.values()) < 1e-12
        else:
            assert min(row.differences.values()) > 1e-3
        assert min(row.causal_differences.values()) > 1e-3, "a causal mask tells orders apart by itself"


def test_any_order_gives_the_same_vectors_without_positions() -> None:
    order = ("a", "boy", "I", "am")
    for encoding in POSITIONS:
        model = create_word_model(encoding, seed=1)
        with remove_masks():
            vectors, moved = encode_words(model, WORDS), encode_words(model, order)
        expected = torch.stack([vectors[WORDS.index(word)] for word in order])
        assert torch.allclose(moved, expected, atol=1e-12) is (encoding == "none")
        first = encode_words(model, WORDS)[0], encode_words(model, WORDS[:2])[0]
        assert torch.allclose(*first, atol=1e-12), "the first word sees only itself"


def test_positions_are_needed_and_alibi_reaches_longer_texts(outcome: Result) -> None:
    rows = {row.encoding: row for row in outcome.numbers["rows"]}
    assert list(rows) == ["none", "learned", "alibi"]
    without = rows["none"].get_right(16)
    assert without < 0.6 and rows["none"].get_right(64) < 0.3
    assert min(rows[encoding].get_right(16) for encoding in ("learned", "alibi")) > without + 0.2
    assert rows["alibi"].get_right(64) > 0.7
    assert all(0 < score.losses[0] < 4 for row in rows.values() for score in row.scores)


def test_learned_positions_end_with_their_table(outcome: Result) -> None:
    learned = next(row for row in outcome.numbers["rows"] if row.encoding == "learned")
    assert [score.length for score in learned.scores] == [16] and learned.get_right(64) is None
    table = outcome.tables[1].select_language("en")
    assert table[0] == ["positions", "16 tokens", "range", "32 tokens", "range", "64 tokens", "range"]
    assert table[2][0] == "learned" and table[2][3:] == ["-"] * 4
    assert "-" not in table[1] + table[3]


def test_sentences_state_the_measured_numbers(outcome: Result) -> None:
    rows = [
        create_row("none", 0.5, 0.3, 0.2), create_row("sinusoidal", 0.99, 0.2, 0.13), create_row("learned", 1.0),
        create_row("rotary", 1.0, 1.0, 1.0), create_row("alibi", 0.98, 0.97, 0.96), create_row("t5", 1.0, 0.99, 0.98),
    ]  # fmt: skip
    clear = describe_positions(**{**outcome.numbers, "rows": tuple(rows)})
    assert clear.exceptions == [] and clear.to_json()["holds"]
    english, korean = clear.sentences[1].english, clear.sentences[1].korean
    assert "50% of the answers are right without positions and 98% to 100% with them (1 step back)" in english
    assert "rotary (RoPE) 100%, T5 bias 98%, ALiBi 96%, sinusoidal 13%; the table of learned" in english
    equal = describe_positions(**{**outcome.numbers, "rows": (rows[0], rows[2], rows[3])}).sentences[1]
    assert "without positions and 100% with them" in equal.english and "있으면 100%입니다" in equal.korean
    assert "회전(RoPE) 100%, T5 편향 98%, ALiBi 96%, 사인파 13%이고" in korean
    assert (
        f"at most {max(outcome.numbers['words'][0].differences.values()):.0e}, with an encoding"
        in clear.sentences[0].english
    )


def test_results_against_the_lesson_are_reported(outcome: Result) -> None:
    rows = [
        create_row("none", 0.5, 0.3, 0.2), create_row("sinusoidal", 0.95, 0.95, 0.94), create_row("learned", 0.4),
        create_row("rotary", 1.0, 0.9, 0.1), create_row("alibi", 0.7, 0.3, 0.2), create_row("t5", 1.0, 0.99, 0.98),
    ]  # fmt: skip
    none, sinusoidal, *remaining = outcome.numbers["words"]
    words = (
        replace(none, differences=dict.fromkeys(WORDS, 0.1), causal_differences={"I": 1e-8}),
        replace(sinusoidal, differences=dict.fromkeys(WORDS, 1e-9)),
        *remaining,
    )
    unusual = describe_positions(**{**outcome.numbers, "rows": tuple(rows), "words": words})
    sentences = [text.english for text in unusual.exceptions]
    assert sentences == [
        "Without positions the vectors differ by up to 1.0e-01.",
        "With a causal mask and without positions, the vectors of a word differ by only 1.0e-08.",
        "sinusoidal: the vectors of a word differ by only 1.0e-09.",
        "sinusoidal, 1 step back: works at 64 tokens too (94%).",
        "learned, 1 step back: only 40% right at the trained length.",
        "learned, 1 step back: not better than without positions (50%).",
        "rotary (RoPE), 1 step back: 100% right at the trained length but 10% at 64 tokens, although it encodes "
        "distances: most of them are longer than any in training.",
        "ALiBi, 1 step back: only 70% right at the trained length.",
    ]


def test_picture_shows_the_tasks_and_the_sinusoids(outcome: Result, tmp_path: Path) -> None:
    assert outcome.save_picture(tmp_path / "positions.png", "ko").read_bytes().startswith(b"\x89PNG")
    labels = outcome.save_picture(tmp_path / "labels.svg").read_text()
    for label in ("Sinusoidal encoding", "dimension", "ALiBi", "tokens in the text"):
        assert f"<!-- {label} -->" in labels
    with pytest.raises(DrawError, match="at least one panel"):
        save_panel_row(tmp_path / "none.png", [])
    with pytest.raises(DrawError, match="finite numbers"):
        save_panel_row(tmp_path / "nan.png", [MapPanel("", numpy.full((2, 3), numpy.nan), "", "")])
    lines = LinePanel({"first": [(1, 2.0)], "second": [(1, 1.0)]}, "a", "c", "d")
    labels = save_panel_row(tmp_path / "shared.svg", [lines, lines]).read_text()
    assert labels.count("<!-- first -->") == labels.count("<!-- second -->") == 1, "panels share a legend"
    zeros = MapPanel("zeros", numpy.zeros((2, 3)), "x", "y")
    assert save_panel_row(tmp_path / "row.svg", [lines, zeros]).exists()


def test_targets_are_the_tokens_before() -> None:
    tokens, targets = create_repeat_examples(5, 11, 3, torch.Generator().manual_seed(0))
    for row in range(5):
        for position in range(11):
            assert targets[row, position] == (tokens[row, position - 3] if position >= 3 else -100)


def test_the_same_seed_gives_the_same_numbers_and_bad_numbers_are_refused() -> None:
    steps: list[tuple[int, int]] = []
    small: dict[str, Any] = {"encodings": ("none", "t5"), "runs": 1, "steps": 2}
    first = measure_positions(**small, seed=2, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(done, 4) for done in range(1, 5)]
    assert measure_positions(**small, seed=2) == first
    for offsets in ((), (0,), (9,)):
        with pytest.raises(ArgumentError, match="offsets must be 1 to 8"):
            measure_positions(offsets)
    for encodings in ((), ("none",), ("alibi", "t5"), ("none", "absolute")):
        with pytest.raises(ArgumentError, match="encodings must be none and at least one other of sinusoidal, learned"):
            measure_positions(encodings=encodings)
