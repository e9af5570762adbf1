"""The beginning of a run: one writer, a request that is stored first, and a kill while the data is prepared."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.checkpoint import run_folder
from jumok.checkpoint.run_folder import LOCK_FILE, lock_run
from jumok.cli import main
from jumok.data import token_shards
from jumok.errors import ArgumentError, TrainingError
from jumok.recipes import resume_run
from jumok.recipes.run_record import format_resume_command
from jumok.recipes.shared import run_tokenizer
from jumok.training import Outcome
from jumok.training.displays import SilentDisplay
from recipe_runs import SHORT, SMALL, assert_same_run, train, write_book, write_pairs
from toys import skip_plots

pytestmark = [pytest.mark.xdist_group("run_start"), pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]

TEXT = {**SHORT, **SMALL, "length": 16, "steps": 2, "evaluate_every": 2}
TRANSLATE = {**SHORT, **SMALL, "length": 32, "vocabulary": 300, "steps": 2, "evaluate_every": 2}
MASKED = {**SHORT, **SMALL, "length": 24, "vocabulary": 300, "steps": 2, "evaluate_every": 2}
RECIPES: dict[str, dict[str, Any]] = {"text": TEXT, "masked": MASKED, "translate": TRANSLATE}


@pytest.fixture(scope="module", autouse=True)
def _single_thread() -> Iterator[None]:
    """Threads do not survive a fork."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("data")
    (folder / "book").mkdir()
    book = write_book(folder / "book")
    return {"text": book, "masked": book, "translate": write_pairs(folder / "pairs.tsv")}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> dict[str, Path]:
    """A run of each recipe that was never interrupted."""
    folder = tmp_path_factory.mktemp("straight")
    for recipe, fields in RECIPES.items():
        train(recipe, folder / recipe, data[recipe], **fields)
    return {recipe: folder / recipe for recipe in RECIPES}


