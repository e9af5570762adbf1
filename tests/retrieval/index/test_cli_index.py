"""The command ``jumok index``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jumok.cli import cli, main
from jumok.retrieval.files.safe_folder import TEXT_ENDINGS
from retrieval.index_folders import write_files, write_notes

Program = Callable[..., tuple[int, str, str]]
PROGRAM = "from jumok import cli; cli.main()"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))


def run_index(*arguments: str | Path) -> Result:
    """Run `jumok index ARGUMENTS` in this process."""
    return CliRunner().invoke(cli, ["index", *map(str, arguments)])


@pytest.fixture
def run_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """Run `jumok index ARGUMENTS` with the error messages of the command line; returns exit code, output and errors."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["jumok", "index", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capsys.readouterr()

    return run


def test_build_update_and_open(tmp_path: Path) -> None:
    folder = write_notes(tmp_path / "my notes")
    write_files(folder, {"picture.png": "", "data.txt": b"\0"})
    built = run_index(folder, "--no-vectors")
    assert built.exit_code == 0
    lines = built.output.splitlines()
    assert re.fullmatch(rf"indexed {folder} \([\d.]+ s, [\d,]+ passages per second\)", lines[0])
    assert lines[1:-2] == [
        "files:    6 with 7 passages, 0.0 MB",
        "vectors:  none; the search is by words (BM25)",
        "skipped:  1 not a text file by its ending: picture.png",
        "skipped:  1 binary: data.txt",
    ]
    assert re.fullmatch(rf"index:    {tmp_path}/cache/indexes/[0-9a-f]{{24}} \([\d.]+ MB\)", lines[-2])
    assert lines[-1] == f"ask it:   jumok ask '{folder}' \"...\""

    assert run_index(folder, "--no-vectors").output.startswith(f"up to date: no file of {folder} has changed since 20")
    write_files(folder, {"new.txt": "x", "boat.txt": "y"})
    assert run_index(folder, "--no-vectors").output.startswith(f"updated {folder}: 1 new, 1 changed files (")
    assert run_index(folder, "--no-vectors", "--rebuild").output.startswith(f"indexed {folder}")


def test_json(tmp_path: Path) -> None:
    folder = write_notes(tmp_path / "notes")
    assert json.loads(run_index(folder, "--status", "--json").output) == {"indexed": False}
    status = json.loads(run_index(folder, "--no-vectors", "--json").output)
    assert (status["action"], status["files"], status["passages"]) == ("built", 6, 7)
    stored = json.loads(run_index(folder, "--status", "--json").output)
    assert stored["indexed"] and stored["passages"] == 7 and stored["changes"]["new"] == 0
    (listed,) = json.loads(run_index("--list", "--json").output)
    assert (listed["folder"], listed["passages"]) == (str(folder), 7)
    assert json.loads(run_index(folder, "--remove", "--json").output) == {"removed": True}
    assert json.loads(run_index("--list", "--json").output) == []


def test_status_list_and_remove(tmp_path: Path) -> None:
    folder = write_notes(tmp_path / "notes")
    assert run_index("--list").output == "no folder is indexed\n"
    run_index(folder, "--no-vectors")
    write_files(folder, {"new.txt": "x"})
    status = run_index(folder, "--status", "--verify").output
    assert f"{folder} was indexed on 20" in status and "since:    1 new files\n" in status
    assert "verified: the SHA-256 of every file of the index is as it was written" in status
    assert re.fullmatch(rf" +0\.\d MB +7 passages  20\S+  {folder}\n", run_index("--list").output)
    assert run_index(folder, "--remove").output == f"removed the index of {folder}\n"
    assert run_index(folder, "--remove").output == f"{folder} is not indexed\n"


def test_a_damaged_index(tmp_path: Path, run_program: Program) -> None:
    folder = write_notes(tmp_path / "notes")
    run_index(folder, "--no-vectors")
    (path,) = (tmp_path / "cache").rglob("passages.db")
    path.write_bytes(path.read_bytes()[:-1])
    code, _, errors = run_program(folder, "--status")
    assert code == 2 and "jumok index builds it again" in errors
    code, output, errors = run_program(folder, "--no-vectors")
    assert code == 0 and output.startswith("indexed")
    assert re.search(r"\(passages.db has [\d,]+ bytes instead of [\d,]+\); it is built again", errors)


def test_mistakes_are_one_sentence(tmp_path: Path, run_program: Program) -> None:
    folder = write_notes(tmp_path / "notes")
    (tmp_path / "empty").mkdir()
    for arguments, message in {
        (): "give the FOLDER to index, or --list",
        (tmp_path / "missing",): "there is no folder",
        (folder / "boat.txt",): "is a file; give the folder that contains it",
        (tmp_path / "empty", "--no-vectors"): "is empty; put text files into it",
        (folder,): "jumok data get e5-multilingual; or search by words only: add --no-vectors",
        (folder, "--no-vectors", "--max-files", "3"): "contains more than 3 text files",
        (folder, "--status"): "is not indexed yet; index it with: jumok index",
        (folder, "--status", "--remove"): "choose one of --status, --remove, --rebuild and --list",
        (folder, "--verify"): "--verify needs --status",
        (folder, "--list"): "--list takes no FOLDER",
    }.items():
        code, output, errors = run_program(*arguments)
        assert code == 2 and output == ""
        assert len(errors.splitlines()) == 1 and message in errors, errors


def test_names_that_a_terminal_would_obey(tmp_path: Path, run_program: Program) -> None:
    folder = write_notes(tmp_path / "notes")
    (folder / os.fsdecode(b"\x1b[31m\xff\n.txt")).write_bytes(b"\0")
    code, output, _ = run_program(folder, "--no-vectors")
    assert code == 0 and "skipped:  1 binary: \\x1b[31m\\xff\\n.txt\n" in output
    assert "\x1b" not in output


def test_help_lists_the_endings() -> None:
    text = run_index("--help").output
    for ending in TEXT_ENDINGS:
        assert ending in re.findall(r"\.\w+", text)
    assert "Examples:" in text


def test_interrupt(tmp_path: Path) -> None:
    """Ctrl-C ends with one sentence, and leaves nothing half written."""
    folder = tmp_path / "notes"
    write_files(folder, {f"{number}.txt": "One sentence is here. " * 20_000 for number in range(30)})
    command = [sys.executable, "-c", PROGRAM, "index", str(folder), "--no-vectors"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not list((tmp_path / "cache").glob("indexes/*/generation-*")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert errors == "jumok: interrupted; what was computed is kept, and the same command continues\n"
    assert [path.suffix for path in (tmp_path / "cache" / "indexes").iterdir()] == [".lock"]
