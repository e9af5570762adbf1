"""Damaged files of a run: repaired on --resume, or named in one sentence; never a traceback or a silent gap."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jumok
from jumok.checkpoint import run_folder
from jumok.cli import main
from jumok.errors import CheckpointError, TrainingError
from jumok.recipes import TrainingRequest, resume_run, start_run
from jumok.recipes.report import compare_runs
from jumok.training.displays import ProgressDisplay
from jumok.training.metrics_log import read_metrics
from toys import StopAt, skip_plots

pytestmark = pytest.mark.xdist_group("damaged_run")

FIELDS = {
    "steps": 12, "evaluate_every": 4, "save_every": 4, "log_every": 2, "width": 16, "hidden": 16, "batch": 8,
    "threads": 1, "precision": "float32",
}  # fmt: skip
GARBAGE = {
    "empty": b"",
    "cut": b'{"checkpoint": "step-0000',
    "binary": b"\x00\xff\xfe\x80" * 50,
    "list": b"[1, 2]\n",
    "number": b"3\n",
    "null": b"null\n",
    "missing keys": b"{}\n",
    "nan": b'{"checkpoint": NaN, "recipe": NaN, "step": NaN}\n',
    "wrong types": b'{"checkpoint": ["step-00000004"], "recipe": {}, "step": "4", "changes": 7}\n',
    "another path": b'{"checkpoint": "../../etc"}\n',
    "deep": b"[" * 100_000,
}


class Messages(ProgressDisplay):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def show_message(self, line: str, transient: bool = False) -> None:
        if not transient:
            self.lines.append(line)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run that was stopped after step 10, and the same run without interruption."""
    folder = tmp_path_factory.mktemp("runs")
    with skip_plots():
        start_run(TrainingRequest("numbers", folder / "straight", changes=FIELDS))
        start_run(TrainingRequest("numbers", folder / "stopped", changes=FIELDS), display=StopAt(10))
    return {name: folder / name for name in ("straight", "stopped")}


@pytest.fixture
def stopped(tmp_path: Path, runs: dict[str, Path]) -> Path:
    return Path(shutil.copytree(runs["stopped"], tmp_path / "run"))


def resume(run: Path) -> list[str]:
    """Resume a run to its end, and return its messages."""
    display = Messages()
    with skip_plots():
        assert resume_run(run, display=display).progress.finished
    assert all("\n" not in line and len(line) < 500 for line in display.lines)
    return display.lines


def assert_same_model(run: Path, expected: Path) -> None:
    for pointer in ("best", "last"):
        actual, other = run_folder.read_pointer(run, pointer), run_folder.read_pointer(expected, pointer)
        assert actual is not None and other is not None
        assert (actual / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.parametrize("pointer", ["best", "last"])
def test_damaged_pointer_is_repaired(stopped: Path, runs: dict[str, Path], pointer: str, kind: str) -> None:
    (stopped / f"{pointer}.json").write_bytes(GARBAGE[kind])
    if pointer == "best":
        sentence = r"best.json in .* is damaged: it does not name a checkpoint; repair it with: jumok train --resume "
        with pytest.raises(CheckpointError, match=sentence):
            jumok.load(stopped)
    messages = [line for line in resume(stopped) if "best" in line or "last" in line]
    assert len(messages) == 1, messages
    assert re.search(rf"{pointer}\.json in .* is damaged.*; it was repaired and now names step-000000", messages[0])
    assert_same_model(stopped, runs["straight"])
    jumok.load(stopped)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "is missing"), ('{"checkpoint": "step-00000007"}', "names a checkpoint that is gone")],
)
@pytest.mark.parametrize("pointer", ["best", "last"])
def test_lost_pointer_is_repaired_and_said(
    stopped: Path, runs: dict[str, Path], pointer: str, content: str | None, problem: str
) -> None:
    path = stopped / f"{pointer}.json"
    name = json.loads(path.read_text())["checkpoint"]
    path.unlink() if content is None else path.write_text(content)
    messages = [line for line in resume(stopped) if "best" in line or "last" in line]
    assert messages == [f"{pointer}.json in {stopped} {problem}; it was repaired and now names {name}"]
    assert_same_model(stopped, runs["straight"])


