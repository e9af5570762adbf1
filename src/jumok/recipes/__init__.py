"""Recipes: one function for one complete run. ``jumok train NAME`` calls it, and trains what it gives."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from jumok.errors import ArgumentError
from jumok.train import Task

from .asked import Asked, read_changes
from .runs import resume, start

__all__ = ["Asked", "described", "read_changes", "recipe", "resume", "start"]

#: name: (module, what it does); imported when asked for
RECIPES = {
    "numbers": ("numbers", "learn the rule +2 on sequences of 5 numbers, and decode unseen ones"),
    "text": ("text", "a GPT learns a text, of the size and in the way of nanoGPT's setting for a CPU"),
    "text-fast": ("text", "the same in a third of the time"),
}


def recipe(name: str) -> Callable[[Asked], Task]:
    if name not in RECIPES:
        raise ArgumentError(f"there is no recipe {name!r}; known are {', '.join(RECIPES)}")
    module = importlib.import_module(f"jumok.recipes.{RECIPES[name][0]}")
    made: Callable[[Asked], Task] = getattr(module, name.replace("-", "_"))
    return made


def described() -> list[dict[str, str]]:
    """Every recipe, with what it does."""
    return [{"recipe": name, "what": what} for name, (_, what) in RECIPES.items()]