def die(*arguments: object, **options: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in_child(work: Callable[[], object], prepare: Callable[[], None]) -> None:
    """Run a function in a new process, in which ``prepare`` patched in a kill."""
    process = os.fork()
    if not process:
        try:
            prepare()
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def patch_before_tokenizer() -> None:
    run_tokenizer.save_tokenizer = die


def patch_half_a_tokenizer() -> None:
    def save_half(tokenizer: object, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text("{")
        die()

    run_tokenizer.Tokenizer.save = save_half


def patch_half_of_the_tokens() -> None:
    append, calls = token_shards.ShardWriter.append, iter(range(100))

    def append_and_die(writer: token_shards.ShardWriter, token_ids: list[int]) -> None:
        append(writer, token_ids)
        if next(calls) == 1:
            die()

    token_shards.ShardWriter.append = append_and_die


def patch_after_the_tokens() -> None:
    token_shards.TokenShards.__init__ = die


def patch_after_the_build() -> None:
    sys.modules["jumok.recipes.training_run"].write_record = die


KILLS = {
    "before the tokenizer": patch_before_tokenizer,
    "half a tokenizer": patch_half_a_tokenizer,
    "half of the tokens": patch_half_of_the_tokens,
    "after the tokens": patch_after_the_tokens,
    "after the build": patch_after_the_build,
}


@pytest.mark.parametrize("kill", KILLS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_kill_while_data_is_prepared(
    tmp_path: Path, data: dict[str, Path], straight: dict[str, Path], recipe: str, kill: str
) -> None:
    run, fields = tmp_path / "run", RECIPES[recipe]
    kill_in_child(lambda: train(recipe, run, data[recipe], **fields), KILLS[kill])
    assert run_folder.is_run(run)
    with pytest.raises(jumok.JumokError, match="has no checkpoint yet"):
        jumok.load(run)
    with pytest.raises(ArgumentError, match=r"different request \(changes was .*jumok train --resume"):
        train(recipe, run, data[recipe], **{**fields, "steps": 3})

    if kill == "half of the tokens":  # --resume; the others continue with the same command
        with skip_plots():
            resume_run(run)
    else:
        train(recipe, run, data[recipe], **fields)
    assert_same_run(run, straight[recipe])
    assert not list(run.rglob(".*")) and not (run / LOCK_FILE).exists()
    assert json.loads((run / "run.json").read_text())["data_facts"]
    with pytest.raises(ArgumentError, match="already exists; resume it: jumok train --resume"):
        train(recipe, run, data[recipe], **fields)


def test_interrupted_preparation_with_changed_data_is_refused(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat\n" * 40)
    run = tmp_path / "run"
    kill_in_child(lambda: train("text", run, book, **TEXT), patch_after_the_tokens)
    book.write_text("the dog sat on the mat\n" * 50)
    sentence = r"book.txt has changed \(files: 1, bytes: 920; now files: 1, bytes: 1150\) since the run in"
    with pytest.raises(TrainingError, match=sentence):
        train("text", run, book, **TEXT)
    with pytest.raises(TrainingError, match=sentence):
        resume_run(run)


def test_folder_of_a_process_killed_before_it_stored_anything(tmp_path: Path, data: dict[str, Path]) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / LOCK_FILE).write_text("{}")
    (run / ".run.json.0123abcd").write_text("{")
    train("text", run, data["text"], **TEXT)
    assert not list(run.rglob(".*"))


def test_ctrl_c_while_data_is_prepared(
    tmp_path: Path, data: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    run = tmp_path / "my run"
    arguments = ["train", "text", "--data", str(data["text"]), "--out", str(run)]
    monkeypatch.setattr(sys, "argv", ["jumok", *arguments, *(f"--set={k}={v}" for k, v in TEXT.items())])
    with monkeypatch.context() as patch:
        patch.setattr("jumok.recipes.shared.stored_data.write_shards", interrupt)
        with pytest.raises(SystemExit, match="130"):
            main()
    last = capsys.readouterr().err.splitlines()[-1]
    command = last.removeprefix("stopped; continue with: ")
    assert shlex.split(command) == ["jumok", "train", "--resume", str(run)]
    with skip_plots():
        assert resume_run(run).progress.finished


def test_second_writer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], straight: dict[str, Path]
) -> None:
    run = tmp_path / "run"
    fields = {"steps": 2, "width": 16, "hidden": 16, "threads": 1}

    class SecondWriter(SilentDisplay):
        """Tries to write into the folder while it is being trained."""

        refusals = 0

        def show_step(self, step: int, loss: float, speed: float) -> None:
            holder = f"is being trained by process {os.getpid()} on"
            with pytest.raises(TrainingError, match=holder):
                jumok.train(resume=run, display=SilentDisplay())
            with pytest.raises((ArgumentError, TrainingError)):
                jumok.train("numbers", out=run, display=SilentDisplay(), **fields)
            monkeypatch.setattr(sys, "argv", ["jumok", "train", "--resume", str(run)])
            with pytest.raises(SystemExit, match="2"):
                main()
            error = capsys.readouterr().err
            assert holder in error and error.count("\n") == 1
            self.refusals += 1

        def show_evaluation(self, step: int, metrics: dict[str, float], best: bool) -> None:
            if run_folder.list_checkpoints(run):
                jumok.load(run)

    display = SecondWriter()
    with skip_plots():
        outcome: Outcome = jumok.train("numbers", out=run, device="cpu", display=display, save_every=1, **fields)
    assert outcome.progress.finished and display.refusals == 2


def test_new_run_in_a_locked_folder_is_refused_and_removes_nothing(tmp_path: Path) -> None:
    with lock_run(tmp_path):
        with pytest.raises(TrainingError, match="is being trained by process"):
            jumok.train("numbers", out=tmp_path, display=SilentDisplay())
        assert (tmp_path / LOCK_FILE).exists()


def test_printed_command_is_quoted(tmp_path: Path) -> None:
    for name in ("my run", "it's", "a;b", "$HOME", "주목"):
        assert shlex.split(format_resume_command(tmp_path / name))[-1] == str(tmp_path / name)
