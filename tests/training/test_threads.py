"""Threads of training: the rule, refusing absurd numbers, run.json, resuming, and the message on a busy machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from jumok.cli import cli
from jumok.errors import ArgumentError
from jumok.models.gpt import GPTConfig
from jumok.recipes import train as train_recipe
from jumok.recipes.run import resume_run
from jumok.threads import SlowdownWatch, choose_training_threads, limit_to_free_cores, rule, use_threads
from jumok.threads.slowdown import WINDOW_STEPS, WINDOWS
from jumok.training import Settings, World, fit, loop
from jumok.training.loop import fix_threads
from jumok.training.progress import ProgressDisplay
from jumok.training.step import estimate_work
from recipe_runs import assert_same_run
from toys import StopAt, new_run, skip_plots, toy

CORES = os.cpu_count() or 1
needs_two_cores = pytest.mark.skipif(CORES < 2, reason="this machine has one core")
NUMBERS: dict[str, Any] = {"steps": 6, "batch": 4, "evaluate_every": 3, "save_every": 2, "log_every": 1, "warmup": 1}


class Messages(ProgressDisplay):
    """Collects the messages of a run."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show_message(self, line: str, transient: bool = False) -> None:
        if not transient:
            self.lines.append(line)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Let PyTorch use two threads, as outside the tests."""
    previous = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(previous)


def read_threads(run: Path) -> int:
    threads: int = json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"]["threads"]
    return threads


def test_more_work_gets_more_threads_up_to_the_limit() -> None:
    share = rule.WORK_PER_THREAD
    assert [choose_training_threads(work, 4) for work in (0.0, 1.9 * share, 2 * share, 3.5 * share, 99 * share)] == [
        1, 1, 2, 3, 4,
    ]  # fmt: skip
    assert choose_training_threads(1e18, 1) == 1


def test_busy_cores_are_left_to_other_programs() -> None:
    assert [limit_to_free_cores(8, busy, cores=8) for busy in (0.0, 0.4, 1.0, 3.6, 8.0, 50.0)] == [8, 8, 7, 4, 1, 1]
    assert limit_to_free_cores(2, busy=6.0, cores=64) == 2


def test_work_of_a_step_counts_matrices_and_rows() -> None:
    config = GPTConfig(vocabulary=16, length=12, width=16, layers=1, heads=2, hidden=32)
    block = 16 * 48 + 16 * 16 + 16 * 32 + 32 * 16  # query, key, value; output; feed-forward
    task = toy(config)
    head = sum(parameter.numel() for name, parameter in task.model.named_parameters() if name == "head.weight")
    assert estimate_work(task, World()) == 6 * (block + head) * 8 * 8  # 8 sequences of 8 tokens
    assert estimate_work(toy(config, accumulate=2), World()) == 6 * (block + head) * 4 * 8


@needs_two_cores
@pytest.mark.parametrize(("busy", "hints"), [(0.0, 0), (1.5, 1)])
def test_threads_follow_work_and_busy_cores_only_give_a_hint(
    two_threads: None, monkeypatch: pytest.MonkeyPatch, busy: float, hints: int
) -> None:
    monkeypatch.setattr(loop, "count_busy_cores", lambda: busy * CORES / 2)
    monkeypatch.setattr(loop, "count_cores", lambda: 2)
    messages: list[str] = []
    assert fix_threads(toy(), World(), messages.append).settings.threads == 1  # the steps are small
    assert messages == []
    monkeypatch.setattr(rule, "WORK_PER_THREAD", 1.0)
    assert fix_threads(toy(), World(), messages.append).settings.threads == 2, "on any load"
    assert [line for line in messages if "--threads 1 may be faster than 2 threads" in line] == messages
    assert len(messages) == hints
    assert fix_threads(toy(threads=2), World(), messages.append).settings.threads == 2


@pytest.mark.parametrize("threads", [CORES + 1, 100_000])
def test_more_threads_than_cores_are_refused(threads: int, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=rf"^threads cannot be {threads:,}: this machine has {CORES} core"):
        Settings(threads=threads)
    shown = CliRunner().invoke(cli, ["train", "numbers", "--threads", str(threads), "--out", str(tmp_path / "run")])
    assert isinstance(shown.exception, ArgumentError) and not (tmp_path / "run").exists()


@needs_two_cores
def test_run_stores_its_threads_and_resumes_with_them(
    tmp_path: Path, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of two threads stays bit for bit the same when it is resumed where PyTorch uses one."""
    complete, resumed = tmp_path / "complete", tmp_path / "resumed"
    with skip_plots():
        with monkeypatch.context() as patch:  # the rule chooses two threads when the runs start
            patch.setattr(loop, "choose_training_threads", lambda work, limit: 2)
            patch.setattr(loop, "count_busy_cores", lambda: 0.0)
            train_recipe("numbers", out=complete, display=Messages(), **NUMBERS)
            train_recipe("numbers", out=resumed, display=StopAt(3), **NUMBERS)
        assert read_threads(resumed) == 2
        display = ThreadRecorder()
        with use_threads(1):
            resume_run(resumed, display=display)
    assert set(display.used) == {2}
    assert [line for line in display.lines if "thread" in line] == [
        "resuming from step 3, in float32 on cpu with 2 threads"
    ]
    assert_same_run(resumed, complete)