def test_undamaged_pointers_say_nothing(stopped: Path) -> None:
    assert resume(stopped) == ["resuming from step 10, in float32 on cpu with 1 thread"]


def test_lost_best_checkpoint_is_replaced_and_said(stopped: Path) -> None:
    best = run_folder.read_pointer(stopped, "best")
    assert best is not None and best.name == "step-00000008"
    shutil.rmtree(best)
    messages = resume(stopped)
    assert "the best checkpoint, of step 8, is gone; that of step 10 replaces it for now" in messages
    replaced = "names a checkpoint that is gone; it was repaired and now names step-00000010"
    assert f"best.json in {stopped} {replaced}" in messages
    assert json.loads((stopped / "report.json").read_text())["best_step"] == 12
    best = run_folder.read_pointer(stopped, "best")
    assert best is not None and best.name == "step-00000012"


@pytest.mark.parametrize("pointer", ["best.json", "last.json"])
def test_folder_without_record_is_named(
    stopped: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pointer: str
) -> None:
    """The pointers do not matter: the newest checkpoint is named."""
    (stopped / "run.json").unlink()
    (stopped / pointer).unlink()
    checkpoint = stopped / "checkpoints/step-00000010"
    problem = f"{stopped} has checkpoints but no run.json"
    with pytest.raises(CheckpointError, match=f"{re.escape(problem)}.*load one by its path: {checkpoint}"):
        jumok.load(stopped)
    monkeypatch.setattr(sys, "argv", ["jumok", "train", "--resume", str(stopped)])
    with pytest.raises(SystemExit, match="2"):
        main()
    error = capsys.readouterr().err
    assert problem in error and f"jumok train RECIPE --from {checkpoint}" in error and error.count("\n") == 1
    jumok.load(checkpoint)


def test_pointer_damaged_during_training(tmp_path: Path, runs: dict[str, Path]) -> None:
    class Damage(ProgressDisplay):
        def show_step(self, step: int, loss: float, speed: float) -> None:
            if step == 6:
                (tmp_path / "run/best.json").write_bytes(b"\xff")

        def show_evaluation(self, step: int, metrics: dict[str, float], best: bool) -> None:
            best_steps.append(step if best else 0)

    best_steps: list[int] = []
    with skip_plots():
        start_run(TrainingRequest("numbers", tmp_path / "run", changes=FIELDS), display=Damage())
    assert any(best_steps)
    assert_same_model(tmp_path / "run", runs["straight"])


def damage_line(content: bytes, garbage: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join([*lines[:1], garbage, *lines[2:]])


def remove_evaluation(content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b'{"step": 4, "evaluation_'))


LINES = {
    "bytes": b"\xff\xfe\n",
    "a list": b"[4]\n",
    "text": b'{"step": 4, "loss": "low"}\n',
    "no step": b'{"loss": 4.0}\n',
    "null": b'{"step": 4, "loss": null}\n',
    "a boolean": b'{"step": true, "loss": 1.0}\n',
    "a fraction": b'{"step": 4.5, "loss": 1.0}\n',
    "a huge number": b'{"step": 4, "loss": 1' + b"0" * 400 + b"}\n",
    "brackets": b"[" * 100_000 + b"\n",
}
# name: (how the file is damaged, what is said)
DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "removed": (lambda content: b"", r"lines are missing \(steps 1 to 10\)"),
    "binary": (lambda content: b"\x00\xff\n\x80", r"1 damaged lines .* missing \(steps 1 to 10\).*was incomplete"),
    "cut start": (lambda content: content[content.index(b'{"step": 4') :], r"lines are missing \(steps 1 to 2\)"),
    "cut end": (lambda content: content[: content.index(b'{"step": 8') + 9], r"missing \(steps 8 to 10\).*incomplete"),
    "without the first evaluation": (remove_evaluation, r"lines are missing \(steps 4\)"),
    "half a line": (lambda content: content + b'{"step": 11, "lo', "last line was incomplete and was removed"),
    **{
        f"a line of {kind}": (
            lambda content, line=line: damage_line(content, line),
            r"1 damaged lines .*; lines are missing \(steps 2\)",
        )
        for kind, line in LINES.items()
    },
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["metrics.jsonl", "speed.jsonl"])
def test_damaged_log_is_repaired_and_said(stopped: Path, runs: dict[str, Path], name: str, damage: str) -> None:
    change, sentence = DAMAGE[damage]
    path = stopped / name
    path.write_bytes(change(path.read_bytes()))
    messages = [line for line in resume(stopped) if line.startswith(f"{name}: ")]
    if damage == "without the first evaluation" and name == "speed.jsonl":  # it has none
        assert messages == []
        return
    assert len(messages) == 1 and re.search(sentence, messages[0]), messages
    rows = read_metrics(stopped, name)
    assert all(json.loads(line) for line in path.read_text().splitlines()) and rows[-1]["step"] == 12
    if damage == "half a line" and name == "metrics.jsonl":
        assert path.read_bytes() == (runs["straight"] / name).read_bytes()
    assert not [line for line in resume(stopped) if "damaged" in line or "incomplete" in line], "said once"


