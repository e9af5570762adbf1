"""Declare a recipe: its own fields, its default config and settings, and the function that creates its training task.

Fields and defaults are declared separately from the work, so that ``jumok train --list RECIPE`` can show them without
reading data or downloading anything.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch

from jumok.checkpoint import Loaded, load
from jumok.checkpoint.name_table import build_on_meta
from jumok.data.readers.file_format import HEADER_CHOICES, check_encoding
from jumok.data.readers.table_header import KNOWN_NAMES
from jumok.data.readers.tables import HUB_PREFIX
from jumok.defaults import FIELD_SYNONYMS
from jumok.errors import ArgumentError
from jumok.fields import Fields, choice
from jumok.models import Config, Model
from jumok.training import Settings, TrainingTask, apply_epochs

from .request import TrainingRequest

ModelType = TypeVar("ModelType", bound=Model)
OptionsType = TypeVar("OptionsType", bound="Options")

# name: (module, help); the module is imported when its recipe is used
RECIPES = {
    "numbers": ("toys.numbers", "a Transformer adds 2 to each of 5 real numbers"),
    "copy": ("toys.sequences", "a Transformer, LSTMs with Luong's attention or a GPT copies a sequence"),
    "reverse": ("toys.sequences", "the same models reverse a sequence; model=lstm is JoeyNMT's setting"),
    "sort": ("toys.digits", "a small GPT sorts 6 digits, tested on all held-out rows"),
    "add": ("toys.digits", "a small GPT adds two-digit numbers, tested on all held-out sums"),
    "induction": ("toys.induction", "a GPT of two blocks learns induction (repeated sequences); the model `tiny`"),
    "text": ("language.language_model", "a GPT learns a text, with nanoGPT's size, batches and steps for a CPU"),
    "text-fast": ("language.language_model", "a GPT learns a text to the same loss in a third of the time"),
    "gpt2": ("language.language_model", "a GPT-2 of 2.7 million parameters learns a text in byte pairs of its own"),
    "masked": ("language.masked_language_model", "a BERT or a long-text encoder learns to predict masked tokens"),
    "translate": ("language.translate", "a Transformer or LSTMs translate English and Korean, or your own languages"),
    "sentiment": ("language.sentiment", "an encoder classifies texts by sentiment or your classes, against TF-IDF"),
    "caption": (
        "images.captioner",
        "a captioner names emoji in English or Korean, or describes your images or region features",
    ),
    "listen": ("speech.listen", "a speech model learns spoken words, English and Korean, or transcribes your clips"),
    "reader": ("language.reader", "a Fusion-in-Decoder answers questions from passages, invented ones or your own"),
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
    def parse(cls: type[OptionsType], request: TrainingRequest) -> OptionsType:
        """Return the recipe's own fields as a request changes them."""
        names = cls.list_applicable(request)
        changes = {name: value for name, value in request.changes.items() if name in names}
        for declared in dataclasses.fields(cls):
            value = changes.get(declared.name)
            if declared.metadata["kind"] is str and type(value) is int:  # --set source=1 is a column number
                changes[declared.name] = str(value)
            elif isinstance(value, bool) and {"yes", "no"} <= set(declared.metadata.get("options", ())):
                changes[declared.name] = "yes" if value else "no"
        return cls.from_json(changes)

    @classmethod
    def list_applicable(cls, request: TrainingRequest) -> set[str]:
        """Return the names of the fields that apply to a request."""
        inapplicable = {
            *(cls.without_data if request.has_own_files else cls.with_data),
            *(cls.with_start if request.start is None else cls.without_start),
        }
        return {declared.name for declared in dataclasses.fields(cls)} - inapplicable

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


def column_field(help: str) -> Any:
    """Declare a field that holds the name or the number of a column of the user's tables; None = by its usual name."""
    help = f"{help}: its name or number; None = by a well-known name"
    return field(default=None, metadata={"kind": str, "help": help, "optional": True, "is_column": True})


