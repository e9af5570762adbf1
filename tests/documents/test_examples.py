"""Run every script in examples/ as a user would, and check what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
MAX_EXAMPLE_LINES = 60

# Lines that each script must print, in this order.
EXPECTED_LINES = {
    "attend.py": [
        "output  [2, 4, 5, 16]",
        "weights [2, 4, 5, 7] rows sum to 1.0",
        "weight on future keys: 0.0",
        "sdpa equals explicit: True",
        "blocked equals explicit: True",
    ],
    "new_mask.py": [
        "causal & (window(2) | strided(3))",
        "· ■ · · ■ · ■ ■",
        "blocked equals explicit: True",
    ],
    "train_and_load.py": [
        "steps: 40",
        "metrics: ['error', 'right']",
        "files: ['best.json', 'last.json', 'report.json', 'run.json']",
        "family: numeric with 15,425 parameters",
        "an answer of 5 numbers",
    ],
    "huggingface_lens.py": [
        "attention modules: ['transformer.h.0.attn', 'transformer.h.1.attn']",
        "logits unchanged:  True",
        "weights of one head: [6, 6] future: 0.0",
        "weight of the removed edge: 0.0",
        "logits change: True",
    ],
    "generate_under_edits.py": [
        "clean: ' sat'",
        "weights of one head: [23, 23]",
        "without head 1.0 the same: False",
        "weights on the removed key: 0.0",
        "table: [2, 21] blocks: ('blocks.0', 'blocks.1')",
        "the largest effect: position 8, 's'",
    ],
    "new_family.py": [
        "same logits: True",
        "run answers with a text: True",
        "weights of one head: [3, 3]",
    ],
    "heads_on_images.py": [
        "near: 0 of 8 heads",
        "colour: 0 of 8 heads",
        "meaning: 0 of 8 heads",
    ],
    "head_kinds.py": [
        "blocks.0.attention head 0 -> previous",
        "blocks.1.attention head 0 -> induction",
        "layer 0 head 0: -3.32",
        "layer 1 head 1: +0.00",
    ],
}


def list_examples() -> list[Path]:
    return sorted(EXAMPLES.glob("*.py"))


def test_every_example_has_expected_lines() -> None:
    assert {path.name for path in list_examples()} == set(EXPECTED_LINES)


@pytest.mark.parametrize("path", list_examples(), ids=lambda path: path.name)
def test_example_is_short_and_says_what_you_learn(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= MAX_EXAMPLE_LINES
    assert "You learn:" in source


def test_example_without_transformers_says_how_to_install_it(tmp_path: Path) -> None:
    # a module that behaves like a package that is not installed
    (tmp_path / "transformers.py").write_text("raise ModuleNotFoundError('transformers')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    completed = subprocess.run(
        [sys.executable, str(EXAMPLES / "huggingface_lens.py")],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    assert completed.returncode == 1
    assert completed.stderr == 'this example needs transformers; install it with: pip install ".[transformers]"\n'


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED_LINES)
def test_example_prints_the_expected_lines(name: str, tmp_path: Path) -> None:
    # offline: an example must not download anything; one thread: test workers share the cores
    environment = {**os.environ, "PYTHONUTF8": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr

    printed = completed.stdout.splitlines()
    start = 0
    for line in EXPECTED_LINES[name]:
        assert line in printed[start:], f"{name} does not print {line!r} after line {start} of:\n{completed.stdout}"
        start = printed.index(line, start) + 1
