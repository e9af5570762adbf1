"""Declare a recipe: its own fields, its default config and settings, and the function that builds its training task.

Fields and defaults are declared separately from the work, so that ``jumok train --list RECIPE`` can show them without
reading data or downloading anything.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from jumok.data.readers.file_format import HEADER_CHOICES
from jumok.errors import ArgumentError
from jumok.fields import Fields, choice
from jumok.models import Config
from jumok.training import Settings, Task

if TYPE_CHECKING:
    from .request import TrainingRequest

# name: (module, help); the module is imported when its recipe is used
RECIPES = {
    "numbers": ("toys.numbers", "a Transformer adds 2 to each of 5 real numbers"),
    "copy": ("toys.sequences", "a Transformer, LSTMs with Luong's attention or a GPT copies a sequence"),
    "reverse": ("toys.sequences", "the same models reverse a sequence; model=lstm is JoeyNMT's setting"),
    "sort": ("toys.digits", "a small GPT sorts 6 digits, tested on all held-out rows"),
    "add": ("toys.digits", "a small GPT adds two-digit numbers, tested on all held-out sums"),
    "induction": (
        "toys.induction",
        "a GPT of two blocks learns induction (repeated sequences); the model `tiny`",
    ),
    "text": ("language.language_model", "a GPT learns a text, with nanoGPT's size, batches and steps for a CPU"),
    "text-fast": ("language.language_model", "a GPT learns a text to the same loss in a third of the time"),
    "masked": ("language.masked_language_model", "a BERT or a long-text encoder learns to predict masked tokens"),
    "translate": (
        "language.translate",
        "a Transformer or LSTMs translate English and Korean, or your own languages",
    ),
    "sentiment": ("language.sentiment", "an encoder classifies texts by sentiment or your classes, against TF-IDF"),
    "caption": (
        "images.image_captioner",
        "a captioner names emoji in English or Korean, or describes your images or region features",
    ),
    "listen": ("speech.listen", "a speech model learns spoken words, English and Korean, or transcribes your clips"),
    "reader": ("reading.reader", "a Fusion-in-Decoder answers questions from passages, invented ones or your own"),
    "image": ("images.image_classifier", "a ViT or a Swin classifies digits, photographs or your images"),
}


@dataclass(frozen=True)
class Options(Fields):
    """Base class of a recipe's own fields, which ``--set`` can change like those of the model config and the settings.

    The class variables name the fields that apply only with or without ``--data`` (a file of the user's own, not an
    entry of the catalogue) and ``--from`` (another model to start from). Otherwise setting such a field is an error,
    unless the model config has a field of the same name.
    """

    family: ClassVar[str] = "recipe"

    with_data: ClassVar[tuple[str, ...]] = ()
    without_data: ClassVar[tuple[str, ...]] = ()
    with_start: ClassVar[tuple[str, ...]] = ()
    without_start: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def describe_condition(cls, name: str) -> str | None:
        """Return when a field applies, such as "only with --data"; None if always."""
        conditions = {
            "only with --data": cls.with_data,
            "only without --data": cls.without_data,
            "only with --from": cls.with_start,
            "only without --from": cls.without_start,
        }
        return next((condition for condition, names in conditions.items() if name in names), None)

    @classmethod
    def list_columns(cls) -> list[str]:
        """Return the names of the fields that choose columns of the user's tables."""
        return [declared.name for declared in dataclasses.fields(cls) if declared.metadata.get("is_column")]

    @classmethod
    def list_applicable(cls, request: TrainingRequest) -> set[str]:
        """Return the names of the fields that apply to a request."""
        inapplicable = {
            *(cls.without_data if request.has_own_files else cls.with_data),
            *(cls.with_start if request.start is None else cls.without_start),
        }
        return {declared.name for declared in dataclasses.fields(cls)} - inapplicable


