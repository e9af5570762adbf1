"""Recipes: one function for one complete run. ``jumok train NAME`` calls it, and trains what it gives."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable

from jumok.errors import ArgumentError
from jumok.training import Task

from .request import TrainingRequest, parse_changes
from .run import resume_run, start_run

__all__ = ["TrainingRequest", "describe_recipes", "get_recipe", "parse_changes", "resume_run", "start_run"]

#: name: (module, what it does); imported when asked for
RECIPES = {
    "numbers": ("toys.numbers", "learn the rule +2 on sequences of 5 numbers, and decode unseen ones"),
    "copy": ("toys.sequences", "give back a sequence: a Transformer, LSTMs with Luong's attention, or a GPT"),
    "reverse": ("toys.sequences", "give it back from its end; with model=lstm in JoeyNMT's setting"),
    "sort": ("toys.digits", "a small GPT sorts 6 digits, and is asked every held-out row"),
    "add": ("toys.digits", "a small GPT adds numbers of two digits, and is asked every held-out sum"),
    "induction": ("toys.induction", "a GPT of two blocks learns that what came once comes again; the model `tiny`"),
    "text": (
        "language.language_model",
        "a GPT learns a text; the size, batches and steps of nanoGPT's setting for a CPU",
    ),
    "text-fast": ("language.language_model", "the same in a third of the time"),
    "masked": ("language.masked_language_model", "a BERT learns to guess hidden tokens of a text"),
    "translate": ("language.translate", "a Transformer or an LSTM learns to translate, English to Korean or back"),
    "sentiment": (
        "language.sentiment",
        "is a text negative, neutral or positive? or classes of your own; beside TF-IDF",
    ),
    "caption": ("images.image_captioner", "a picture in, a sentence out: the names of emoji, in English or Korean"),
    "image": ("images.image_classifier", "a ViT or a Swin tells digits, photographs or your own pictures apart"),
}


def get_recipe(name: str) -> Callable[[TrainingRequest], Task]:
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(RECIPES)}"
        raise ArgumentError(f"there is no recipe {name!r}; {hint}")
    module = importlib.import_module(f"jumok.recipes.{RECIPES[name][0]}")
    made: Callable[[TrainingRequest], Task] = getattr(module, name.replace("-", "_"))
    return made


def describe_recipes() -> list[dict[str, str]]:
    """Every recipe, with what it does."""
    return [{"recipe": name, "what": what} for name, (_, what) in RECIPES.items()]
