"""Threads outside training: measured once per size, never above the caller's number, which is restored."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import jumok
from jumok.generate import stream_tokens
from jumok.models.gpt import GPT, GPTConfig
from jumok.threads import count_rows, measurement, use_fastest_threads, use_threads
from jumok.threads.measurement import choose_fastest_threads


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Let PyTorch use two threads, as outside the tests."""
    previous = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(previous)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the measured numbers of threads; one thread is the fastest."""
    numbers: list[int] = []

    def record(weights: list[torch.Tensor], inputs: dict[int, torch.Tensor]) -> float:
        numbers.append(torch.get_num_threads())
        return float(torch.get_num_threads())

    monkeypatch.setattr(measurement, "_time_pass", record)
    monkeypatch.setattr(measurement, "_fastest", {})
    return numbers


MODEL = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512))


def test_small_work_needs_one_thread_and_no_measurement(measured: list[int]) -> None:
    assert choose_fastest_threads(nn.Linear(8, 8), rows=16, limit=8) == 1
    assert measured == []


def test_each_size_is_measured_once(measured: list[int]) -> None:
    for rows in (50, 60, 64, 900):
        assert choose_fastest_threads(MODEL, rows, limit=8) == 1
    assert measured == [1, 4, 8]
    choose_fastest_threads(MODEL, 20, limit=8)
    assert measured == [1, 4, 8] * 2


def test_faster_threads_are_chosen(measured: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "_time_pass", lambda weights, inputs: 1 / torch.get_num_threads())
    assert choose_fastest_threads(MODEL, 64, limit=8) == 8
    monkeypatch.setattr(measurement, "_fastest", {})
    monkeypatch.setattr(measurement, "_time_pass", lambda weights, inputs: 1 / (1 + 0.05 * torch.get_num_threads()))
    assert choose_fastest_threads(MODEL, 64, limit=2) == 1  # too little is gained


def test_measurement_takes_milliseconds(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum the time that the measurement asks for, not the time that a busy machine takes."""
    monkeypatch.setattr(measurement, "_fastest", {})
    assert choose_fastest_threads(MODEL, 64, limit=2) in (1, 2)
    assert torch.get_num_threads() == 2
    assert 3 * measurement.SECONDS_PER_CANDIDATE <= 0.02


def test_caller_setting_is_restored(two_threads: None, measured: list[int]) -> None:
    with use_fastest_threads(MODEL, 64):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="inside"), use_fastest_threads(MODEL, 64):
        raise ValueError("inside")
    assert torch.get_num_threads() == 2


def test_one_thread_of_the_caller_stays_in_force(measured: list[int]) -> None:
    with use_threads(1), use_fastest_threads(MODEL, 64):
        assert torch.get_num_threads() == 1
    assert measured == []


def test_outermost_call_decides(two_threads: None, measured: list[int]) -> None:
    with use_threads(2), use_fastest_threads(MODEL, 64):
        assert torch.get_num_threads() == 2
    assert measured == []


def test_other_python_threads_keep_their_setting(two_threads: None, measured: list[int]) -> None:
    """Each of two Python threads restores its own number."""
    after: list[int] = []

    def compute(number: int) -> None:
        torch.set_num_threads(number)
        for _ in range(20):
            with use_fastest_threads(MODEL, 64):
                torch.ones(64, 64) @ torch.ones(64, 64)
        after.append(torch.get_num_threads())

    workers = [threading.Thread(target=compute, args=[number]) for number in (3, 4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(after) == [3, 4]
    torch.set_num_threads(2)


def test_rows_of_inputs() -> None:
    tokens, image = torch.zeros(2, 5, dtype=torch.long), torch.zeros(1, 3, 8, 8)
    assert count_rows([tokens]) == 10 and count_rows([tokens, image, None, 3]) == 24 and count_rows([]) == 1


@pytest.fixture(scope="module")
def gpt() -> GPT:
    torch.manual_seed(0)
    config = GPTConfig(vocabulary=32, length=64, width=512, layers=6, heads=4, hidden=1024)
    return GPT(config).eval()


def test_generation_restores_the_setting_between_tokens(two_threads: None, measured: list[int], gpt: GPT) -> None:
    used: list[int] = []
    handle = gpt.register_forward_hook(lambda *_: used.append(torch.get_num_threads()))
    steps = stream_tokens(gpt, [[1, 2, 3]], limit=8)
    for _ in range(3):
        next(steps)
        assert torch.get_num_threads() == 2
    del steps  # abandoned
    handle.remove()
    assert used == [1] * 3 and torch.get_num_threads() == 2


def test_lens_uses_the_measured_threads(two_threads: None, measured: list[int], gpt: GPT) -> None:
    used: list[int] = []
    handle = gpt.register_forward_hook(lambda *_: used.append(torch.get_num_threads()))
    with jumok.Lens(gpt) as lens:
        lens.run(list(range(20)))
        with pytest.raises(jumok.ArgumentError):
            lens.run([99])
    jumok.effect(gpt, list(range(20)), layers=0)
    handle.remove()
    assert set(used) == {1} and torch.get_num_threads() == 2


def test_lens_computes_what_the_model_computes(two_threads: None, gpt: GPT) -> None:
    tokens = torch.arange(20)[None]
    with use_threads(2), torch.no_grad(), jumok.Lens(gpt) as lens:
        assert torch.equal(lens.run(tokens, logits=True).output.logits, gpt(tokens).logits)
