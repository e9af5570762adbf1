"""Jumok (주목, "attention"): a workbench for Transformers. One function, ``attend``, computes every attention."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jumok.attention import Cache, MultiHead
    from jumok.attention.attend import attend
    from jumok.checkpoint.load import load
    from jumok.checkpoint.save import save
    from jumok.errors import ArgumentError, BackendError, JumokError, ShapeError
    from jumok.lens import Ablate, KnockOut, Lens, Patch, Remask, Scale, effect
    from jumok.recipes.training_run import train
    from jumok.tasks.ask import ask
    from jumok.tasks.run import run
    from jumok.web.show import show

__version__ = "0.1.0"

# The threads of GNU OpenMP, which PyTorch uses, wait for each other actively for milliseconds. Beside a busy program
# that takes longer than the computation (bench/results/generation.md). 1,000 iterations are about 25 microseconds,
# longer than the pause between two products on an idle machine. It has an effect only before torch is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Imported on first use: `import jumok` and `jumok --help` must not wait for torch.
_HOME = {
    **dict.fromkeys(("attend", "Cache", "MultiHead"), "jumok.attention"),
    **dict.fromkeys(("load", "save"), "jumok.checkpoint"),
    "train": "jumok.recipes",
    "run": "jumok.tasks",
    "ask": "jumok.tasks.ask",
    "show": "jumok.web.show",
    **dict.fromkeys(("Lens", "Ablate", "KnockOut", "Patch", "Scale", "Remask", "effect"), "jumok.lens"),
    **dict.fromkeys(("JumokError", "ShapeError", "BackendError", "ArgumentError"), "jumok.errors"),
}

__all__ = [
    "Ablate",
    "ArgumentError",
    "BackendError",
    "Cache",
    "JumokError",
    "KnockOut",
    "Lens",
    "MultiHead",
    "Patch",
    "Remask",
    "Scale",
    "ShapeError",
    "__version__",
    "ask",
    "attend",
    "effect",
    "load",
    "run",
    "save",
    "show",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'jumok' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
