"""The command line as a user runs it: real processes, their output and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner

import jumok
from jumok.cli import cli, diagnosis
from jumok.data import catalogue


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jumok", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, encoding="utf-8")


def test_attend_prints_json_and_draws_figures(tmp_path: Path) -> None:
    process = run(
        "attend",
        "나는 오늘 학교에 갔다",
        "--mask",
        "causal",
        "--heads",
        "3",
        "--width",
        "12",
        "--json",
        "--png",
        str(tmp_path / "heads.png"),
        "--svg",
        str(tmp_path / "heads.svg"),
    )
    assert process.returncode == 0, process.stderr
    sentence = json.loads(process.stdout)
    assert sentence["tokens"] == ["나는", "오늘", "학교에", "갔다"]
    assert sentence["future"] == [0.0, 0.0, 0.0, 0.0]
    assert len(sentence["weights"]) == 3 and sentence["weights"][0][0] == [1.0, 0.0, 0.0, 0.0]
    assert sentence["row_error"] < 1e-6 and sentence["parameters"] == 4 * (12 * 12 + 12)
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    assert "<!-- head 2 -->" in (tmp_path / "heads.svg").read_text()
    assert sentence["pictures"] == [str(tmp_path / "heads.png"), str(tmp_path / "heads.svg")]
    process = run("attend", "a b c", "--head", "-1", "--svg", str(tmp_path / "head.svg"))
    assert "head 1 of 2" in process.stdout
    assert "<!-- head 1, untrained; mask: none -->" in (tmp_path / "head.svg").read_text()


def test_attend_prints_a_future_check() -> None:
    process = run("attend", "a b c d", "--mask", "causal & window(2)", "--backend", "blocked", "--score", "additive")
    assert process.returncode == 0, process.stderr
    assert "no token attends to later tokens" in process.stdout and "0.000000  c" in process.stdout
    assert "largest difference from the explicit formula" in process.stdout
    unmasked = run("attend", "a b c d", "--bias", "alibi", "--projection", "single")
    assert "  tokens attend to later tokens" in unmasked.stdout


def test_attend_sizes_a_single_head() -> None:
    arguments = ("attend", "a b c", "--heads", "1", "--width", "6", "--head-width", "5", "--value-width", "7", "--json")
    with_all, bare = (
        json.loads(run(*arguments, *extra).stdout) for extra in ((), ("--no-projection-bias", "--no-output-map"))
    )
    assert with_all["key_shape"] == [1, 1, 3, 5] and with_all["value_shape"] == [1, 1, 3, 7]
    assert with_all["output_shape"] == [1, 3, 6] and bare["output_shape"] == [1, 3, 7]
    assert bare["parameters"] == 6 * (5 + 5 + 7)
    assert with_all["parameters"] == bare["parameters"] + (5 + 5 + 7) + 7 * 6 + 6


def test_attend_source_is_cross_attention() -> None:
    process = run("attend", "la maison bleue", "--source", "the blue house today", "--json")
    sentence = json.loads(process.stdout)
    assert sentence["source"] == ["the", "blue", "house", "today"]
    assert [len(row) for row in sentence["weights"][0]] == [4, 4, 4]


def test_no_command_prints_help() -> None:
    process = run()
    assert process.returncode == 0 and process.stdout.startswith("Usage: ") and "Examples:" in process.stdout


def list_commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the path of every command, such as ("data", "get")."""
    paths: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        paths.append((*path, name))
        if isinstance(command, click.Group):
            paths += list_commands(command, (*path, name))
    return paths


@pytest.mark.parametrize("path", list_commands(cli), ids=" ".join)
def test_help_of_every_command_has_examples(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*path, "--help"])
    assert shown.exit_code == 0
    assert "\nExamples:\n" in shown.output and f"  jumok {' '.join(path)}" in shown.output


@pytest.mark.parametrize("name", ["attend", "mask", "look", "effect"])
def test_commands_with_pictures_have_the_same_options(name: str) -> None:
    options = {option for parameter in cli.commands[name].params for option in parameter.opts}
    assert {"--png", "--svg", "--json"} <= options


def test_scales_are_those_of_draw() -> None:
    from jumok.cli.command import SCALES
    from jumok.draw import panel

    assert SCALES == panel.SCALES


def test_mask_is_drawn() -> None:
    process = run("mask", "causal & window(2)", "--queries", "3", "--keys", "4")
    assert process.stdout == "causal & window(2)\n■ · · ·\n■ ■ · ·\n· ■ ■ ·\n"
    shown = json.loads(run("mask", "prefix(1)", "--queries", "2", "--keys", "2", "--json").stdout)
    assert shown == {"mask": "prefix(1)", "allowed": [[True, False], [True, False]], "pictures": []}


