"""A training request: the recipe, its data, the model to start from and the fields to change."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from jumok.checkpoint import Loaded, load
from jumok.errors import ArgumentError
from jumok.fields import Fields, FieldsType
from jumok.models import Config, Model
from jumok.training import Settings

from .recipe import Options, Recipe

ModelType = TypeVar("ModelType", bound=Model)
OptionsType = TypeVar("OptionsType", bound=Options)

# what run.json stores of a request, and the types of the values
STORED_KINDS = {"recipe": str, "data": str | None, "start": str | None, "changes": dict, "skip_bad": bool}


@dataclass
class TrainingRequest:
    """The user's request to train a model with a recipe.

    Attributes:
        recipe: The name of the recipe.
        folder: The folder of the run; a recipe may store its prepared data there.
        data: The user's file or folder; None = the recipe's default data.
        start: The model to start from: a folder, a run or a name; None = a new model.
        changes: Values by field name, for the recipe's options, the model's config and the training settings.
        skip_bad: Skip and count lines that cannot be read, instead of raising an error.
        report: Called with one-line messages for the user.
        used_fields: The fields that the recipe has taken so far; ``refuse_unused_fields`` refuses all others.
    """

    recipe: str
    folder: Path
    data: str | None = None
    start: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    skip_bad: bool = False
    report: Callable[[str], None] = lambda line: None
    used_fields: set[str] = field(default_factory=set)

    def to_json(self) -> dict[str, Any]:
        """Return what run.json stores of this request."""
        return {
            "recipe": self.recipe,
            "data": _make_absolute(self.data),
            "start": self.start,
            "changes": dict(self.changes),
            "skip_bad": self.skip_bad,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], folder: Path, report: Callable[[str], None]) -> TrainingRequest:
        """Return the request that ``to_json`` stored.

        Args:
            values: The content of run.json, which may be damaged.
            folder: The folder of the run.
            report: Called with one-line messages for the user.

        Raises:
            ArgumentError: If a value is missing or has the wrong type.
        """
        for name, kind in STORED_KINDS.items():
            if name not in values:
                raise ArgumentError(f"{name} is missing")
            if not isinstance(values[name], kind):
                raise ArgumentError(f"{name} is {str(values[name])[:80]!r}")
        return cls(**{name: values[name] for name in STORED_KINDS}, folder=folder, report=report)

    def take_settings(self, **defaults: Any) -> Settings:
        """Return the training settings of this request, and mark their fields as used.

        Args:
            **defaults: The recipe's defaults, by field name.
        """
        return self._take_fields(Settings.from_json(defaults))

    def take_config(self, default: FieldsType) -> FieldsType:
        """Return the model config of this request, and mark its fields as used.

        Args:
            default: The recipe's default config.
        """
        return self._take_fields(default)

    def _take_fields(self, default: FieldsType) -> FieldsType:
        names = {declared.name for declared in fields(default)}
        self.used_fields |= names
        changes = {name: value for name, value in self.changes.items() if name in names}
        return default.replace(**changes) if changes else default

    def take_options(self, kind: type[OptionsType]) -> OptionsType:
        """Return the recipe's own options of this request, and mark their fields as used.

        Args:
            kind: The class that declares them.

        Raises:
            ArgumentError: If a value is invalid.
        """
        names = kind.list_applicable(self)
        self.used_fields |= names
        changes = {name: value for name, value in self.changes.items() if name in names}
        for declared in fields(kind):  # text fields may look like numbers: --set source=1 is a column named "1"
            if declared.metadata["kind"] is str and type(changes.get(declared.name)) is int:
                changes[declared.name] = str(changes[declared.name])
        return kind.from_json(changes)

    def load_start(self) -> Loaded | None:
        """Load the model to start from (``--from``); None without one."""
        return None if self.start is None else load(self.start)

    def create_model(self, kind: type[ModelType], config: Config, settings: Settings) -> ModelType:
        """Return a new model with random parameters, drawn with the run's seed.

        Args:
            kind: The model class.
            config: Its config.
            settings: Uses the seed.
        """
        torch.manual_seed(settings.seed)
        return kind(config)  # every family is built from its config

    def refuse_undeclared_fields(self, recipe: Recipe) -> None:
        """Refuse changes of fields that the recipe does not declare, before any data is read.

        Args:
            recipe: The recipe of this request.

        Raises:
            ArgumentError: If there is no such field, or it does not apply to this request.
        """
        defaults = recipe.defaults(self)
        if self.start is None:  # with --from, the fields of the loaded model are not known yet
            groups: list[type[Fields]] = [Settings, *(type(config) for config in defaults.configs)]
            names = {declared.name for group in groups for declared in fields(group)}
            self._refuse_unknown_fields(recipe, names | recipe.options.list_applicable(self))

    def refuse_unused_fields(self, recipe: Recipe) -> None:
        """Refuse changes of fields that the recipe did not use while it built its task.

        Args:
            recipe: The recipe of this request.

        Raises:
            ArgumentError: If there is such a field.
        """
        self._refuse_unknown_fields(recipe, self.used_fields)

    def _refuse_unknown_fields(self, recipe: Recipe, names: set[str]) -> None:
        for name in self.changes:
            if name in names:
                continue
            condition = recipe.options.describe_condition(name)
            if condition is not None:
                raise ArgumentError(f"{name} of the {self.recipe} recipe applies {condition}; remove it")
            near = difflib.get_close_matches(name, sorted(names), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"jumok train --list {self.recipe} shows its fields"
            raise ArgumentError(f"the {self.recipe} recipe has no field {name!r}; {hint}")

    def refuse_data(self) -> None:
        """Raise ArgumentError if the request has data: used by recipes that generate their own."""
        if self.data is not None:
            raise ArgumentError(f"the {self.recipe} recipe generates its own data; remove --data")


def _make_absolute(data: str | None) -> str | None:
    """Return an absolute path, so that the run can resume from another folder; names stay as they are."""
    return str(Path(data).absolute()) if data is not None and Path(data).exists() else data


def parse_changes(words: Iterable[str]) -> dict[str, Any]:
    """Parse FIELD=VALUE: numbers, true and false, JSON lists, or text.

    Args:
        words: The values of the ``--set`` options.

    Raises:
        ArgumentError: If a word has no "=".

    >>> parse_changes(["width=128", "tokens=bytes", "tied=false"])
    {'width': 128, 'tokens': 'bytes', 'tied': False}
    """
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.strip():
            raise ArgumentError(f"--set takes FIELD=VALUE, not {word!r}; for example --set width=128")
        try:
            changes[name.strip()] = json.loads(text)
        except ValueError:
            changes[name.strip()] = text.strip()
    return changes
