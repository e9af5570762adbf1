"""jumok train and jumok compare as a person uses them: real processes, their output, their exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHORT = ["--steps", "20", "--set", "evaluate_every=10", "--set", "width=16", "--set", "hidden=16"]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jumok", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, encoding="utf-8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two short runs, in the folders that nobody chose."""
    place = tmp_path_factory.mktemp("person")
    for seed in "01":
        done = run("train", "numbers", "--seed", seed, *SHORT, cwd=place)
        assert done.returncode == 0, done.stderr
    return place


def test_a_run_goes_where_nothing_is_and_says_so(trained: Path) -> None:
    assert sorted(os.listdir(trained / "runs")) == ["numbers-1", "numbers-2"]
    done = run("train", "numbers", *SHORT, "--out", "third", cwd=trained)
    assert done.stdout.startswith("# jumok train numbers")
    assert "training into third" in done.stderr and "use it: jumok run third 10,20,30,40,50" in done.stderr
    assert "\r" not in done.stderr and "\x1b" not in done.stderr, "no bar and no colours where nobody looks"
    assert (trained / "third/report.md").read_text() in done.stdout + "\n"


def test_a_report_for_a_program(trained: Path) -> None:
    done = run("train", "numbers", *SHORT, "--out", "fourth", "--json", cwd=trained)
    told = json.loads(done.stdout)
    assert told["recipe"] == "numbers" and told["steps"] == 20 and done.stderr == ""


def test_a_finished_run_says_so(trained: Path) -> None:
    done = run("train", "--resume", "runs/numbers-1", cwd=trained)
    assert done.returncode == 0 and "this run is finished: 20 steps. Its report" in done.stdout
    fewer = run("train", "--resume", "runs/numbers-1", "--steps", "7", cwd=trained)
    assert fewer.returncode == 0 and "20 steps (7 are fewer: nothing to do)" in fewer.stdout
    longer = run("train", "--resume", "runs/numbers-2", "--steps", "30", "--json", cwd=trained)
    assert json.loads(longer.stdout)["steps"] == 30


def test_a_run_is_used_at_once(trained: Path) -> None:
    done = run("run", "runs/numbers-1", "10,20,30,40,50", cwd=trained)
    assert done.returncode == 0 and len(done.stdout.split()) == 5
    spaced = run("run", "runs/numbers-1", "10", "20", "30", "40", "50", cwd=trained)
    assert spaced.stdout == done.stdout, "one sequence, however it is written"
    negative = run("run", "runs/numbers-1", "-5,3", cwd=trained)
    assert negative.returncode == 2 and "jumok run MODEL -- -5,3" in negative.stderr
    assert run("run", "runs/numbers-1", "--", "-5,3", cwd=trained).returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "txt"), "there is no recipe 'txt'; did you mean 'text'?"),
        (("train", "numbers", "--device", "foo"), "there is no device 'foo' here; give cpu"),
        (("train", "text", "--data", "empty.txt"), "the file is empty; fix it, or skip such files"),
        (("run", "tiny", "missing.txt"), "there is no file missing.txt"),
    ],
)
def test_a_mistake_is_one_sentence(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2 and sentence in done.stderr and len(done.stderr.splitlines()) == 1


def test_files_are_open_to_whom_the_person_wants(trained: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    for path in (trained / "runs/numbers-1/checkpoints").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~mask, path


def test_recipes_are_listed(trained: Path) -> None:
    rows = json.loads(run("train", "--list", "--json", cwd=trained).stdout)
    names = {row["recipe"] for row in rows}
    wanted = "numbers copy reverse sort add induction text text-fast masked translate sentiment caption image"
    assert set(wanted.split()) == names
    shown = run("train", "--list", cwd=trained).stdout
    assert all(row["what"] in shown for row in rows)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give the name of a recipe"),
        (["numbers", "--resume", "runs/numbers-1"], "not both"),
        (["nombers"], "numbers"),
        (["numbers", "--out", "runs/numbers-1"], "is there already"),
        (["numbers", "--set", "wdith=16"], "did you mean 'width'"),
        (["numbers", "--set", "width"], "width"),
        (["numbers", "--set", "width=wide"], "width"),
        (["numbers", "--set", "width=-4"], "width"),
        (["numbers", "--set", "batch=0"], "batch"),
        (["numbers", "--device", "abacus"], "abacus"),
        (["numbers", "--from", "nowhere"], "nowhere"),
        (["text", "--data", "nowhere.txt"], "nowhere.txt"),
        (["--resume", "nowhere"], "nowhere"),
        (["--resume", "runs/numbers-1", "--set", "width=8", "--seed", "1"], "--set, --seed cannot be given"),
    ],
)
def test_a_mistake_is_a_sentence(trained: Path, arguments: list[str], sentence: str) -> None:
    before = sorted(os.listdir(trained)), sorted(os.listdir(trained / "runs"))
    done = run("train", *arguments, cwd=trained)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.startswith("jumok: ") and done.stderr.count("\n") == 1
    assert before == (sorted(os.listdir(trained)), sorted(os.listdir(trained / "runs"))), "nothing is left behind"


