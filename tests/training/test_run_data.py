"""The data of a run: what a resumed run does when it has changed, and how many steps an epoch has."""

from __future__ import annotations

import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

import jumok
from jumok.cli import main
from jumok.errors import ArgumentError, TrainingError
from jumok.recipes import TrainingRequest, describe_fields, get_recipe, preview_training, resume_run
from jumok.training import apply_epochs
from jumok.training.displays import ProgressDisplay, SilentDisplay
from recipe_runs import SHORT, SMALL, assert_same_run, train
from toys import StopAt, skip_plots

pytestmark = pytest.mark.xdist_group("run_data")

STEPS = {**SHORT, "steps": 4, "evaluate_every": 2}
IMAGE = {"image": [8, 8], "patch": [4, 4], **SMALL, "vocabulary": 300, "decoder_layers": 1}
# recipe: (its file, its fields, whether it stores its data in the run's folder)
RECIPES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "text": ("book.txt", {**STEPS, **SMALL, "length": 16}, True),
    "masked": ("book.txt", {**STEPS, **SMALL, "length": 24, "vocabulary": 300}, True),
    "translate": ("pairs.tsv", {**STEPS, **SMALL, "length": 32, "vocabulary": 300}, True),
    "caption": ("images", {**STEPS, **IMAGE}, True),
    "image": ("images", {**STEPS, "image": [8, 8], "patch": [4, 4], **SMALL}, True),
    "sentiment": ("moods.tsv", {**STEPS, "width": 16, "heads": 2, "hidden": 32, "vocabulary": 300}, False),
    "copy": ("words.txt", {**STEPS, **SMALL, "held_out": 5}, False),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file or folder for every recipe that reads data."""
    folder = tmp_path_factory.mktemp("data")
    book = [f"In year {number} the cat sat\non the mat and 고양이 was glad." for number in range(60)]
    (folder / "book.txt").write_text("\n\n".join(book) + "\n", encoding="utf-8")
    pairs = [f"Open file {number}\t파일 {number} 열기" for number in range(60)]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    moods = [f"{word} day {number}\t{word}" for number in range(30) for word in ("good", "bad")]
    (folder / "moods.tsv").write_text("text\tlabel\n" + "\n".join(moods) + "\n", encoding="utf-8")
    (folder / "words.txt").write_text("".join(f"a{i % 7} b{i % 5} c{i % 3} d{i}\n" for i in range(60)))
    rng, captions = numpy.random.default_rng(1), ["file\tcaption"]
    for kind in ("dark", "light"):
        (folder / "images" / kind).mkdir(parents=True)
        for number in range(30):
            pixels = rng.integers(0, 90, (8, 8, 3)) + (0 if kind == "dark" else 160)
            Image.fromarray(pixels.astype(numpy.uint8)).save(folder / "images" / kind / f"{number}.png")
            captions.append(f"{kind}/{number}.png\ta {kind} picture")
    (folder / "images" / "captions.tsv").write_text("\n".join(captions) + "\n", encoding="utf-8")
    return folder


class Messages(ProgressDisplay):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def show_message(self, line: str, transient: bool = False) -> None:
        if not transient:
            self.lines.append(line)


def copy_data(source: Path, target: Path) -> Path:
    return Path((shutil.copytree if source.is_dir() else shutil.copy)(source, target))


def change_data(path: Path) -> None:
    """Change a letter or a pixel, so that counts and sizes stay equal."""
    if path.is_dir():
        path = sorted(path.rglob("*.png"))[0]
        Image.fromarray(numpy.full((8, 8, 3), 17, dtype=numpy.uint8)).save(path)
    else:
        content = bytearray(path.read_bytes())
        content[-2] = ord("x")
        path.write_bytes(content)


@pytest.mark.parametrize("recipe", RECIPES)
def test_changed_data(recipe: str, data: Path, tmp_path: Path) -> None:
    name, fields, is_stored = RECIPES[recipe]
    copied = copy_data(data / name, tmp_path / name)
    straight, run = tmp_path / "straight", tmp_path / "run"
    train(recipe, straight, copied, **fields)
    assert train(recipe, run, copied, StopAt(2), **fields).signal is not None

    os.utime(copied)  # touched, not changed
    display = Messages()
    with skip_plots():
        resume_run(run, display=StopAt(3))
        change_data(copied)
        if not is_stored:
            sentence = rf"{name} has changed.* since the run in .* the run has not stored its data; restore the data"
            with pytest.raises(TrainingError, match=sentence):
                resume_run(run, display=display)
            return
        assert resume_run(run, display=display).progress.finished
        warnings = [line for line in display.lines if "has changed" in line]
        assert len(warnings) == 1 and warnings[0].endswith("the run continues with the data that it has stored")
        assert_same_run(run, straight)

        shutil.rmtree(copied) if copied.is_dir() else copied.unlink()
        resume_run(run, steps=5, display=display)
    assert any(f"{name} no longer exists" in line for line in display.lines)


def test_untouched_data_says_nothing(data: Path, tmp_path: Path) -> None:
    name, fields, _ = RECIPES["text"]
    train("text", tmp_path / "run", data / name, StopAt(2), **fields)
    display = Messages()
    with skip_plots():
        resume_run(tmp_path / "run", display=display)
    assert display.lines == ["resuming from step 2, in float32 on cpu with 1 thread"]


def test_stored_tokens_that_must_be_rebuilt_from_changed_data_are_refused(data: Path, tmp_path: Path) -> None:
    name, fields, _ = RECIPES["text"]
    copied = copy_data(data / name, tmp_path / name)
    straight, run = tmp_path / "straight", tmp_path / "run"
    train("text", straight, copied, **fields)
    train("text", run, copied, StopAt(2), **fields)
    shutil.rmtree(run / "tokens")
    with skip_plots():
        resume_run(run, display=StopAt(3))  # rebuilt from the same data
    shutil.rmtree(run / "tokens")
    change_data(copied)
    with pytest.raises(TrainingError, match=r"book\.txt has changed since the run in"):
        resume_run(run)


@pytest.mark.parametrize("recipe", RECIPES)
def test_epochs_determine_the_steps(recipe: str, data: Path, tmp_path: Path) -> None:
    name, fields, _ = RECIPES[recipe]
    changes = {key: setting for key, setting in fields.items() if key != "steps"}
    request = TrainingRequest(recipe, tmp_path, str(data / name), changes={**changes, "epochs": 2, "batch": 7})
    task = get_recipe(recipe).build(request)
    assert task.examples is not None and task.examples > 10
    assert apply_epochs(task).settings.steps == math.ceil(2 * task.examples / 7)


def test_epochs_train_through_the_command_line(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, fields, _ = RECIPES["sentiment"]
    changes = [f"--set={key}={setting}" for key, setting in fields.items() if key not in ("steps", "batch")]
    arguments = ["train", "sentiment", "--data", str(data / name), "--out", str(tmp_path / "run"), "--json", *changes]
    monkeypatch.setattr(sys, "argv", ["jumok", *arguments, "--batch", "16", "--epochs", "2"])
    with skip_plots():
        main()
    examples = preview_training("sentiment", data=data / name, display=SilentDisplay())["counts"]
    steps = jumok.train(resume=tmp_path / "run", display=SilentDisplay()).progress.step
    assert steps == math.ceil(2 * next(iter(examples.values())) / 16)
    with skip_plots():
        longer = jumok.train(resume=tmp_path / "run", steps=steps + 1, display=SilentDisplay())
    assert longer.progress.step == steps + 1, "steps replace the epochs"

    monkeypatch.setattr(sys, "argv", ["jumok", *arguments, "--out", str(tmp_path / "both"), "--epochs=2", "--steps=9"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "give either steps or epochs, not both" in capsys.readouterr().err and not (tmp_path / "both").exists()


def test_generated_data_has_no_epochs(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="generates new examples at each step and has no epochs; give steps"):
        jumok.train("numbers", out=tmp_path / "run", epochs=2, display=SilentDisplay())
    assert not (tmp_path / "run").exists()
    rows = {row["field"]: row for row in describe_fields(TrainingRequest("text", tmp_path))}
    assert rows["epochs"]["default"] is None and "instead of steps" in rows["epochs"]["help"]


def test_loss_plot_names_its_axes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels: list[tuple[str, str]] = []

    def record_labels(figure: Any, path: Path) -> Path:
        labels.append((figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()))
        return path

    monkeypatch.setattr("jumok.draw.figure.save_figure", record_labels)
    jumok.train("numbers", out=tmp_path / "run", steps=2, width=16, hidden=16, display=SilentDisplay())
    assert labels == [("step", "loss")]
