"""jumok.train, jumok train and jumok compare as users run them: their output, their exit codes, their messages."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import jumok
from jumok.cli import main
from jumok.errors import ArgumentError
from jumok.recipes import TrainingRequest, describe_fields, get_recipe, parse_changes
from jumok.recipes.recipe import RECIPES
from jumok.training.displays import SilentDisplay
from jumok.training.settings import Settings

pytestmark = pytest.mark.xdist_group("cli_train")  # the tests share trained runs

SHORT = ["--steps", "20", "--set", "evaluate_every=10", "--set", "width=16", "--set", "hidden=16"]
SHORT_FIELDS = {"steps": 20, "evaluate_every": 10, "width": 16, "hidden": 16}


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jumok", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, encoding="utf-8")


class CommandLine:
    """Runs the command line in this process: a new one would spend seconds on importing torch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def run(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        self.monkeypatch.chdir(cwd)
        self.monkeypatch.setattr(sys, "argv", ["jumok", *arguments])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        output = self.capsys.readouterr()
        return subprocess.CompletedProcess(list(arguments), code, output.out, output.err)


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two short runs in the default folders."""
    folder = tmp_path_factory.mktemp("user")
    for seed in "01":
        process = run("train", "numbers", "--seed", seed, *SHORT, cwd=folder)
        assert process.returncode == 0, process.stderr
    return folder


def test_run_goes_to_a_new_folder(trained: Path) -> None:
    assert sorted(os.listdir(trained / "runs")) == ["numbers-1", "numbers-2"]
    process = run("train", "numbers", *SHORT, "--out", "third", cwd=trained)
    assert process.stdout.startswith("# jumok train numbers")
    assert "training into third" in process.stderr
    assert "use it: jumok run third 10,20,30,40,50" in process.stderr
    assert "\r" not in process.stderr and "\x1b" not in process.stderr, "no bar and no colours without a terminal"
    assert len(process.stderr.splitlines()) < 12
    assert (trained / "third/report.md").read_text() in process.stdout + "\n"


def test_report_as_json(trained: Path, command_line: CommandLine) -> None:
    process = command_line.run("train", "numbers", *SHORT, "--out", "fourth", "--json", cwd=trained)
    report = json.loads(process.stdout)
    assert report["recipe"] == "numbers" and report["steps"] == 20 and process.stderr == ""


def test_finished_run_is_not_trained_again(trained: Path, command_line: CommandLine) -> None:
    process = command_line.run("train", "--resume", "runs/numbers-1", cwd=trained)
    assert process.returncode == 0 and "this run is finished: 20 steps. Its report" in process.stdout
    fewer = command_line.run("train", "--resume", "runs/numbers-1", "--steps", "7", cwd=trained)
    assert fewer.returncode == 0 and "20 steps (nothing to do for 7 steps)" in fewer.stdout
    longer = command_line.run("train", "--resume", "runs/numbers-2", "--steps", "30", "--json", cwd=trained)
    assert json.loads(longer.stdout)["steps"] == 30


def test_trained_run_can_be_used(trained: Path, command_line: CommandLine) -> None:
    process = command_line.run("run", "runs/numbers-1", "10,20,30,40,50", cwd=trained)
    assert process.returncode == 0 and len(process.stdout.split()) == 5
    spaced = command_line.run("run", "runs/numbers-1", "10", "20", "30", "40", "50", cwd=trained)
    assert spaced.stdout == process.stdout, "one sequence in either notation"
    negative = command_line.run("run", "runs/numbers-1", "-5,3", cwd=trained)
    assert negative.returncode == 2 and "jumok run MODEL -- -5,3" in negative.stderr
    assert command_line.run("run", "runs/numbers-1", "--", "-5,3", cwd=trained).returncode == 0


def test_train_function_returns_the_outcome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    outcome = jumok.train("numbers", out=out, device="cpu", **SHORT_FIELDS)
    lines = capsys.readouterr().err.splitlines()
    assert f"training into {out}, in float32 on cpu with 1 thread" in lines and len(lines) < 12
    assert outcome.folder == out and outcome.signal is None and outcome.progress.finished
    assert outcome.metrics.keys() == {"error", "right"}
    assert outcome.report == json.loads((out / "report.json").read_text())
    assert outcome.report["parameters"] == outcome.model.parameter_count
    saved = jumok.load(out)
    assert outcome.load().config == saved.config
    for parameter, expected in zip(outcome.model.parameters(), saved.model.parameters(), strict=True):
        assert torch.equal(parameter, expected)

    complete = jumok.train(resume=out, display=SilentDisplay())
    assert not complete.trained and complete.metrics == outcome.metrics
    longer = jumok.train(resume=str(out), steps=25, display=SilentDisplay())
    assert longer.progress.step == 25 and longer.report["steps"] == 25
    assert capsys.readouterr().err == ""


def test_interrupted_train_function_says_how_to_continue(tmp_path: Path) -> None:
    class InterruptingDisplay(SilentDisplay):
        def __init__(self) -> None:
            self.messages: list[str] = []

        def show_evaluation(self, step: int, metrics: dict[str, float], best: bool) -> None:
            if step == 10:
                os.kill(os.getpid(), signal.SIGINT)

        def show_message(self, line: str, transient: bool = False) -> None:
            self.messages.append(line)

    out, display = tmp_path / "run", InterruptingDisplay()
    outcome = jumok.train("numbers", out=out, device="cpu", display=display, **SHORT_FIELDS)
    assert outcome.signal == signal.SIGINT and not outcome.progress.finished
    step = outcome.progress.step
    assert 10 <= step < 20
    assert display.messages[-1] == f"stopped at step {step}; continue with: jumok train --resume {out}"

    continued = jumok.train(resume=out, display=display)
    assert continued.signal is None and continued.progress.finished
    assert len([line for line in display.messages if line.startswith("stopped")]) == 1


def test_train_function_and_command_train_alike(trained: Path, tmp_path: Path) -> None:
    outcome = jumok.train(
        "numbers", out=tmp_path / "run", device="cpu", seed=0, display=SilentDisplay(), **SHORT_FIELDS
    )
    metrics = (trained / "runs/numbers-1/metrics.jsonl").read_text()
    assert (outcome.folder / "metrics.jsonl").read_text() == metrics


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "either a recipe or resume=FOLDER"),
        ({"recipe": "numbers", "resume": "somewhere"}, "either a recipe or resume=FOLDER"),
        ({"recipe": "nombers"}, "there is no recipe 'nombers'; did you mean 'numbers'?"),
        ({"recipe": "numbers", "wdith": 16}, "the numbers recipe has no field 'wdith'; did you mean 'width'?"),
        ({"recipe": "numbers", "width": -4}, "width"),
        ({"recipe": "numbers", "data": "book.txt"}, "generates its own data"),
        ({"recipe": "text", "data": "nowhere.txt"}, "nowhere.txt"),
        ({"recipe": "numbers", "device": "abacus"}, "device 'abacus' is not available"),
        ({"resume": "nowhere"}, "nowhere is not the folder of a training run"),
        ({"resume": "nowhere", "width": 8}, "only steps and threads can be changed"),
    ],
)
def test_train_function_refuses_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(jumok.JumokError, match=sentence.replace("?", r"\?")):
        jumok.train(**arguments)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == [], "nothing is left behind"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "txt"), "there is no recipe 'txt'; did you mean 'text'?"),
        (("train", "numbers", "--device", "foo"), "device 'foo' is not available; choose cpu"),
        (("train", "text", "--data", "empty.txt"), "the file is empty; fix it, or skip such files"),
        (("run", "tiny", "missing.txt"), "there is no file missing.txt"),
    ],
)
def test_mistake_is_one_sentence(
    words: tuple[str, ...], sentence: str, tmp_path: Path, command_line: CommandLine
) -> None:
    (tmp_path / "empty.txt").touch()
    process = command_line.run(*words, cwd=tmp_path)
    assert process.returncode == 2 and sentence in process.stderr and len(process.stderr.splitlines()) == 1


def test_files_have_the_permissions_of_the_umask(trained: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    for path in (trained / "runs/numbers-1/checkpoints").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~mask, path


def test_recipes_are_listed(trained: Path, command_line: CommandLine) -> None:
    rows = json.loads(command_line.run("train", "--list", "--json", cwd=trained).stdout)
    names = {row["recipe"] for row in rows}
    toys, language = "numbers copy reverse sort add induction", "text text-fast gpt2 masked translate sentiment reader"
    assert set(f"{toys} {language} caption image listen".split()) == names
    shown = command_line.run("train", "--list", cwd=trained).stdout
    assert all(row["what"] in shown for row in rows)


@pytest.mark.parametrize("recipe", RECIPES)
def test_fields_are_listed_without_reading_data(
    recipe: str, tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("no data may be read")

    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("jumok.data.catalogue.download_entry", refuse)
    process = command_line.run("train", "--list", recipe, "--json", cwd=tmp_path)
    rows = {row["field"]: row for row in json.loads(process.stdout)}
    assert {"steps", "learning_rate", "seed"} <= rows.keys() and {row["group"] for row in rows.values()} >= {"training"}
    assert all(row["help"] and row.keys() >= {"default", "condition"} for row in rows.values())
    if recipe == "text":
        assert rows["steps"]["default"] == 2000 and rows["width"]["default"] == 128
        assert rows["tokens"] == {
            "field": "tokens", "group": "recipe", "default": "characters", "help": rows["tokens"]["help"],
            "condition": "only without --from", "options": ["characters", "bytes", "gpt2", "learned"],
        }  # fmt: skip
        assert {field.name for field in dataclasses.fields(Settings)} <= rows.keys(), "every setting of training"
    if recipe == "sentiment":
        assert rows["classes"]["default"] is None and rows["classes"]["condition"] == "set by the data"
    shown = command_line.run("train", "--list", recipe, cwd=tmp_path).stdout
    assert all(name in shown and row["help"] in shown for name, row in rows.items())
    assert os.listdir(tmp_path) == []


def test_listed_defaults_follow_the_request(tmp_path: Path) -> None:
    def list_defaults(recipe: str, **more: object) -> dict[str, object]:
        request = TrainingRequest(recipe, tmp_path, **more)  # type: ignore[arg-type]
        return {row["field"]: row["default"] for row in describe_fields(request)}

    assert list_defaults("reverse")["steps"] == 5000 and "attention" not in list_defaults("reverse")
    lstm = list_defaults("reverse", changes={"model": "lstm"})
    assert lstm["steps"] == 8000 and lstm["attention"] == "luong_general"
    rows = describe_fields(TrainingRequest("text", tmp_path))
    windows = {row["group"]: row["condition"] for row in rows if row["field"] == "window"}
    assert windows == {"model": None}, "of the attention; with --from, that of an example is listed instead"
    started = list_defaults("text", start="smollm2")
    assert started["learning_rate"] == 1e-4 and "width" not in started, "the loaded model has its width"


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_declares_the_fields_that_it_accepts(recipe: str, tmp_path: Path) -> None:
    request = TrainingRequest(recipe, tmp_path, changes={"no_such_field": 1})
    with pytest.raises(ArgumentError, match=f"jumok train --list {recipe} shows its fields"):
        get_recipe(recipe).build(request)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give the name of a recipe"),
        (["numbers", "--resume", "runs/numbers-1"], "not both"),
        (["nombers"], "numbers"),
        (["numbers", "--out", "runs/numbers-1"], "already exists; resume it"),
        (["numbers", "--set", "wdith=16"], "did you mean 'width'"),
        (["numbers", "--set", "foo=1"], "no field 'foo'; jumok train --list numbers shows its fields"),
        (["numbers", "--set", "width"], "width"),
        (["numbers", "--set", "width=wide"], "width"),
        (["numbers", "--set", "width=-4"], "width"),
        (["numbers", "--set", "batch=0"], "batch"),
        (["numbers", "--set", "start=tiny"], "--set cannot change start; use --from"),
        (["numbers", "--device", "abacus"], "abacus"),
        (["numbers", "--from", "nowhere"], "nowhere"),
        (["text", "--data", "nowhere.txt"], "nowhere.txt"),
        (["masked", "--data", "nowhere.txt", "--set", "window=8"], "of the masked recipe applies only with --from"),
        (["--list", "nombers"], "did you mean 'numbers'"),
        (["--resume", "nowhere"], "nowhere"),
        (["--resume", "runs/numbers-1", "--set", "width=8", "--seed", "1"], "--seed, --set cannot be given"),
    ],
)
def test_mistake_leaves_nothing_behind(
    trained: Path, command_line: CommandLine, arguments: list[str], sentence: str
) -> None:
    before = sorted(os.listdir(trained)), sorted(os.listdir(trained / "runs"))
    process = command_line.run("train", *arguments, cwd=trained)
    assert process.returncode == 2, process.stderr
    assert sentence in process.stderr and "Traceback" not in process.stderr
    assert process.stderr.startswith("jumok: ") and process.stderr.count("\n") == 1
    assert before == (sorted(os.listdir(trained)), sorted(os.listdir(trained / "runs")))


def test_mistake_in_a_real_process(tmp_path: Path) -> None:
    process = run("train", "numbers", "--set", "width=-4", cwd=tmp_path)
    assert process.returncode == 2 and process.stderr.count("\n") == 1 and "Traceback" not in process.stderr
    assert os.listdir(tmp_path) == [], "not even the folder runs"


def test_run_starts_from_another(trained: Path, command_line: CommandLine) -> None:
    arguments = ["--from", "runs/numbers-1", *SHORT[:4], "--out", "fifth", "--json"]
    process = command_line.run("train", "numbers", *arguments, cwd=trained)
    assert process.returncode == 0, process.stderr
    reports = [json.loads((trained / name / "report.json").read_text()) for name in ("runs/numbers-1", "fifth")]
    assert reports[0]["parameters"] == reports[1]["parameters"]


def test_runs_are_compared(trained: Path, command_line: CommandLine) -> None:
    arguments = ["runs/numbers-1", "runs/numbers-2", "--columns", "recipe,parameters"]
    lines = command_line.run("compare", *arguments, cwd=trained).stdout.splitlines()
    assert lines[0] == "| run | recipe | parameters |" and len(lines) == 4
    assert lines[2].startswith("| runs/numbers-1 | numbers | ")
    rows = json.loads(command_line.run("compare", *arguments[:2], "--json", cwd=trained).stdout)
    report = json.loads((trained / "runs/numbers-1/report.json").read_text())
    assert rows[0]["run"] == "runs/numbers-1" and rows[0]["parameters"] == report["parameters"]
    assert list(rows[0]) == list(rows[1])


def test_compared_runs_show_settings_that_differ_and_their_maps(tmp_path: Path, command_line: CommandLine) -> None:
    sizes = ["width=8", "layers=1", "hidden=8"]
    for name, heads in (("first", 1), ("second", 2)):
        settings = [word for field in (*sizes, f"heads={heads}") for word in ("--set", field)]
        process = command_line.run("train", "numbers", "--steps", "1", *settings, "--out", name, cwd=tmp_path)
        assert process.returncode == 0, process.stderr
    rows = json.loads(command_line.run("compare", "first", "second", "--json", cwd=tmp_path).stdout)
    assert [row["heads"] for row in rows] == [1, 2] and "width" not in rows[0]
    assert list(rows[0])[:3] == ["run", "recipe", "heads"]
    chosen = command_line.run("compare", "first", "second", "--columns", "width,heads", cwd=tmp_path).stdout
    assert "| first | 8 | 1 |" in chosen

    arguments = ["--text", "10, 20, 30", "--layer", "encoder.0", "--png", "maps.png", "--json"]
    process = command_line.run("compare", "first", "second", *arguments, cwd=tmp_path)
    maps = [row["map"] for row in json.loads(process.stdout)]
    assert (tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")
    with jumok.Lens(jumok.load(tmp_path / "second")) as lens:
        capture = lens.run(torch.tensor([[10.0, 20.0, 30.0]]), torch.tensor([[0.0]]))
        mean = (capture.weights("encoder.0", 0) + capture.weights("encoder.0", 1)) / 2
    assert torch.tensor(maps[1]["weights"]).allclose(mean, atol=1e-6)
    assert maps[0]["heads"] == 1 and maps[0]["queries"] == maps[1]["keys"]
    for options, sentence in (
        (["--png", "maps.png"], "give it with --text"),
        (["--text", "1, 2"], "give --png, --svg or --json"),
        (["--text", "1, 2", "--layer", "encoder.0", "--head", "1", "--json"], "first has heads 0 to 0 in encoder.0"),
        (["--text", "1, 2", "--json"], "a number is ambiguous; name a site: encoder.0.attention"),
        (["--text", "1, 2", "--layer", "decoder.0.cross", "--json"], "do not attend to the same tokens in"),
    ):
        process = command_line.run("compare", "first", "second", *options, cwd=tmp_path)
        assert process.returncode == 2 and sentence in process.stderr


def test_training_its_report_and_a_comparison_are_korean(tmp_path: Path, command_line: CommandLine) -> None:
    korean = ("--language", "ko")
    process = command_line.run("train", "numbers", *SHORT, "--out", "run", *korean, cwd=tmp_path)
    report = (tmp_path / "run/report.md").read_text(encoding="utf-8")
    assert process.stdout.strip() == report.strip()
    for line in (process.stderr + report).splitlines():
        words = set(re.findall("[A-Za-z]{3,}", line)) - {"jumok", "train", "run", "numbers", "cpu", "float"}
        assert not words and (not line.strip() or line.startswith("#") or re.search("[가-힣]", line)), line
    assert "학습 폴더: run, cpu 스레드" in process.stderr and "20단계 평가: 오차" in process.stderr
    assert "- 맞힌 비율: " in report and "- 설명: 맞힌 비율: 처음 보는 시퀀스 " in report
    assert set(json.loads((tmp_path / "run/report.json").read_text())) >= {"recipe", "right", "error", "what"}

    table = command_line.run("compare", "run", *korean, cwd=tmp_path).stdout.splitlines()
    assert table[0].startswith("| 학습 폴더 | 레시피 | 단계 수 |")
    for columns in ("오차, 맞힌 비율", "error,right"):  # the names of the table and those of report.json
        chosen = command_line.run("compare", "run", "--columns", columns, *korean, cwd=tmp_path).stdout
        assert chosen.startswith("| 학습 폴더 | 오차 | 맞힌 비율 |")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["runs"], "no report in runs"),
        (["nowhere"], "there is no folder nowhere"),
        (["runs/numbers-1", "--columns", "beauty"], "none of these runs has a column 'beauty'"),
    ],
)
def test_compare_refuses_mistakes(
    trained: Path, command_line: CommandLine, arguments: list[str], sentence: str
) -> None:
    process = command_line.run("compare", *arguments, cwd=trained)
    assert process.returncode == 2 and sentence in process.stderr


def test_changes_are_parsed_as_json_or_text() -> None:
    words = ["a=1", "b=0.5", "c=true", "d=[1, 2]", "e=bytes", "f= spaced ", "g=x=y"]
    expected = {"a": 1, "b": 0.5, "c": True, "d": [1, 2], "e": "bytes", "f": "spaced", "g": "x=y"}
    assert parse_changes(words) == expected


def test_metrics_go_to_tensorboard(trained: Path, command_line: CommandLine) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    first = command_line.run("train", "numbers", *SHORT, "--out", "tracked", "--tensorboard", "--json", cwd=trained)
    assert first.returncode == 0, first.stderr
    resume = ["--resume", "tracked", "--steps", "25", "--tensorboard", "--json"]
    second = command_line.run("train", *resume, cwd=trained)
    assert second.returncode == 0, second.stderr
    events = accumulator.EventAccumulator(str(trained / "tracked/tensorboard"))
    events.Reload()
    rows = [json.loads(line) for line in (trained / "tracked/metrics.jsonl").read_text().splitlines()]
    expected = {row["step"]: row["loss"] for row in rows if "loss" in row}
    sent = {event.step: event.value for event in events.Scalars("loss")}
    assert sent == pytest.approx(expected)
    assert {event.step for event in events.Scalars("evaluation/right")} == {10, 20, 25}


@pytest.mark.parametrize("flag", ["--tensorboard", "--wandb"])
def test_missing_tracker_is_one_sentence(trained: Path, command_line: CommandLine, flag: str) -> None:
    if importlib.util.find_spec(flag.removeprefix("--")) is not None:
        pytest.skip("the package is installed")
    process = command_line.run("train", "numbers", *SHORT, "--out", "never", flag, cwd=trained)
    assert process.returncode == 2 and "pip install" in process.stderr and not (trained / "never").exists()