def column_field(help: str) -> Any:
    """Declare a field that holds the name or the number of a column of the user's tables; None = by its usual name."""
    return field(
        default=None,
        metadata={
            "kind": str,
            "help": f"{help}: its name or number; None = by a well-known name",
            "optional": True,
            "is_column": True,
        },
    )


def header_field() -> Any:
    """Declare the field that says whether the user's tables have a header."""
    return choice("auto", HEADER_CHOICES, "whether the first row of your table names its columns; auto = decide by it")


@dataclass(frozen=True)
class Defaults:
    """The default settings and configs of a recipe; a request can change them.

    Attributes:
        settings: Values of ``Settings`` by field name; the other settings keep their own defaults.
        configs: The default config of the new model (and of its encoder, if that has its own). Empty with ``--from``,
            because the loaded model has a config.
        from_data: Config fields that the recipe computes from the data, such as the vocabulary.
    """

    settings: Mapping[str, Any]
    configs: tuple[Config, ...] = ()
    from_data: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """One kind of training run, from its data to its report.

    Attributes:
        options: The class of the recipe's own fields.
        defaults: Returns the default config and settings for a request; it reads no data.
        stored: The file in the run's folder that exists once the recipe has stored its prepared data there; None if a
            resumed run reads the user's data again.
    """

    options: type[Options]
    defaults: Callable[[TrainingRequest], Defaults]
    build: Callable[[TrainingRequest], Task]
    stored: str | None = None


def recipe(
    defaults: Callable[[TrainingRequest], Defaults], options: type[Options] = Options, stored: str | None = None
) -> Callable[[Callable[[TrainingRequest], Task]], Recipe]:
    """Decorate a function that builds a training task, and turn it into a ``Recipe``."""
    return lambda build: Recipe(options, defaults, build, stored)


def get_recipe(name: str) -> Recipe:
    """Import a recipe."""
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(RECIPES)}"
        raise ArgumentError(f"there is no recipe {name!r}; {hint}")
    module = importlib.import_module(f"jumok.recipes.{RECIPES[name][0]}")
    recipe: Recipe = getattr(module, name.replace("-", "_"))
    return recipe


def describe_recipes() -> list[dict[str, str]]:
    """Return the name and the help text of every recipe."""
    return [{"recipe": name, "what": help} for name, (_, help) in RECIPES.items()]


def describe_fields(request: TrainingRequest) -> list[dict[str, Any]]:
    """Return every field that ``--set`` can change: its name, default, meaning, group and bounds or options.

    Defaults are those of this request: ``--set model=lstm`` and ``--from`` change some. No data is read.
    """
    recipe = get_recipe(request.recipe)
    options = request.take_options(recipe.options)
    defaults = recipe.defaults(request)

    rows = [_describe_field(declared, options, "recipe") for declared in dataclasses.fields(options)]
    for row in rows:
        row["condition"] = recipe.options.describe_condition(row["field"])
    names = recipe.options.list_applicable(request)
    # "window" is an option with --from, and otherwise a field of the model: list the one that applies
    shadowed = {declared.name for config in defaults.configs for declared in dataclasses.fields(config)} - names
    rows = [row for row in rows if row["field"] not in shadowed]

    groups = [*((config, "model") for config in defaults.configs), (Settings.from_json(defaults.settings), "training")]
    for values, group in groups:
        for declared in dataclasses.fields(values):
            if declared.name in names or declared.metadata["kind"] is Fields:
                continue
            names.add(declared.name)
            row = _describe_field(declared, values, group)
            if group == "model" and declared.name in defaults.from_data:
                row["default"], row["condition"] = None, "set by the data"
            rows.append(row)
    return rows


def _describe_field(declared: dataclasses.Field[Any], values: Fields, group: str) -> dict[str, Any]:
    rule = declared.metadata
    return {
        "field": declared.name,
        "group": group,
        "default": getattr(values, declared.name),
        "help": rule["help"],
        "condition": None,
        **{name: rule[name] for name in ("least", "most", "options") if name in rule},
    }
