"""The lens: see every attention of a model exactly, at any length, and measure whether it matters."""

from .edits import Ablate, Edit, KnockOut, Patch, Remask, Scale
from .effects import Effect, Effects
from .lens import Lens
from .measure import effect
from .patterns import Kind, kinds, repeated
from .run import Overview, Run, Source

__all__ = [
    "Ablate",
    "Edit",
    "Effect",
    "Effects",
    "Kind",
    "KnockOut",
    "Lens",
    "Overview",
    "Patch",
    "Remask",
    "Run",
    "Scale",
    "Source",
    "effect",
    "kinds",
    "repeated",
]
