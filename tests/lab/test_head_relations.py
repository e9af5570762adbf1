"""The experiment ``relations``: pairs and their controls, random choices, and what is said of them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from jumok.errors import ArgumentError
from jumok.lab.experiments import head_relations
from jumok.lab.experiments.head_relations import (
    DATA,
    MARKED,
    PairRow,
    PositionRow,
    RelationRow,
    WordMaps,
    describe_relations,
    measure_relations,
)

WORDS = 11


def create_maps(peaks: dict[int, tuple[int, int]], seed: int = 0) -> WordMaps:
    """Return maps of seven heads with small random weights; some heads have a large weight on one pair."""
    generator = torch.Generator().manual_seed(seed)
    weights = 0.1 * torch.rand(7, WORDS, WORDS, generator=generator).tril()
    for head, (query, key) in peaks.items():
        weights[head, query, key] = 0.9
    vectors = torch.nn.functional.normalize(torch.randn(WORDS, 5, generator=generator), dim=-1)
    return WordMaps([(0, head) for head in range(7)], weights, weights, vectors)


def test_every_sentence_has_two_marked_words_after_the_first_and_other_pairs_at_their_distance() -> None:
    for relation, sentences in DATA["sentences"].items():
        assert len(sentences) == 8, relation
        for sentence in sentences:
            words = sentence.split()
            earlier, later = (index for index, word in enumerate(words) if MARKED.fullmatch(word))
            assert earlier > 0 and len(words) - (later - earlier) - 1 >= 4, sentence


def test_a_pair_is_compared_with_the_other_pairs_at_its_distance() -> None:
    words = " ".join(f"w{number}" for number in range(WORDS))
    maps = create_maps({2: (7, 4), 5: (9, 6)})
    row = head_relations._compare_pair(words, "w7", "w4", "time", maps)
    assert row.head == (0, 2) and row.weight == pytest.approx(0.9)
    controls = [float(maps.weights[2, query, query - 3]) for query in (4, 5, 6, 8, 9, 10)]
    assert row.control == pytest.approx(sum(controls) / 6)
    assert row.other_pairs == 6
    rival = maps.weights[5, [4, 5, 6, 7, 8, 10], [1, 2, 3, 4, 5, 7]].mean()
    assert row.better == int(float(rival) <= row.control)


def test_a_head_that_follows_a_relation_is_told_from_chance() -> None:
    text = "w0 w1 w2 *w3* w4 w5 *w6* w7 w8 w9 w10"
    sentences = [text + "x" * number for number in range(6)]  # maps are found by their sentence
    real = {sentence: create_maps({3: (6, 3)}, seed) for seed, sentence in enumerate(sentences)}
    row = head_relations._compare_relation("time", sentences, real, 100, random.Random(0))
    assert row.head == (0, 3) and row.margin > 0.8 and row.chance == 0 and row.drawn < 0.2
    none = {sentence: create_maps({}, seed) for seed, sentence in enumerate(sentences)}
    row = head_relations._compare_relation("time", sentences, none, 100, random.Random(0))
    assert row.chance > 0.05 and row.cosine is not None


def test_small_models_are_measured_and_drawn(tmp_path: Path) -> None:
    outcome = measure_relations(("tiny",), draws=3)
    (model,) = outcome.numbers["positions"]
    assert model.heads == 4 and model.last == model.last_word == 0  # under a causal mask only the last sees the last
    assert [row.relation for row in outcome.numbers["relations"]] == list(DATA["sentences"])
    assert outcome.save_picture(tmp_path / "far.png", "ko").exists()
    assert outcome.numbers == measure_relations(("tiny",), draws=3).numbers
    with pytest.raises(ArgumentError, match="at least 1 draw"):
        measure_relations(draws=0)


def test_distances_are_relative_to_equal_weights() -> None:
    equal = torch.ones(5, 5).tril()
    equal = equal / equal.sum(-1, keepdim=True)
    far = torch.zeros(5, 5)
    far[:, 0] = 1
    ratios = head_relations._compute_distance(torch.stack([equal, far]), equal)
    assert ratios.tolist() == pytest.approx([1.0, 2.0])


def test_relations_without_a_head_are_reported() -> None:
    pair = PairRow("b -> a", "time", (1, 2), 0.9, 0.1, 0, 5)
    relation = RelationRow("time", 8, (1, 2), 0.5, 0.2, 0.01, 0.4, 0.1)
    model = PositionRow("m", 8, 3, 1, 1, (0.5, 1.2))

    def list_exceptions(relation: RelationRow, model: PositionRow) -> list[str]:
        result = describe_relations(0, 9, (pair,), (relation,), (model,))
        return [text.english for text in result.exceptions]

    assert list_exceptions(relation, model) == []
    unclear, blind = replace(relation, chance=0.3), replace(model, last_word=0)
    assert [text.partition(":")[0] for text in list_exceptions(unclear, blind)] == ["time", "m"]
    shared = describe_relations(0, 9, (pair,), (relation, replace(relation, relation="cause")), (model,))
    assert [text.english for text in shared.exceptions] == [
        "Head 1.2 is the best for several relations: time, cause and effect. It does not tell them apart."
    ]