def header_field() -> Any:
    """Declare the field that says whether the user's tables have a header."""
    return choice("auto", HEADER_CHOICES, "whether the first row of your table names its columns; auto = decide by it")


@dataclass(frozen=True)
class Defaults:
    """The default settings and configs of a recipe; a request can change them."""

    settings: Mapping[str, Any]  # by field name; the other settings keep their own defaults
    configs: tuple[Config, ...] = ()  # of a new model (and of its encoder, if that has its own)
    from_data: tuple[str, ...] = ()  # config fields that the recipe computes from the data, such as the vocabulary
    start_settings: Mapping[str, Any] | None = None  # with --from; None = the same
    start_configs: tuple[Config, ...] = ()  # of the loaded model, if their fields can be changed too

    def select(self, request: TrainingRequest) -> tuple[Settings, tuple[Config, ...]]:
        """Return the settings and configs that apply to a request, before its changes."""
        if request.start is None:
            return Settings.from_json(self.settings), self.configs
        return Settings.from_json(self.start_settings or self.settings), self.start_configs


@dataclass(frozen=True)
class Recipe:
    """One kind of training run, from its data to its report."""

    # reads the data and creates the model: (request, options, settings, the loaded model to start from)
    create_task: Callable[[TrainingRequest, Any, Settings, Loaded | None], TrainingTask]
    # or a function of the request, the options and the loaded model that returns them without reading data
    defaults: Defaults | Callable[[TrainingRequest, Any, Loaded | None], Defaults]
    families: tuple[type[Model], ...]  # that it can start from
    options: type[Options] = Options  # the recipe's own fields
    # the file that exists in the run's folder once the prepared data is stored; None = a resumed run reads it again
    stored: str | None = None
    reads_data: bool = True  # False if it generates all of its data, so that --data is an error
    needs_tokenizer: bool = True  # whether the model to start from must have a tokenizer

    def build(self, request: TrainingRequest) -> TrainingTask:
        """Parse a request, read its data and create the training task."""
        if request.data is not None and not self.reads_data:
            raise ArgumentError(f"the {request.recipe} recipe generates its own data; remove data (--data)")
        options = self.options.parse(request)
        if request.encoding is not None:
            check_encoding(request.encoding)
            is_hub_name = request.data is not None and request.data.startswith(HUB_PREFIX)
            # recipes that read text files have a field "header"
            if is_hub_name or "header" not in self.options.list_applicable(request):
                raise ArgumentError("--encoding applies only to text files of your own, given with --data; remove it")
        loaded = None if request.start is None else load(request.start)
        if loaded is not None:
            lacks_tokenizer = self.needs_tokenizer and loaded.tokenizer is None
            if lacks_tokenizer or not isinstance(loaded.model, self.families):
                families = " or ".join(family.family for family in self.families)
                raise request.explain_start(f"a {families} model{' with a tokenizer' * self.needs_tokenizer}", loaded)
        settings, configs = self.get_defaults(request, options, loaded).select(request)
        groups: list[Fields] = [settings, *configs]
        names = {declared.name for group in groups for declared in dataclasses.fields(group)}
        self._refuse_unknown_fields(request, names | self.options.list_applicable(request))
        if {"steps", "epochs"} <= request.changes.keys():
            raise ArgumentError("give either steps or epochs, not both; the number of epochs determines the steps")
        return apply_epochs(self.create_task(request, options, request.change(settings), loaded))

    def get_defaults(self, request: TrainingRequest, options: Options, loaded: Loaded | None = None) -> Defaults:
        """Return the default config and settings."""
        return self.defaults if isinstance(self.defaults, Defaults) else self.defaults(request, options, loaded)

    def _refuse_unknown_fields(self, request: TrainingRequest, names: set[str]) -> None:
        """Refuse the first change whose field is not one of these names, before any data is read."""
        name = next((name for name in request.changes if name not in names), None)
        if name is None:
            return
        condition = self.options.describe_condition(name)
        if condition is not None:
            if request.catalogue_name is not None and name in self.options.with_data:
                condition = f"to files of your own, not to {request.catalogue_name} of the catalogue"
            elif request.generated_name is not None and name in self.options.with_data:
                condition = f"to files of your own, not to {request.generated_name}, which are generated"
            raise ArgumentError(f"{name} of the {request.recipe} recipe applies {condition}; remove it")
        synonym = FIELD_SYNONYMS.get(name)
        near = [synonym] if synonym in names else difflib.get_close_matches(name, sorted(names), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"jumok train --list {request.recipe} shows its fields"
        columns = [column.name for column in dataclasses.fields(self.options) if column.metadata.get("is_column")]
        if name in KNOWN_NAMES and columns:  # the column of another recipe
            choices = " and ".join(f"{column}=NAME" for column in columns)
            hint = f"choose the column{'s' * (len(columns) > 1)} of your table with {choices}"
        raise ArgumentError(f"the {request.recipe} recipe has no field {name!r}; {hint}")


def get_recipe(name: str) -> Recipe:
    """Import a recipe."""
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(RECIPES)}"
        raise ArgumentError(f"there is no recipe {name!r}; {hint}")
    module = importlib.import_module(f"jumok.recipes.{RECIPES[name][0]}")
    recipe: Recipe = getattr(module, name.replace("-", "_"))
    return recipe


