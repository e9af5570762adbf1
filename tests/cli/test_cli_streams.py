"""The command line with closed streams, paths that are not UTF-8, and arguments of a hundred thousand characters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import jumok.checkpoint

JUMOK = f"{sys.executable} -m jumok"
TINY = Path(jumok.checkpoint.__file__).with_name("tiny")


def run_shell(command: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command of bash, in which $J is jumok."""
    environment = {**os.environ, "J": JUMOK}
    return subprocess.run(["bash", "-c", command], capture_output=True, cwd=cwd, env=environment, check=False)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed: str, tmp_path: Path) -> None:
    process = run_shell(f"$J attend 'a b' --svg picture.svg {closed}", tmp_path)
    assert process.returncode == 0, process.stderr
    assert not process.stderr
    assert (tmp_path / "picture.svg").read_text().rstrip().endswith("</svg>")  # no output was written into the file


def test_a_closed_error_stream_keeps_the_exit_code(tmp_path: Path) -> None:
    assert run_shell("$J run no-such-model x 2>&-", tmp_path).returncode == 2


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    process = run_shell("set -o pipefail; $J models | head -1", tmp_path)
    assert (process.returncode, process.stderr) == (0, b"") and process.stdout.startswith(b"gpt")


def test_training_does_not_depend_on_the_reader_of_its_output(tmp_path: Path) -> None:
    options = "--steps 20 --threads 1 --set evaluate_every=2 --set log_every=1 --out run"
    process = run_shell(f"set -o pipefail; $J train numbers {options} 2>&1 | head -1", tmp_path)
    assert (process.returncode, process.stderr) == (0, b"") and process.stdout.startswith(b"training into run")
    assert (tmp_path / "run/report.json").is_file() and (tmp_path / "run/checkpoints/step-00000020").is_dir()


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    process = run_shell("$J models > /dev/full", tmp_path)
    assert (process.returncode, process.stderr) == (2, b"jumok: the system reports: No space left on device\n")


def test_paths_that_are_not_utf8_are_one_sentence(tmp_path: Path) -> None:
    folder = os.fsdecode(b"caf\xe9")
    shutil.copytree(TINY, tmp_path / folder / "tiny")
    (tmp_path / folder / "a.txt").write_text("hello " * 100)
    for command in (
        "$J run $'caf\\xe9/tiny' x",
        "$J train language_model --data $'caf\\xe9/a.txt' --out run --steps 1",
        "$J train induction --out $'caf\\xe9/run' --steps 1",
    ):
        process = run_shell(command, tmp_path)
        assert process.returncode == 2, (command, process.stderr)
        assert process.stderr.startswith(b"jumok: the path 'caf\\udce9/") and b"is not UTF-8; rename" in process.stderr
        assert process.stderr.count(b"\n") == 1
    assert not (tmp_path / folder / "run" / "run.json").exists()


@pytest.mark.parametrize("arguments", ["run $X x", "run tiny x --$X", "run tiny x --tokens $X", "$X", "mask $X"])
def test_long_arguments_give_short_messages(arguments: str, tmp_path: Path) -> None:
    process = run_shell(f"X=$(printf 'x%.0s' {{1..100000}}); $J {arguments}", tmp_path)
    assert process.returncode == 2
    assert 20 < len(process.stderr) < 1100 and process.stderr.count(b"\n") == 1


def test_escape_sequences_are_not_printed(tmp_path: Path) -> None:
    """A terminal would obey them; names in model folders may contain them."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "\\u001b[31mred\\u0007"}')
    process = run_shell("$J run model x", tmp_path)
    assert process.returncode == 2 and not {0x1B, 0x07} & set(process.stderr)
