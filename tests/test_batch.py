"""Batches: every epoch has every example once, in an order that depends on (seed, step) alone, for any processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from itertools import chain, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

from jumok.data.batches.batch_order import BatchOrder, LengthGroups, RandomWindows, ShuffledEpochs, pad_sequences, share
from jumok.errors import ArgumentError

counts = st.integers(1, 200)
sizes = st.integers(1, 70)
seeds = st.integers(-(2**70), 2**70)


@settings(max_examples=40)
@given(counts, seeds, sizes)
def test_every_epoch_has_every_example_once(count: int, seed: int, size: int) -> None:
    order = ShuffledEpochs(count, seed)
    stream: list[int] = []
    step = 0
    while len(stream) < 3 * count:
        batch = order.batch_indices(step, size)
        assert len(batch) == size
        stream += batch
        step += 1
    for epoch in range(3):
        assert sorted(stream[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(counts, seeds, sizes, st.integers(0, 10**12))
def test_a_step_is_the_same_whoever_asks_and_whenever(count: int, seed: int, size: int, step: int) -> None:
    order = ShuffledEpochs(count, seed)
    before = order.batch_indices(step, size)
    order.batch_indices(step + 1, size)
    assert order.batch_indices(step, size) == before == ShuffledEpochs(count, seed).batch_indices(step, size)
    assert before + order.batch_indices(step + 1, size) == [
        order.batch_indices(step * size + place, 1)[0] for place in range(2 * size)
    ]


@given(counts, sizes, st.integers(1, 9), st.integers(0, 1000))
def test_processes_share_a_step_without_gap_or_overlap(count: int, size: int, ranks: int, step: int) -> None:
    batch = ShuffledEpochs(count).batch_indices(step, size)
    shares = [share(batch, rank, ranks) for rank in range(ranks)]
    assert sorted(chain(*shares)) == sorted(batch)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert share(batch, 0, 1) == batch


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {tuple(ShuffledEpochs(50, seed).batch_indices(epoch, 50)) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400


@pytest.mark.parametrize("count", [3, 5, 23])
def test_orders_are_as_good_as_random(count: int) -> None:
    """Each example stands at each place equally often, and each follows each: chi-square, 5 deviations."""
    runs = 1500
    places: Counter[tuple[int, int]] = Counter()
    follows: Counter[tuple[int, int]] = Counter()
    for seed in range(runs):
        found = ShuffledEpochs(count, seed).batch_indices(3, count)
        places.update(enumerate(found))
        follows.update(pairwise(found))
    for table, cells, many in ((places, count**2, runs * count), (follows, count * (count - 1), runs * (count - 1))):
        expected = many / cells
        chi = sum((table[cell] - expected) ** 2 / expected for cell in table) + (cells - len(table)) * expected
        assert chi < cells + 5 * (2 * cells) ** 0.5, (count, chi, cells)


def test_an_order_stays_what_it_was() -> None:
    """A run that is resumed by a later version must see the same examples."""
    assert ShuffledEpochs(10, 0).batch_indices(0, 12) == [2, 0, 9, 8, 3, 5, 7, 4, 6, 1, 8, 2]
    assert RandomWindows(1000, 10, 0).batch_indices(0, 3) == [37, 978, 780]


def test_a_hundred_million_examples_take_no_memory_and_no_time() -> None:
    program = (
        "import resource\nfrom jumok.data.batches.batch_order import Order\norder = Order(10**8, 1)\norder.at(0, 64)\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nbefore = peak()\n"
        "found = [index for step in (0, 1, 1562499, 1562500, 10**9) for index in order.at(step, 64)]\n"
        "assert len(set(found)) == 320 and all(0 <= index < 10**8 for index in found)\n"
        "assert peak() - before < 20_000, peak() - before"
    )
    if sys.platform != "win32":
        subprocess.run([sys.executable, "-c", program], check=True)
    start = time.perf_counter()
    for step in range(20):
        ShuffledEpochs(10**8, 1).batch_indices(step, 64)
    assert time.perf_counter() - start < 5


@given(st.integers(1, 500), st.integers(1, 500), seeds, sizes, st.integers(0, 10**9))
def test_windows_lie_inside_and_come_again(count: int, length: int, seed: int, size: int, step: int) -> None:
    if length > count:
        with pytest.raises(ArgumentError, match="do not fit"):
            RandomWindows(count, length, seed)
        return
    state = torch.random.get_rng_state()
    starts = RandomWindows(count, length, seed).batch_indices(step, size)
    assert len(starts) == size and all(0 <= start <= count - length for start in starts)
    assert starts == RandomWindows(count, length, seed).batch_indices(step, size)
    assert torch.equal(state, torch.random.get_rng_state())  # nobody else's random numbers are used up


def test_windows_reach_every_place_and_differ() -> None:
    windows = RandomWindows(12, 3, seed=1)
    starts = Counter(start for step in range(300) for start in windows.batch_indices(step, 10))
    assert sorted(starts) == list(range(10)) and min(starts.values()) > 220
    assert (
        windows.batch_indices(0, 10)
        != windows.batch_indices(1, 10)
        != RandomWindows(12, 3, seed=2).batch_indices(1, 10)
    )


@given(counts, seeds, st.integers(1, 20), st.integers(1, 8), st.integers(0, 40))
def test_by_length_deals_the_same_examples(count: int, seed: int, size: int, pool: int, step: int) -> None:
    order, lengths = ShuffledEpochs(count, seed), [(7 * number) % 23 for number in range(count)]
    grouped = LengthGroups(order, lengths.__getitem__, pool)
    begin = step // pool * pool
    dealt = [grouped.batch_indices(number, size) for number in range(begin, begin + pool)]
    assert all(len(batch) == size for batch in dealt)
    assert sorted(chain(*dealt)) == sorted(
        chain(*(order.batch_indices(number, size) for number in range(begin, begin + pool)))
    )
    assert LengthGroups(ShuffledEpochs(count, seed), lambda number: lengths[number], pool).batch_indices(
        step, size
    ) == grouped.batch_indices(step, size)


def test_by_length_pads_less_and_does_not_always_begin_with_the_short_ones() -> None:
    order, lengths = ShuffledEpochs(5000, 3), [1 + (7919 * number) % 100 for number in range(5000)]
    grouped = LengthGroups(order, lengths.__getitem__)

    def waste(choice: BatchOrder) -> float:
        batches = [[lengths[number] for number in choice.batch_indices(step, 16)] for step in range(64)]
        return sum(len(batch) * max(batch) for batch in batches) / sum(map(sum, batches))

    assert waste(grouped) < 1.1 < 1.5 < waste(order)
    means = [sum(lengths[number] for number in grouped.batch_indices(step, 16)) / 16 for step in range(32)]
    assert means != sorted(means)


@given(st.lists(st.lists(st.integers(0, 999), max_size=9), min_size=1, max_size=7), st.integers(-100, 1000))
def test_padded_is_what_torch_pads(lists: list[list[int]], value: int) -> None:
    ids, real = pad_sequences(lists, value)
    theirs = pad_sequence([torch.tensor(one, dtype=torch.long) for one in lists], batch_first=True, padding_value=value)
    assert torch.equal(ids, theirs) and ids.dtype == torch.long
    assert [row[keep].tolist() for row, keep in zip(ids, real, strict=True)] == lists


def test_what_cannot_be_meant_is_refused() -> None:
    for wrong in (
        lambda: ShuffledEpochs(0),
        lambda: ShuffledEpochs(5).batch_indices(-1, 3),
        lambda: ShuffledEpochs(5).batch_indices(0, 0),
        lambda: RandomWindows(5, 0),
        lambda: share([1], 1, 1),
        lambda: pad_sequences([], 0),
        lambda: LengthGroups(ShuffledEpochs(5), abs, 0),
    ):
        with pytest.raises(ArgumentError):
            wrong()
