"""Overviews of long maps: equal to pooling the whole map, without computing what the mask forbids."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import jumok
from jumok.draw import pooling
from jumok.draw.pooling import split_axis
from jumok.errors import ArgumentError
from jumok.lens.capture import captured_attention
from jumok.lens.capture.captured_attention import CapturedCall
from jumok.lens.capture.model_capture import Capture
from jumok.models.gpt import GPT, GPTConfig

TOKENS, SIZE = 53, 7


@pytest.fixture(params=[None, 11], ids=["causal", "window"])
def capture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Capture:
    """A capture whose rows count as long, so that its maps are computed block by block."""
    monkeypatch.setattr(captured_attention, "FULL_ROW_KEYS", 8)
    monkeypatch.setattr(pooling, "PIECE_KEYS", 4)
    monkeypatch.setattr(pooling, "PIECE_WEIGHTS", 16)
    torch.manual_seed(0)
    config = GPTConfig(vocabulary=31, length=TOKENS, width=12, layers=1, heads=2, hidden=8, window=request.param)
    with jumok.Lens(GPT(config).eval()) as lens:
        return lens.run(torch.randint(31, (1, TOKENS)))


def pool_by_loops(weights: Tensor, first_apart: bool = False) -> tuple[Tensor, Tensor]:
    rows = [*split_axis(len(weights), SIZE), len(weights)]
    columns = [*split_axis(weights.shape[1], SIZE, first_apart=first_apart), weights.shape[1]]
    cells = [
        [weights[rows[i] : rows[i + 1], columns[j] : columns[j + 1]].double() for j in range(len(columns) - 1)]
        for i in range(len(rows) - 1)
    ]
    largest = torch.tensor([[float(cell.max()) for cell in line] for line in cells])
    mean = torch.tensor([[float(cell.mean()) for cell in line] for line in cells])
    return largest, mean


@pytest.mark.parametrize("first_apart", [False, True])
def test_blocks_give_the_same_numbers_as_the_whole_map(capture: Capture, first_apart: bool) -> None:
    pooled = capture.overview(0, 1, SIZE, first_apart=first_apart)
    largest, mean = pool_by_loops(capture.weights(0, 1), first_apart)
    assert torch.allclose(pooled.largest, largest, atol=1e-7) and torch.allclose(pooled.mean, mean, atol=1e-7)


def test_forbidden_keys_are_not_computed(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = 0
    compute = CapturedCall.tile

    def count_cells(self: CapturedCall, row: int, head: int, queries: slice, keys: slice) -> Tensor:
        nonlocal cells
        tile = compute(self, row, head, queries, keys)
        cells += tile.numel()
        return tile

    monkeypatch.setattr(CapturedCall, "tile", count_cells)
    capture.overview(0, 0, SIZE)
    assert cells < 0.65 * TOKENS**2


def test_rows_without_log_sum_exp_are_computed_once(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    pooled = capture.overview(0, 0, SIZE)
    for call in capture.attention(0).calls:
        call.logsumexp = None  # as the linear backend leaves it
    rows = 0
    compute = CapturedCall._compute_full_rows

    def count_rows(self: CapturedCall, row: int, head: int, queries: slice) -> Tensor:
        nonlocal rows
        table = compute(self, row, head, queries)
        rows += len(table)
        return table

    monkeypatch.setattr(CapturedCall, "_compute_full_rows", count_rows)
    assert torch.allclose(capture.overview(0, 0, SIZE).mean, pooled.mean, atol=1e-7)
    assert rows == TOKENS


def test_a_preview_has_the_rows_in_the_middle_of_each_cell(capture: Capture) -> None:
    preview = capture.overview(0, 1, SIZE, rows_per_cell=1)
    weights = capture.weights(0, 1)
    rows = [*split_axis(TOKENS, SIZE), TOKENS]
    columns = [*split_axis(TOKENS, SIZE), TOKENS]
    for i in range(len(rows) - 1):
        line = weights[rows[i] + (rows[i + 1] - rows[i] - 1) // 2]
        for j in range(len(columns) - 1):
            part = line[columns[j] : columns[j + 1]]
            assert preview.largest[i, j] == pytest.approx(float(part.max()), abs=1e-7)
            assert preview.mean[i, j] == pytest.approx(float(part.mean()), abs=1e-7)
    complete = capture.overview(0, 1, SIZE, rows_per_cell=TOKENS)
    assert torch.equal(complete.largest, capture.overview(0, 1, SIZE).largest)
    with pytest.raises(ArgumentError, match="rows_per_cell must be at least 1"):
        capture.overview(0, 1, SIZE, rows_per_cell=0)


def test_progress_is_reported_and_can_stop_the_computation(capture: Capture) -> None:
    reports: list[tuple[int, int]] = []
    capture.overview(0, 1, SIZE, progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (TOKENS, TOKENS) and len(reports) == -(-TOKENS // 4)  # pieces of 4 rows

    def stop(done: int, total: int) -> None:
        raise InterruptedError

    threads = torch.get_num_threads()
    with pytest.raises(InterruptedError):
        capture.overview(0, 1, SIZE, progress=stop)
    assert torch.get_num_threads() == threads
