"""Test toy tasks: rules, exact sizes, no overlap between splits, and reproducibility by seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jumok.data.datasets import toy_tasks
from jumok.errors import ArgumentError

Examples = list[tuple[list[int], list[int]]]
MAKERS: dict[str, tuple[Callable[..., Examples], tuple[dict[str, Any], ...]]] = {
    "plus_two": (toy_tasks.make_plus_two_examples, ({"count": 1000}, {"count": 100, "split": "held-out"})),
    "copy": (
        toy_tasks.make_copy_examples,
        ({"part": "train", "count": 1000}, {"part": "dev", "count": 200}, {"part": "test", "count": 200}),
    ),
    "reverse": (
        toy_tasks.make_reverse_examples,
        ({"part": "train", "count": 1000}, {"part": "dev", "count": 200}, {"part": "test", "count": 200}),
    ),
    "sort": (toy_tasks.make_sort_examples, ({}, {"split": "held-out"})),
    "add": (toy_tasks.make_addition_examples, ({}, {"split": "held-out"})),
    "induction": (
        toy_tasks.make_repetition_examples,
        ({"count": 500, "length": 9}, {"count": 50, "length": 9, "split": "held-out"}),
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_splits_do_not_overlap_and_seeds_are_reproducible(name: str) -> None:
    make, parts = MAKERS[name]
    sources = [{tuple(source) for source, _ in make(**part)} for part in parts]
    assert sum(map(len, sources)) == len(set().union(*sources))
    for part in parts:
        assert make(**part, seed=5) == make(**part, seed=5) != make(**part, seed=6)
    if name not in ("sort", "add"):  # these have the same examples for every seed
        held = set().union(*({tuple(source) for source, _ in make(**part, seed=1)} for part in parts[1:]))
        assert not sources[0] & held


def test_splits_of_few_examples_do_not_overlap() -> None:
    for make in (
        lambda count, split, seed: toy_tasks.make_plus_two_examples(count, split, seed, 1),
        lambda count, split, seed: toy_tasks.make_repetition_examples(count, 1, split, seed),
    ):
        train, held = ({x[0] for seed in range(9) for x, _ in make(5, split, seed)} for split in ("train", "held-out"))
        assert len(train) > 30 and len(held) >= 5 and not train & held


def test_plus_two_targets() -> None:
    examples = toy_tasks.make_plus_two_examples(1000)
    assert len(examples) == 1000
    for source, target in examples:
        assert len(source) == 5 and all(0 <= number <= 100 for number in source)
        assert target == [number + 2 for number in source]
    assert {number for source, _ in examples for number in source} == set(range(101))


def test_copy_and_reverse_have_the_sizes_of_joeynmt() -> None:
    train, dev, test = (toy_tasks.make_reverse_examples(part) for part in ("train", "dev", "test"))
    assert (len(train), len(dev), len(test)) == (50_000, 1_000, 1_000)
    assert {len(source) for source, _ in train} == set(range(1, 26))
    assert {len(source) for source, _ in dev + test} == set(range(1, 31))
    assert {number for source, _ in train for number in source} == set(range(50))
    assert all(target == list(reversed(source)) for source, target in train)
    assert [source for source, _ in toy_tasks.make_copy_examples("dev")] == [source for source, _ in dev]
    assert all(target == source and target is not source for source, target in toy_tasks.make_copy_examples("dev"))


def test_sort_contains_all_rows() -> None:
    train, held = toy_tasks.make_sort_examples(), toy_tasks.make_sort_examples("held-out")
    assert (len(train), len(held)) == (547, 182)
    assert len({tuple(source) for source, _ in train + held}) == 3**6
    assert all(target == sorted(source) and set(source) <= {0, 1, 2} for source, target in train + held)


@pytest.mark.parametrize("backwards", [True, False])
def test_addition_contains_all_sums(backwards: bool) -> None:
    train, held = (
        toy_tasks.make_addition_examples(backwards=backwards),
        toy_tasks.make_addition_examples("held-out", backwards=backwards),
    )
    assert (len(train), len(held)) == (9_000, 1_000)
    sums = set()
    for (a, b, c, d), answer in train + held:
        hundreds, tens, ones = answer[::-1] if backwards else answer
        assert 100 * hundreds + 10 * tens + ones == 10 * a + b + 10 * c + d
        sums.add((a, b, c, d))
    assert len(sums) == 10_000


def test_addition_agrees_with_mingpt() -> None:
    targets = {
        tuple(source): target
        for source, target in toy_tasks.make_addition_examples() + toy_tasks.make_addition_examples("held-out")
    }
    assert targets[8, 5, 5, 0] == [5, 3, 1] and targets[0, 6, 3, 9] == [5, 4, 0]


def test_induction_target_repeats_the_source() -> None:
    examples = toy_tasks.make_repetition_examples(300, 20)
    assert all(len(source) == 20 and target == source for source, target in examples)
    numbers = {number for source, _ in examples for number in source}
    assert numbers == set(range(256))


def test_invalid_arguments_are_refused() -> None:
    for call in (
        lambda: toy_tasks.make_plus_two_examples(0),
        lambda: toy_tasks.make_reverse_examples("dev", count=0),
        lambda: toy_tasks.make_sort_examples(length=20, kinds=10),
        lambda: toy_tasks.make_addition_examples(digits=4),
        lambda: toy_tasks.make_repetition_examples(5, 0),
        lambda: toy_tasks.make_repetition_examples(100, 1, kinds=3),
    ):
        with pytest.raises(ArgumentError):
            call()
