"""A training request: the recipe, its data, the model to start from and the fields to change."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from jumok.checkpoint import Loaded, load
from jumok.checkpoint.name_table import build_on_meta
from jumok.checkpoint.tensor_files import check_path_encoding
from jumok.data import catalogue
from jumok.data.readers.file_format import FileFormat, check_encoding
from jumok.data.readers.hub_datasets import HUB_PREFIX
from jumok.data.readers.lines import Notice, ProblemLog
from jumok.data.readers.table_header import KNOWN_NAMES
from jumok.defaults import FIELD_SYNONYMS
from jumok.errors import ArgumentError
from jumok.fields import Fields, FieldsType
from jumok.models import Config, Model
from jumok.training import Settings

from .recipe import Options, Recipe

ModelType = TypeVar("ModelType", bound=Model)
OptionsType = TypeVar("OptionsType", bound=Options)

# what run.json stores of a request, and the types of the values
STORED_KINDS = {
    "recipe": str,
    "data": str | None,
    "start": str | None,
    "changes": dict,
    "skip_bad": bool,
    "encoding": str | None,
}
GENERATED_DATA = ("sentences",)  # data that is generated, not read from files: Korean and English sentences
MAX_NOTICES = 10  # facts about the data that are shown


@dataclass
class TrainingRequest:
    """The user's request to train a model with a recipe.

    Attributes:
        folder: The folder of the run; a recipe may store its prepared data there.
        data: The user's file or folder, or the name of a catalogue entry or of generated data; None = the recipe's
            default data.
        start: The model to start from: a folder, a run or a name; None = a new model.
        changes: Values by field name, for the recipe's options, the model's config and the training settings.
        skip_bad: Skip and count lines that cannot be read, instead of raising an error.
        encoding: The encoding of the user's text files; None = UTF-8.
        report: Called with one-line messages for the user.
        notices: Facts about the data that the user was shown, by their topic.
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
    encoding: str | None = None
    notices: dict[object, Notice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in (self.folder, self.data, self.start):
            check_path_encoding(path or "")
        if self.data is not None and not self.data.strip():  # an unset variable; Path("") is the current folder
            raise ArgumentError("data (--data) is empty; give a file, a folder or a name, or leave it out")

    def to_json(self) -> dict[str, Any]:
        """Return what run.json stores of this request."""
        return {
            "recipe": self.recipe,
            "data": _make_absolute(self.data),
            "start": self.start,
            "changes": dict(self.changes),
            "skip_bad": self.skip_bad,
            "encoding": self.encoding,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], folder: Path, report: Callable[[str], None]) -> TrainingRequest:
        """Return the request that ``to_json`` stored."""
        values = {"encoding": None, **values}  # runs of earlier versions have none
        for name, kind in STORED_KINDS.items():
            if name not in values:
                raise ArgumentError(f"{name} is missing")
            if not isinstance(values[name], kind):
                raise ArgumentError(f"{name} is {str(values[name])[:80]!r}")
        return cls(**{name: values[name] for name in STORED_KINDS}, folder=folder, report=report)

    @property
    def catalogue_name(self) -> str | None:
        """The catalogue entry that ``data`` names; None without data, or if it is a path or another name."""
        if self.data is None or Path(self.data).exists():
            return None
        return next((entry.name for entry in catalogue.list_entries() if entry.name == self.data), None)

    @property
    def generated_name(self) -> str | None:
        """The generated data that ``data`` names; None without data, or if it is a path or another name."""
        return self.data if self.data in GENERATED_DATA and not Path(self.data).exists() else None

    @property
    def has_own_files(self) -> bool:
        """Whether ``data`` is the user's own: a path or a Hugging Face dataset, not a catalogue entry or generated."""
        return self.data is not None and self.catalogue_name is None and self.generated_name is None

    @property
    def download_report(self) -> Callable[[str], None] | None:
        """What readers of the catalogue receive: only a recipe's default data is downloaded without being named."""
        return self.report if self.data is None else None

    def create_file_format(self, header: str) -> FileFormat:
        """Return how the user's files are written."""
        return FileFormat(self.encoding or "utf-8", header)

    def create_problem_log(self) -> ProblemLog:
        """Return a log that skips bad lines if the request says so, and shows notices to the user."""
        return ProblemLog(self.skip_bad, self._show_notice)

    def _show_notice(self, notice: Notice) -> None:
        """Show a fact about the data; data is read several times, but each fact is shown once."""
        if notice.topic in self.notices or len(self.notices) == MAX_NOTICES:
            return
        self.notices[notice.topic] = notice
        self.report(str(notice))

    def take_settings(self, **defaults: Any) -> Settings:
        """Return the training settings of this request, and mark their fields as used."""
        if {"steps", "epochs"} <= self.changes.keys():
            raise ArgumentError("give either steps or epochs, not both; the number of epochs determines the steps")
        return self._take_fields(Settings.from_json(defaults))

    def take_config(self, default: FieldsType) -> FieldsType:
        """Return the model config of this request, and mark its fields as used."""
        return self._take_fields(default)

    def _take_fields(self, default: FieldsType) -> FieldsType:
        names = {declared.name for declared in fields(default)}
        self.used_fields |= names
        changes = {name: value for name, value in self.changes.items() if name in names}
        return default.replace(**changes) if changes else default

    def take_options(self, kind: type[OptionsType]) -> OptionsType:
        """Return the recipe's own options of this request, and mark their fields as used."""
        names = kind.list_applicable(self)
        self.used_fields |= names
        changes = {name: value for name, value in self.changes.items() if name in names}
        for declared in fields(kind):
            change = changes.get(declared.name)
            if declared.metadata["kind"] is str and type(change) is int:  # --set source=1 is a column number
                changes[declared.name] = str(change)
            elif isinstance(change, bool) and {"yes", "no"} <= set(declared.metadata.get("options", ())):
                changes[declared.name] = "yes" if change else "no"
        return kind.from_json(changes)

    def load_start(self) -> Loaded | None:
        """Load the model to start from (``--from``); None without one."""
        return None if self.start is None else load(self.start)

    def create_model(self, kind: type[ModelType], config: Config, settings: Settings) -> ModelType:
        """Return a new model with random parameters, drawn with the run's seed."""
        size = build_on_meta(kind, config, torch.float32, "this config").parameter_count
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**48
        if 4 * size > memory:
            raise ArgumentError(
                f"this {kind.family} has {size:,} parameters, more than the memory of this machine holds; choose "
                "smaller fields"
            )
        torch.manual_seed(settings.seed)
        return kind(config)  # every family is built from its config

    def refuse_undeclared_fields(self, recipe: Recipe) -> None:
        """Refuse changes of fields that the recipe does not declare, before any data is read."""
        defaults = recipe.defaults(self)
        self._refuse_unused_encoding(recipe)
        if self.start is None:  # with --from, the fields of the loaded model are not known yet
            groups: list[type[Fields]] = [Settings, *(type(config) for config in defaults.configs)]
            names = {declared.name for group in groups for declared in fields(group)}
            self._refuse_unknown_fields(recipe, names | recipe.options.list_applicable(self))

    def _refuse_unused_encoding(self, recipe: Recipe) -> None:
        """Check the encoding, and refuse it if no text files are read: recipes that read them have a field "header"."""
        if self.encoding is None:
            return
        check_encoding(self.encoding)
        is_hub_name = self.data is not None and self.data.startswith(HUB_PREFIX)
        if is_hub_name or "header" not in recipe.options.list_applicable(self):
            raise ArgumentError("--encoding applies only to text files of your own, given with --data; remove it")

    def refuse_unused_fields(self, recipe: Recipe) -> None:
        """Refuse changes of fields that the recipe did not use while it built its task."""
        self._refuse_unknown_fields(recipe, self.used_fields)

    def _refuse_unknown_fields(self, recipe: Recipe, names: set[str]) -> None:
        for name in self.changes:
            if name in names:
                continue
            condition = recipe.options.describe_condition(name)
            if condition is not None:
                if self.catalogue_name is not None and name in recipe.options.with_data:
                    condition = f"to files of your own, not to {self.catalogue_name} of the catalogue"
                elif self.generated_name is not None and name in recipe.options.with_data:
                    condition = f"to files of your own, not to {self.generated_name}, which are generated"
                raise ArgumentError(f"{name} of the {self.recipe} recipe applies {condition}; remove it")
            near = difflib.get_close_matches(name, sorted(names), 1)
            if FIELD_SYNONYMS.get(name) in names:
                near = [FIELD_SYNONYMS[name]]
            hint = f"did you mean {near[0]!r}?" if near else f"jumok train --list {self.recipe} shows its fields"
            columns = recipe.options.list_columns()
            if name in KNOWN_NAMES and columns:  # the column of another recipe
                choices = " and ".join(f"{column}=NAME" for column in columns)
                hint = f"choose the column{'s' * (len(columns) > 1)} of your table with {choices}"
            raise ArgumentError(f"the {self.recipe} recipe has no field {name!r}; {hint}")

    def refuse_data(self) -> None:
        """Raise ArgumentError if the request has data: used by recipes that generate their own."""
        if self.data is not None:
            raise ArgumentError(f"the {self.recipe} recipe generates its own data; remove data (--data)")


def _make_absolute(data: str | None) -> str | None:
    """Return an absolute path, so that the run can resume from another folder; names stay as they are."""
    return str(Path(data).absolute()) if data is not None and Path(data).exists() else data


def parse_changes(words: Iterable[str]) -> dict[str, Any]:
    """Parse FIELD=VALUE: numbers, true and false, JSON lists, or text.

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
