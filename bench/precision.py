"""Compare training steps in float32 and bfloat16, interleaved. Run: python bench/precision.py

A CPU without instructions for bfloat16 is much slower with it, so use --seconds 10 or more there.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import torch

from jumok.recipes import TrainingRequest, get_recipe
from jumok.training import World
from jumok.training.loop import _build_fresh_state
from jumok.training.resume import TrainingState
from jumok.training.step import estimate_work
from threads import measure_speed, write_sources

# recipe and fields; the sizes of "text" are its defaults, a medium one and one like GPT-2 small with fewer blocks
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "numbers": ("numbers", {}),
    "sort": ("sort", {}),
    "reverse": ("reverse", {}),
    "reverse, lstm": ("reverse", {"model": "lstm"}),
    "text": ("text", {}),
    "text-fast": ("text-fast", {}),
    "text, width 384": ("text", {"width": 384, "hidden": 1536, "heads": 6, "layers": 6}),
    "text, width 768": ("text", {"width": 768, "hidden": 3072, "heads": 12, "layers": 4, "batch": 4}),
}


def build_state(recipe: str, fields: dict[str, object], precision: str) -> TrainingState:
    """Build a recipe's training state; text recipes read the source code of jumok."""
    with tempfile.TemporaryDirectory() as folder:
        text_path = str(write_sources(Path(folder))) if recipe.startswith("text") else None
        request = TrainingRequest(recipe, Path(folder), data=text_path, changes={**fields, "precision": precision})
        return _build_fresh_state(get_recipe(recipe).build(request), World())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (default 1)")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()

    capabilities = torch.cpu.get_capabilities()
    print("bfloat16 instructions:", [name for name in ("avx512_bf16", "amx_bf16") if capabilities.get(name)] or "none")
    for name, (recipe, fields) in CASES.items():
        states = [build_state(recipe, fields, precision) for precision in ("float32", "bfloat16")]
        work = estimate_work(states[0].task, World())
        ratios = []
        for _ in range(options.rounds):
            float32, bfloat16 = (measure_speed(state, options.threads, options.seconds) for state in states)
            ratios.append(bfloat16 / float32)
        print(
            f"{name}: work {work:.1e}; steps per second, bfloat16 / float32: {statistics.median(ratios):.2f}x "
            f"[{min(ratios):.2f}, {max(ratios):.2f}]",
            flush=True,
        )


if __name__ == "__main__":
    main()
