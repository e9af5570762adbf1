"""Generated data: the rules hold, the sizes are exact, no example is on both sides, and a seed gives the same again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jumok.data.datasets import toy_tasks
from jumok.errors import ArgumentError

Made = list[tuple[list[int], list[int]]]
MAKERS: dict[str, tuple[Callable[..., Made], tuple[dict[str, Any], ...]]] = {
    "plus_two": (toy_tasks.make_plus_two_examples, ({"count": 1000}, {"count": 100, "side": "held-out"})),
    "copy": (
        toy_tasks.make_copy_examples,
        ({"part": "train", "count": 1000}, {"part": "dev", "count": 200}, {"part": "test", "count": 200}),
    ),
    "reverse": (
        toy_tasks.make_reverse_examples,
        ({"part": "train", "count": 1000}, {"part": "dev", "count": 200}, {"part": "test", "count": 200}),
    ),
    "sort": (toy_tasks.make_sort_examples, ({}, {"side": "held-out"})),
    "add": (toy_tasks.make_addition_examples, ({}, {"side": "held-out"})),
    "induction": (
        toy_tasks.make_induction_examples,
        ({"count": 500, "length": 9}, {"count": 50, "length": 9, "side": "held-out"}),
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_sides_share_nothing_and_seeds_give_the_same_again(name: str) -> None:
    make, parts = MAKERS[name]
    sources = [{tuple(source) for source, _ in make(**part)} for part in parts]
    assert sum(map(len, sources)) == len(set().union(*sources))
    for part in parts:
        assert make(**part, seed=5) == make(**part, seed=5) != make(**part, seed=6)
    if name not in ("sort", "add"):  # there a seed deals the same examples differently
        held = set().union(*({tuple(source) for source, _ in make(**part, seed=1)} for part in parts[1:]))
        assert not sources[0] & held


def test_sides_share_nothing_even_where_examples_are_few() -> None:
    for make in (
        lambda *given: toy_tasks.make_plus_two_examples(*given, 1),
        lambda count, side, seed: toy_tasks.make_induction_examples(count, 1, side, seed),
    ):
        train, held = ({x[0] for seed in range(9) for x, _ in make(5, side, seed)} for side in ("train", "held-out"))
        assert len(train) > 30 and len(held) >= 5 and not train & held


def test_plus_two() -> None:
    found = toy_tasks.make_plus_two_examples(1000)
    assert len(found) == 1000
    for source, target in found:
        assert len(source) == 5 and all(0 <= number <= 100 for number in source)
        assert target == [number + 2 for number in source]
    assert {number for source, _ in found for number in source} == set(range(101))


def test_copy_and_reverse_have_the_sizes_of_joeynmt() -> None:
    train, dev, test = (toy_tasks.make_reverse_examples(part) for part in ("train", "dev", "test"))
    assert (len(train), len(dev), len(test)) == (50_000, 1_000, 1_000)
    assert {len(source) for source, _ in train} == set(range(1, 26))
    assert {len(source) for source, _ in dev + test} == set(range(1, 31))
    assert {number for source, _ in train for number in source} == set(range(50))
    assert all(target == list(reversed(source)) for source, target in train)
    assert [source for source, _ in toy_tasks.make_copy_examples("dev")] == [source for source, _ in dev]
    assert all(target == source and target is not source for source, target in toy_tasks.make_copy_examples("dev"))


def test_sort_is_all_rows_of_six() -> None:
    train, held = toy_tasks.make_sort_examples(), toy_tasks.make_sort_examples("held-out")
    assert (len(train), len(held)) == (547, 182)
    assert len({tuple(source) for source, _ in train + held}) == 3**6
    assert all(target == sorted(source) and set(source) <= {0, 1, 2} for source, target in train + held)


@pytest.mark.parametrize("backwards", [True, False])
def test_add_is_all_sums(backwards: bool) -> None:
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


def test_add_as_minigpt_writes_it() -> None:
    both = {
        tuple(source): target
        for source, target in toy_tasks.make_addition_examples() + toy_tasks.make_addition_examples("held-out")
    }
    assert both[8, 5, 5, 0] == [5, 3, 1] and both[0, 6, 3, 9] == [5, 4, 0]


def test_induction_repeats() -> None:
    found = toy_tasks.make_induction_examples(300, 20)
    assert all(len(source) == 20 and target == source for source, target in found)
    numbers = {number for source, _ in found for number in source}
    assert numbers == set(range(256))


def test_what_cannot_be_made_is_refused() -> None:
    for wrong in (
        lambda: toy_tasks.make_plus_two_examples(0),
        lambda: toy_tasks.make_reverse_examples("dev", count=0),
        lambda: toy_tasks.make_sort_examples(length=20, kinds=10),
        lambda: toy_tasks.make_addition_examples(digits=4),
        lambda: toy_tasks.make_induction_examples(5, 0),
        lambda: toy_tasks.make_induction_examples(100, 1, kinds=3),
    ):
        with pytest.raises(ArgumentError):
            wrong()
