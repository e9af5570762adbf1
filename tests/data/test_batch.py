"""Test the order of batches: every epoch has every example once, in an order that depends on (seed, step) alone."""

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

from jumok.data.batches.batch_order import LengthGroups, RandomWindows, ShuffledEpochs, pad_sequences
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
        batch = order.select_indices(step, size)
        assert len(batch) == size
        stream += batch
        step += 1
    for epoch in range(3):
        assert sorted(stream[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(counts, seeds, sizes, st.integers(0, 10**12))
def test_batch_depends_only_on_seed_step_and_size(count: int, seed: int, size: int, step: int) -> None:
    order = ShuffledEpochs(count, seed)
    before = order.select_indices(step, size)
    order.select_indices(step + 1, size)
    assert order.select_indices(step, size) == before == ShuffledEpochs(count, seed).select_indices(step, size)
    assert before + order.select_indices(step + 1, size) == [
        order.select_indices(step * size + offset, 1)[0] for offset in range(2 * size)
    ]


def test_epochs_and_seeds_have_different_orders() -> None:
    orders = {tuple(ShuffledEpochs(50, seed).select_indices(epoch, 50)) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400


@pytest.mark.parametrize("count", [3, 5, 23])
def test_orders_look_random(count: int) -> None:
    """Test by chi-square (5 deviations) that positions and successions of examples are uniformly distributed."""
    runs = 1500
    positions: Counter[tuple[int, int]] = Counter()
    successions: Counter[tuple[int, int]] = Counter()
    for seed in range(runs):
        indices = ShuffledEpochs(count, seed).select_indices(3, count)
        positions.update(enumerate(indices))
        successions.update(pairwise(indices))
    for table, cells, total in (
        (positions, count**2, runs * count),
        (successions, count * (count - 1), runs * (count - 1)),
    ):
        expected = total / cells
        statistic = sum((table[cell] - expected) ** 2 / expected for cell in table) + (cells - len(table)) * expected
        assert statistic < cells + 5 * (2 * cells) ** 0.5, (count, statistic, cells)


def test_order_never_changes_between_versions() -> None:
    """A later version must resume a run with the same examples."""
    assert ShuffledEpochs(10, 0).select_indices(0, 12) == [2, 0, 9, 8, 3, 5, 7, 4, 6, 1, 8, 2]
    assert RandomWindows(1000, 10, 0).select_starts(0, 3) == [37, 978, 780]


def test_hundred_million_examples_need_no_memory_or_time() -> None:
    program = (
        "import resource\nfrom jumok.data.batches.batch_order import ShuffledEpochs\n"
        "order = ShuffledEpochs(10**8, 1)\norder.select_indices(0, 64)\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nbefore = peak()\n"
        "indices = [index for step in (0, 1, 1562499, 1562500, 10**9) for index in order.select_indices(step, 64)]\n"
        "assert len(set(indices)) == 320 and all(0 <= index < 10**8 for index in indices)\n"
        "assert peak() - before < 20_000, peak() - before"
    )
    if sys.platform != "win32":
        subprocess.run([sys.executable, "-c", program], check=True)
    start = time.perf_counter()
    for step in range(20):
        ShuffledEpochs(10**8, 1).select_indices(step, 64)
    assert time.perf_counter() - start < 5


@given(st.integers(1, 500), st.integers(1, 500), seeds, sizes, st.integers(0, 10**9))
def test_windows_are_inside_the_text_and_reproducible(count: int, length: int, seed: int, size: int, step: int) -> None:
    if length > count:
        with pytest.raises(ArgumentError, match="does not fit into a text"):
            RandomWindows(count, length, seed)
        return
    state = torch.random.get_rng_state()
    starts = RandomWindows(count, length, seed).select_starts(step, size)
    assert len(starts) == size and all(0 <= start <= count - length for start in starts)
    assert starts == RandomWindows(count, length, seed).select_starts(step, size)
    assert torch.equal(state, torch.random.get_rng_state())  # the global generator is not used


def test_windows_cover_the_text_and_differ_by_step_and_seed() -> None:
    windows = RandomWindows(12, 3, seed=1)
    starts = Counter(start for step in range(300) for start in windows.select_starts(step, 10))
    assert sorted(starts) == list(range(10)) and min(starts.values()) > 220
    assert (
        windows.select_starts(0, 10)
        != windows.select_starts(1, 10)
        != RandomWindows(12, 3, seed=2).select_starts(1, 10)
    )


@given(counts, seeds, st.integers(1, 20), st.integers(1, 8), st.integers(0, 40))
def test_length_groups_contain_the_same_examples(count: int, seed: int, size: int, pool: int, step: int) -> None:
    order, lengths = ShuffledEpochs(count, seed), [(7 * index) % 23 for index in range(count)]
    grouped = LengthGroups(order, lengths.__getitem__, pool)
    begin = step // pool * pool
    batches = [grouped.select_indices(other, size) for other in range(begin, begin + pool)]
    assert all(len(batch) == size for batch in batches)
    assert sorted(chain(*batches)) == sorted(
        chain(*(order.select_indices(other, size) for other in range(begin, begin + pool)))
    )
    assert LengthGroups(ShuffledEpochs(count, seed), lambda index: lengths[index], pool).select_indices(
        step, size
    ) == grouped.select_indices(step, size)


def test_length_groups_pad_less_and_are_shuffled() -> None:
    order, lengths = ShuffledEpochs(5000, 3), [1 + (7919 * index) % 100 for index in range(5000)]
    grouped = LengthGroups(order, lengths.__getitem__)

    def padding_factor(batch_order: ShuffledEpochs | LengthGroups) -> float:
        batches = [[lengths[index] for index in batch_order.select_indices(step, 16)] for step in range(64)]
        return sum(len(batch) * max(batch) for batch in batches) / sum(map(sum, batches))

    assert padding_factor(grouped) < 1.1 < 1.5 < padding_factor(order)
    means = [sum(lengths[index] for index in grouped.select_indices(step, 16)) / 16 for step in range(32)]
    assert means != sorted(means)


@given(st.lists(st.lists(st.integers(0, 999), max_size=9), min_size=1, max_size=7), st.integers(-100, 1000))
def test_pad_sequences_agrees_with_torch(lists: list[list[int]], pad_token: int) -> None:
    ids, token_mask = pad_sequences(lists, pad_token)
    expected = pad_sequence(
        [torch.tensor(token_ids, dtype=torch.long) for token_ids in lists], batch_first=True, padding_value=pad_token
    )
    assert torch.equal(ids, expected) and ids.dtype == torch.long
    assert [row[keep].tolist() for row, keep in zip(ids, token_mask, strict=True)] == lists


def test_invalid_arguments_are_refused() -> None:
    for call in (
        lambda: ShuffledEpochs(0),
        lambda: ShuffledEpochs(5).select_indices(-1, 3),
        lambda: ShuffledEpochs(5).select_indices(0, 0),
        lambda: RandomWindows(5, 0),
        lambda: pad_sequences([], 0),
        lambda: LengthGroups(ShuffledEpochs(5), abs, 0),
    ):
        with pytest.raises(ArgumentError):
            call()