def test_undamaged_log_says_nothing(stopped: Path, runs: dict[str, Path]) -> None:
    assert not [line for line in resume(stopped) if ".jsonl" in line]
    assert (stopped / "metrics.jsonl").read_bytes() == (runs["straight"] / "metrics.jsonl").read_bytes()


def change_record(run: Path, **changes: Any) -> bytes:
    record = json.loads((run / "run.json").read_text()) | changes
    return json.dumps({name: content for name, content in record.items() if content != "REMOVED"}).encode()


RECORDS: dict[str, dict[str, Any]] = {
    "without recipe": {"recipe": "REMOVED"},
    "without changes": {"changes": "REMOVED"},
    "without facts": {"data_facts": "REMOVED"},
    "recipe as list": {"recipe": ["numbers"]},
    "recipe as nan": {"recipe": float("nan")},
    "data as number": {"data": 5},
    "start as list": {"start": []},
    "changes as list": {"changes": [1]},
    "skip_bad as text": {"skip_bad": "no"},
    "facts as list": {"data_facts": [1]},
    "files as text": {"data_files": "all"},
}


@pytest.mark.parametrize("kind", [*GARBAGE, *RECORDS])
def test_damaged_record_is_named(
    stopped: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = GARBAGE[kind] if kind in GARBAGE else change_record(stopped, **RECORDS[kind])
    (stopped / "run.json").write_bytes(content)
    sentence = r"run.json is damaged and cannot be rebuilt \(.+\); restore it .* jumok train RECIPE --from "
    with pytest.raises(TrainingError, match=sentence):
        resume_run(stopped)
    jumok.load(stopped)  # the model is not concerned

    monkeypatch.setattr(sys, "argv", ["jumok", "train", "--resume", str(stopped)])
    with pytest.raises(SystemExit, match="2"):
        main()
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and len(error) < 700
    monkeypatch.setattr(sys, "argv", ["jumok", "train", "numbers", "--out", str(stopped)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "already exists; choose another folder with --out" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "sentence"), [("steps", "steps"), ("width", "width"), ("no_such_field", "no field")])
def test_damaged_field_is_named(stopped: Path, name: str, sentence: str) -> None:
    changes = {**FIELDS, name: float("nan")}
    (stopped / "run.json").write_bytes(change_record(stopped, changes=changes))
    with pytest.raises(jumok.JumokError, match=sentence):
        resume_run(stopped)


@pytest.mark.parametrize("kind", GARBAGE)
def test_damaged_report_is_written_again(tmp_path: Path, runs: dict[str, Path], kind: str) -> None:
    run = Path(shutil.copytree(runs["straight"], tmp_path / "run"))
    expected = json.loads((run / "report.json").read_text())
    (run / "report.json").write_bytes(GARBAGE[kind])
    if kind in ("empty", "binary", "list"):
        with pytest.raises(CheckpointError, match=r"report\.json"):
            compare_runs([run])
    messages = resume(run)
    assert f"report.json in {run} is damaged; it is written again" in messages
    assert json.loads((run / "report.json").read_text()) == expected