class ThreadRecorder(Messages):
    """Records the number of threads at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.used: list[int] = []

    def show_step(self, step: int, loss: float, speed: float) -> None:
        self.used.append(torch.get_num_threads())


@needs_two_cores
def test_resumed_run_may_use_other_threads_and_says_so(tmp_path: Path, two_threads: None) -> None:
    run = tmp_path / "run"
    with skip_plots():
        train_recipe("numbers", out=run, display=Messages(), threads=2, **{**NUMBERS, "steps": 4})
        display = ThreadRecorder()
        train_recipe(resume=run, steps=6, threads=1, display=display)
    assert set(display.used) == {1} and read_threads(run) == 1
    assert [line for line in display.lines if "thread" in line] == [
        "continuing with 1 thread instead of 2; the results will no longer be equal bit for bit",
        "resuming from step 4, in float32 on cpu with 1 thread",
    ]
    assert torch.get_num_threads() == 2


def test_run_from_a_larger_machine_continues_on_this_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with skip_plots():
        train_recipe("numbers", out=run, display=Messages(), **{**NUMBERS, "steps": 4})
        metadata = json.loads((run / "run.json").read_text())
        metadata["settings"]["threads"] = metadata["changes"]["threads"] = 100_000
        (run / "run.json").write_text(json.dumps(metadata))
        messages = Messages()
        resume_run(run, 6, display=messages)
    assert any("instead of 100000, as this machine has no more cores" in line for line in messages.lines)
    assert read_threads(run) == CORES


def test_resumed_run_with_absurd_threads_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with skip_plots():
        train_recipe("numbers", out=run, display=Messages(), **{**NUMBERS, "steps": 4})
        with pytest.raises(ArgumentError, match="threads cannot be 100,000"):
            resume_run(run, threads=100_000)
    assert read_threads(run) == 1


def test_command_changes_the_threads_of_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fields = [word for name, number in NUMBERS.items() if name != "steps" for word in ("--set", f"{name}={number}")]
    with skip_plots():
        shown = CliRunner().invoke(
            cli, ["train", "numbers", "--steps", "4", "--threads", "1", "--out", str(run), *fields]
        )
        assert shown.exit_code == 0, shown.output
        assert read_threads(run) == 1
        shown = CliRunner().invoke(cli, ["train", "--resume", str(run), "--steps", "6", "--threads", "1"])
        assert shown.exit_code == 0, shown.output


def add_seconds(watch: SlowdownWatch, seconds: float, step_seconds: float, targets: int = 100) -> list[bool]:
    """Add steps of one duration for a number of seconds."""
    return [watch.add(targets, step_seconds) for _ in range(round(seconds / step_seconds))]


def test_slowdown_is_reported_once() -> None:
    watch = SlowdownWatch()
    assert not any(add_seconds(watch, 30, 0.05))
    reports = add_seconds(watch, 30, 0.125)
    assert sum(reports) == 1 and reports.index(True) <= 5 / 0.125  # within seconds
    assert not any(add_seconds(watch, 30, 0.05)) and not any(add_seconds(watch, 30, 0.5))


def test_short_interruptions_and_slower_machines_are_no_slowdown() -> None:
    watch = SlowdownWatch()
    assert not any(add_seconds(watch, 20, 0.05))
    for _ in range(5):  # one step waits two seconds, as for a disk
        assert not watch.add(100, 2.0)
        assert not any(add_seconds(watch, 5, 0.05))
    assert not any(add_seconds(watch, 20, 0.09))  # less than twice as slow


def test_longer_sequences_are_no_slowdown() -> None:
    watch = SlowdownWatch()
    assert not any(add_seconds(watch, 20, 0.05, targets=100))
    assert not any(add_seconds(watch, 40, 0.25, targets=500))


@needs_two_cores
def test_busy_machine_is_announced_once_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's clock runs slowly at first, and ten times as fast from the middle of the run."""
    steps = 4 * WINDOWS * WINDOW_STEPS
    now = 0.0

    def read_clock() -> float:
        nonlocal now
        now += 5.0 if len(display.used) > steps // 2 else 0.5
        return now

    monkeypatch.setattr(loop.time, "perf_counter", read_clock)
    for threads, expected in ((2, 1), (1, 0)):
        run = new_run(tmp_path / f"run {threads}")
        display = ThreadRecorder()
        fit(toy(steps=steps, evaluate_every=steps, save_every=steps, threads=threads), run, display=display)
        announced = [line for line in display.lines if "twice as long" in line]
        assert len(announced) == expected
        assert all(f"jumok train --resume '{run}' --threads 1" in line for line in announced)
