"""The precision of training: the rule for "auto", run.json, resuming, and the message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from jumok.recipes import TrainingRequest, resume_run, start_run
from jumok.training import loop
from jumok.training.precision import choose_precision
from jumok.training.progress import ProgressDisplay
from recipe_runs import assert_same_run
from toys import StopAt, skip_plots

FIELDS: dict[str, Any] = {
    "steps": 4, "batch": 4, "evaluate_every": 4, "save_every": 4, "log_every": 1, "warmup": 1, "threads": 1,
}  # fmt: skip


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
            start_run(TrainingRequest("numbers", run, changes=FIELDS, report=messages.append), display=StopAt(2))
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
