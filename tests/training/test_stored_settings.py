"""Settings that a run stores, so that a resumed run keeps them: the precision, with its rule, and the steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from jumok.recipes import TrainingRequest, resume_run, start_run
from jumok.training import loop
from jumok.training.displays import ProgressDisplay
from jumok.training.precision import choose_precision
from recipe_runs import SHORT, SMALL, assert_same_run, train, write_book
from toys import StopAt, skip_plots

FIELDS: dict[str, Any] = {
    "steps": 4, "batch": 4, "evaluate_every": 4, "save_every": 4, "log_every": 1, "warmup": 1, "threads": 1,
}  # fmt: skip
NUMBERS: dict[str, Any] = {**SHORT, "width": 16, "hidden": 16, "steps": 3, "evaluate_every": 3, "threads": 1}


class Messages(ProgressDisplay):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def show_message(self, line: str, transient: bool = False) -> None:
        if not transient:
            self.lines.append(line)


def read_settings(run: Path) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"]
    return settings


class KilledError(Exception):
    """Ends a run as if it were killed before its first step."""


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_rule_depends_on_the_device_only(monkeypatch: pytest.MonkeyPatch, has_bfloat16: bool) -> None:
    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return has_bfloat16 or including_emulation  # as torch answers for a GPU that only emulates bfloat16

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)  # there is no GPU here
    assert choose_precision(torch.device("cuda")) == ("bfloat16" if has_bfloat16 else "float32")
    assert choose_precision(torch.device("cpu")) == choose_precision(torch.device("mps")) == "float32"


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_precision_is_stored_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    def stop(state: object) -> None:
        raise KilledError

    monkeypatch.setattr(loop, "train_step", stop)
    request = TrainingRequest("numbers", tmp_path / "run", changes={**FIELDS, "precision": precision})
    with pytest.raises(KilledError):
        start_run(request)
    assert read_settings(tmp_path / "run")["precision"] == ("float32" if precision == "auto" else precision)


def test_killed_run_continues_in_its_stored_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without a checkpoint, and where the rule would choose another precision now."""
    straight, run = tmp_path / "straight", tmp_path / "run"
    messages: list[str] = []
    with skip_plots():
        with monkeypatch.context() as patch:
            patch.setattr(loop, "choose_precision", lambda device: "bfloat16")
            start_run(TrainingRequest("numbers", straight, changes=FIELDS))
            start_run(TrainingRequest("numbers", run, changes=FIELDS, show_message=messages.append), display=StopAt(2))
        for checkpoint in (run / "checkpoints").iterdir():
            checkpoint.rename(tmp_path / checkpoint.name)
        for name in ("last.json", "metrics.jsonl", "speed.jsonl"):
            (run / name).unlink()
        display = Messages()
        resume_run(run, display=display)
    assert display.lines == [
        "no checkpoint was saved yet: training from the first step, in bfloat16 on cpu with 1 thread"
    ]
    assert f"training into {run}, in bfloat16 on cpu with 1 thread" in messages
    assert read_settings(run)["precision"] == "bfloat16"
    assert_same_run(run, straight)


def test_longer_run_that_is_stopped_continues_to_its_new_end(tmp_path: Path) -> None:
    straight, run = tmp_path / "straight", tmp_path / "run"
    with skip_plots():
        for folder in (straight, run):
            start_run(TrainingRequest("numbers", folder, changes=NUMBERS))
        resume_run(straight, steps=9)
        assert not resume_run(run, steps=9, display=StopAt(5)).progress.finished
        assert resume_run(run).progress.step == 9
    assert read_settings(run)["steps"] == 9
    assert_same_run(run, straight)


@pytest.mark.parametrize("steps", [2, 4])
def test_steps_that_are_already_done_are_not_kept(tmp_path: Path, steps: int) -> None:
    run = tmp_path / "run"
    with skip_plots():
        start_run(TrainingRequest("numbers", run, changes={**NUMBERS, "steps": 6}), display=StopAt(4))
        assert not resume_run(run, steps=steps).trained
        assert resume_run(run).progress.step == 6


def test_steps_replace_epochs(tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    fields = {**SHORT, **SMALL, "length": 16, "epochs": 1, "evaluate_every": 100}
    del fields["steps"]
    train("text", tmp_path / "run", write_book(tmp_path / "book"), StopAt(2), **fields)
    with skip_plots():
        resume_run(tmp_path / "run", steps=5, display=StopAt(3))
        assert resume_run(tmp_path / "run").progress.step == 5
    assert read_settings(tmp_path / "run")["epochs"] is None