def create_model(kind: type[ModelType], config: Config, seed: int) -> ModelType:
    """Return a new model with random parameters, drawn with the run's seed."""
    size = build_on_meta(kind, config, torch.float32, "this config").parameter_count
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**48
    if 4 * size > memory:
        raise ArgumentError(
            f"this {kind.family} has {size:,} parameters, more than the memory of this machine holds; choose "
            "smaller fields"
        )
    torch.manual_seed(seed)
    return kind(config)  # every family is built from its config


def copy_parameters(model: Model, parameters: Mapping[str, torch.Tensor]) -> None:
    """Copy parameters of the model to start from; the model's other parameters keep their values."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    mismatch = next((name for name, tensor in parameters.items() if shapes.get(name) != tensor.shape), None)
    if mismatch is not None:
        raise ArgumentError(
            f"the parameter {mismatch} of the model to start from has a different size; do not change its sizes"
        )
    model.load_state_dict(dict(parameters), strict=False)


def describe_recipes() -> list[dict[str, str]]:
    """Return the name and the help text of every recipe."""
    return [{"recipe": name, "what": help} for name, (_, help) in RECIPES.items()]


def describe_fields(request: TrainingRequest) -> list[dict[str, Any]]:
    """Return every field that ``--set`` can change: its name, default, meaning, group and bounds or options.

    Defaults are those of this request: ``--set model=lstm`` and ``--from`` change some. No data is read.
    """
    recipe = get_recipe(request.recipe)
    options = recipe.options.parse(request)
    defaults = recipe.get_defaults(request, options)
    settings, configs = defaults.select(request)
    names = recipe.options.list_applicable(request)
    # "window" is an option with --from, and otherwise a field of the model: list the one that applies
    shadowed = {declared.name for config in configs for declared in dataclasses.fields(config)} - names

    rows = []
    for declared in dataclasses.fields(options):
        if declared.name not in shadowed:
            condition = recipe.options.describe_condition(declared.name)
            rows.append(_describe_field(declared, options, "recipe", condition))
    groups: list[tuple[Fields, str]] = [*((config, "model") for config in configs), (settings, "training")]
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


def _describe_field(
    declared: dataclasses.Field[Any], values: Fields, group: str, condition: str | None = None
) -> dict[str, Any]:
    rule = declared.metadata
    return {
        "field": declared.name,
        "group": group,
        "default": getattr(values, declared.name),
        "help": rule["help"],
        "condition": condition,
        **{name: rule[name] for name in ("least", "most", "options") if name in rule},
    }