def test_a_run_starts_from_another(trained: Path) -> None:
    done = run("train", "numbers", "--from", "runs/numbers-1", *SHORT[:4], "--out", "fifth", "--json", cwd=trained)
    assert done.returncode == 0, done.stderr
    both = [json.loads((trained / one / "report.json").read_text()) for one in ("runs/numbers-1", "fifth")]
    assert both[0]["parameters"] == both[1]["parameters"]


def test_nothing_is_left_of_a_run_that_never_began(tmp_path: Path) -> None:
    assert run("train", "numbers", "--set", "width=-4", cwd=tmp_path).returncode == 2
    assert os.listdir(tmp_path) == []


def test_runs_are_compared(trained: Path) -> None:
    done = run("compare", "runs/numbers-1", "runs/numbers-2", "--columns", "recipe,parameters", cwd=trained)
    lines = done.stdout.splitlines()
    assert lines[0] == "| run | recipe | parameters |" and len(lines) == 4
    assert lines[2].startswith("| runs/numbers-1 | numbers | ")
    rows = json.loads(run("compare", "runs/numbers-1", "runs/numbers-2", "--json", cwd=trained).stdout)
    told = json.loads((trained / "runs/numbers-1/report.json").read_text())
    assert rows[0]["run"] == "runs/numbers-1" and rows[0]["parameters"] == told["parameters"]
    assert list(rows[0]) == list(rows[1])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["runs"], "no report in runs"), (["runs/numbers-1", "--columns", "beauty"], "none of these runs tells 'beauty'")],
)
def test_what_cannot_be_compared(trained: Path, arguments: list[str], sentence: str) -> None:
    done = run("compare", *arguments, cwd=trained)
    assert done.returncode == 2 and sentence in done.stderr


def test_numbers_go_to_tensorboard(trained: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    done = run("train", "numbers", *SHORT, "--out", "watched", "--tensorboard", "--json", cwd=trained)
    assert done.returncode == 0, done.stderr
    again = run("train", "--resume", "watched", "--steps", "25", "--tensorboard", "--json", cwd=trained)
    assert again.returncode == 0, again.stderr
    events = accumulator.EventAccumulator(str(trained / "watched/tensorboard"))
    events.Reload()
    lines = [json.loads(line) for line in (trained / "watched/metrics.jsonl").read_text().splitlines()]
    wanted = {one["step"]: one["loss"] for one in lines if "loss" in one}
    found = {one.step: one.value for one in events.Scalars("loss")}
    assert found == pytest.approx(wanted) and {one.step for one in events.Scalars("evaluation/right")} == {10, 20, 25}


@pytest.mark.parametrize("flag", ["--tensorboard", "--wandb"])
def test_a_tracker_that_is_not_there_is_a_sentence(trained: Path, flag: str) -> None:
    import importlib.util

    if importlib.util.find_spec(flag.removeprefix("--")) is not None:
        pytest.skip("it is there")
    done = run("train", "numbers", *SHORT, "--out", "never", flag, cwd=trained)
    assert done.returncode == 2 and "pip install" in done.stderr and not (trained / "never").exists()