def test_mask_is_drawn_as_a_picture(tmp_path: Path) -> None:
    png, svg = tmp_path / "mask.png", tmp_path / "mask.svg"
    process = run("mask", "causal & window(4)", "--png", str(png), "--svg", str(svg))
    assert process.returncode == 0, process.stderr
    assert f"wrote {png}" in process.stdout and png.read_bytes().startswith(b"\x89PNG")
    assert "causal &amp; window(4)" in svg.read_text() and "<!-- 7 -->" in svg.read_text()
    run("mask", "window(100)", "--svg", str(svg))
    assert "the first" not in svg.read_text() and "<!-- 100 -->" in svg.read_text()
    run("mask", "window(1000)", "--svg", str(svg))
    assert "the first 256 of 1,003 positions" in svg.read_text()
    run("mask", "window(1000)", "--svg", str(svg), "--language", "ko")
    assert "위치 1,003개 가운데 처음 256개" in svg.read_text() and "<!-- 키 -->" in svg.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attend"], "Missing argument 'TEXT'"),
        (["attend", "  "], "the text is empty"),
        (["attend", "a " * 70], "70 words; give at most 64"),
        (["attend", "a b", "--heads", "5"], "cannot be split evenly into 5 heads"),
        (["attend", "a b", "--heads", "x"], "not a valid integer"),
        (["attend", "a b", "--head", "2"], "heads 0 to 1, and -1 is the last"),
        (["attend", "a b", "--head", "-3"], "there is no head -3"),
        (["attend", "a b", "--mask", "window(2.5)"], "integers, not 2.5"),
        (["attend", "a b", "--score", "magic"], "choose one of scaled_dot"),
        (["attend", "a b", "--bias", "magic"], "choose one of none, alibi, t5"),
        (["attend", "a b", "--backend", "magic"], "unknown backend 'magic'"),
        (["attend", "a b", "--backend", "linear"], "linear computes score.Kernel"),
        (["attend", "a b", "--png", "x.gif"], "x.gif must end in .png"),
        (["attend", "a b", "--svg", "no/such/folder/x.svg"], "there is no folder no/such/folder"),
        (["mask", "causal", "--svg", "m.png"], "m.png must end in .svg"),
        (["effect", "a b", "--png", "e.svg"], "e.svg must end in .png"),
        (["attend", "a b", "--seed", "9" * 30], "range"),
        (["mask", "window(-1)"], "at least 1, not -1"),
        (["mask", "__import__('os').system('true')"], "is not a mask"),
        (["mask", "causal", "--keys", "0"], "range"),
        (["nothing"], "No such command 'nothing'"),
        (["demo", "--out", "/dev/null/x"], "/dev/null"),
    ],
)
def test_user_error_is_one_line_and_exit_code_two(arguments: list[str], message: str, tmp_path: Path) -> None:
    process = run(*arguments, cwd=tmp_path)
    assert process.returncode == 2, process.stderr
    assert message in process.stderr and process.stderr.startswith("jumok: ")
    assert process.stderr.count("\n") == 1 and "Traceback" not in process.stderr


@pytest.mark.parametrize("arguments", [["data", "list"], ["steps"], []], ids=" ".join)
def test_closed_pipe_prints_no_traceback(arguments: list[str]) -> None:
    """As in ``jumok steps | head -1``: the reader closes the pipe before the output is complete."""
    command = [sys.executable, "-m", "jumok", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, 1)


# doctor


def test_doctor_prints_versions_caches_and_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "file").write_bytes(b"x" * 3_000_000)
    monkeypatch.setenv("JUMOK_CACHE", str(cache))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no-hub"))

    shown = CliRunner().invoke(cli, ["doctor"], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert lines[0].split() == ["jumok", jumok.__version__]
    assert any(line.startswith("torch ") for line in lines)
    assert any(line.split()[:2] == ["jumok", catalogue.format_megabytes(3_000_000).split()[0]] for line in lines)
    assert lines[-1] == "no problems found"

    fields = json.loads(CliRunner().invoke(cli, ["doctor", "--json"], catch_exceptions=False).output)
    assert [(folder["exists"], folder["size"]) for folder in fields["caches"]] == [(True, 3_000_000), (False, 0)]
    assert {package["name"] for package in fields["packages"]} >= {"torch", "numpy", "click"}
    assert {extra["name"] for extra in fields["extras"]} >= {"draw", "gguf", "chat", "images", "train", "wandb"}
    assert fields["device"].split()[0] in ("cpu", "cuda", "mps") and fields["threads"] >= 1
    assert 1 <= fields["cores"] <= fields["cpus"] and fields["load"] >= 0
    installs = {extra["name"]: extra["install"] for extra in fields["extras"]}
    assert installs["draw"] == 'pip install "jumok[draw]"'
    for extra in fields["extras"]:
        if extra["installed"]:
            package = extra["packages"][0]
            assert f"{package['name']} {package['version']}" in shown.output


@pytest.mark.parametrize(
    ("load", "threads", "hint"), [(1.9, 4, False), (2.1, 4, True), (9.0, 1, False), (None, 4, False)]
)
def test_doctor_shows_load_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, load: float | None, threads: int, hint: bool
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("jumok.threads.count_cores", lambda: 3)
    monkeypatch.setattr("jumok.threads.read_load", lambda: load)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    output = CliRunner().invoke(cli, ["doctor"]).output
    (line,) = [line for line in output.splitlines() if line.startswith("threads ")]
    assert f"{threads} for torch, 3 of 4 cores usable" in line and (load is None or f"load {load} in" in line)
    assert ("--threads 1 may be faster" in line) == hint


def test_doctor_says_how_to_install_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def report_version(name: str) -> str:
        if name in ("matplotlib", "numpy"):
            raise PackageNotFoundError(name)
        return "0.1" if name == "safetensors" else "99.0"

    monkeypatch.setattr(diagnosis, "version", report_version)
    shown = CliRunner().invoke(cli, ["doctor"])
    assert shown.exit_code == 2
    assert 'pip install "jumok[draw]"' in shown.output
    assert 'problem: numpy is not installed; run: pip install "numpy>=' in shown.output
    assert "problem: safetensors 0.1 is too old" in shown.output
    assert 'pip install "jumok[gguf]"' not in shown.output


def test_doctor_compares_version_numbers() -> None:
    for version, minimum, is_usable in (("2.10.0+cpu", "2.9", True), ("2.9.1", "2.10", False), ("3", "2.10", True)):
        assert diagnosis.Package("torch", minimum, version).is_usable == is_usable
    assert not diagnosis.Package("torch", None, None).is_usable
