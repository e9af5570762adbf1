"""Compare training with one and two threads, interleaved. Run: python bench/threads.py; beside busy programs too.

GOMP_SPINCOUNT=300000 python bench/threads.py measures threads that wait actively, the default of PyTorch without jumok.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from jumok.recipes import TrainingRequest, get_recipe
from jumok.threads import choose_training_threads, use_threads
from jumok.training import TrainingTask, World
from jumok.training.loop import _build_fresh_state
from jumok.training.resume import TrainingState
from jumok.training.step import estimate_work, train_step

RECIPES = ("numbers", "sort", "text")


def build_task(recipe: str, folder: Path) -> TrainingTask:
    """Build a recipe's task with its default sizes; text reads the source code of jumok."""
    text_path = str(write_sources(folder)) if recipe == "text" else None
    run = folder / recipe
    run.mkdir()
    request = TrainingRequest(recipe, run, data=text_path, changes={"precision": "float32"})
    return get_recipe(recipe).build(request)


def write_sources(folder: Path) -> Path:
    """Write the source code of jumok into one text file, and return its path."""
    sources = sorted((Path(__file__).parents[1] / "src").rglob("*.py"))
    text = folder / "text.txt"
    text.write_text("".join(path.read_text(encoding="utf-8") for path in sources), encoding="utf-8")
    return text


def measure_speed(state: TrainingState, threads: int, seconds: float) -> float:
    """Return the training steps per second with a number of threads."""
    with use_threads(threads):
        train_step(state)
        steps, started_at = 0, time.perf_counter()
        while time.perf_counter() - started_at < seconds:
            train_step(state)
            steps += 1
        return steps / (time.perf_counter() - started_at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement (default 0.5)")
    options = parser.parse_args()

    for recipe in RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            task = build_task(recipe, Path(folder))
            work = estimate_work(task, World())
            state = _build_fresh_state(task, World())
            ratios = []
            for _ in range(options.rounds):
                single = measure_speed(state, 1, options.seconds)
                ratios.append(measure_speed(state, 2, options.seconds) / single)
        print(
            f"{recipe}: work {work:.1e}, {choose_training_threads(work, 2)} by the rule; two threads / one: "
            f"{statistics.median(ratios):.2f}x [{min(ratios):.2f}, {max(ratios):.2f}]  load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
