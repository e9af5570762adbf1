"""Threads: the rule of training, absurd numbers, run.json, resuming, and how long threads wait for each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from jumok import threads
from jumok.cli import cli
from jumok.errors import ArgumentError
from jumok.models.gpt import GPTConfig
from jumok.recipes import resume_run
from jumok.recipes import train as train_recipe
from jumok.threads import choose_training_threads, use_threads
from jumok.training import Settings, World, loop
from jumok.training.displays import ProgressDisplay
from jumok.training.loop import fix_settings
from jumok.training.step import estimate_work
from recipe_runs import assert_same_run
from toys import StopAt, skip_plots, toy

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
    count: int = json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"]["threads"]
    return count


def test_more_work_gets_more_threads_up_to_the_limit() -> None:
    share = threads.WORK_PER_THREAD
    assert [choose_training_threads(work, 4) for work in (0.0, 1.9 * share, 2 * share, 3.5 * share, 99 * share)] == [
        1, 1, 2, 3, 4,
    ]  # fmt: skip
    assert choose_training_threads(1e18, 1) == 1


def test_work_of_a_step_counts_matrices_and_rows() -> None:
    config = GPTConfig(vocabulary=16, length=12, width=16, layers=1, heads=2, hidden=32)
    block = 16 * 48 + 16 * 16 + 16 * 32 + 32 * 16  # query, key, value; output; feed-forward
    task = toy(config)
    head = sum(parameter.numel() for name, parameter in task.model.named_parameters() if name == "head.weight")
    assert estimate_work(task, World()) == 6 * (block + head) * 8 * 8  # 8 sequences of 8 tokens
    assert estimate_work(toy(config, accumulate=2), World()) == 6 * (block + head) * 4 * 8


@needs_two_cores
def test_threads_follow_work(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "count_cores", lambda: 2)
    assert fix_settings(toy(), World()).settings.threads == 1  # the steps are small
    monkeypatch.setattr(threads, "WORK_PER_THREAD", 1.0)
    assert fix_settings(toy(), World()).settings.threads == 2
    assert fix_settings(toy(threads=1), World()).settings.threads == 1


@pytest.mark.parametrize("count", [CORES + 1, 100_000])
def test_more_threads_than_cores_are_refused(count: int, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=rf"^threads cannot be {count:,}: this machine has {CORES} core"):
        Settings(threads=count)
    shown = CliRunner().invoke(cli, ["train", "numbers", "--threads", str(count), "--out", str(tmp_path / "run")])
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


def test_setting_of_the_caller_is_restored(two_threads: None) -> None:
    with use_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="inside"), use_threads(1):
        raise ValueError("inside")
    assert torch.get_num_threads() == 2


def test_other_python_threads_keep_their_setting(two_threads: None) -> None:
    """Each of two Python threads restores its own number."""
    after: list[int] = []

    def compute(number: int) -> None:
        torch.set_num_threads(number)
        for _ in range(20):
            with use_threads(1):
                torch.ones(64, 64) @ torch.ones(64, 64)
        after.append(torch.get_num_threads())

    workers = [threading.Thread(target=compute, args=[number]) for number in (3, 4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(after) == [3, 4]
    torch.set_num_threads(2)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "5"}, "5"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_import_shortens_the_waits_of_threads_unless_the_user_has_set_them(
    settings: dict[str, str], expected: str
) -> None:
    environment = {name: text for name, text in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    program = "import jumok, os, sys; assert 'torch' not in sys.modules; print(os.environ.get('GOMP_SPINCOUNT'))"
    shown = subprocess.run(
        [sys.executable, "-c", program], env=environment | settings, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == expected
