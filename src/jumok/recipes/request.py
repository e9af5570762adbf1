"""What a person asked of a recipe: which data, which model to start from, which fields to change."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from jumok.checkpoint import Loaded, load
from jumok.errors import ArgumentError
from jumok.fields import Fields
from jumok.models import Config, Model
from jumok.training import Settings

from .recipe import Options

Made = TypeVar("Made", bound=Fields)
Kind = TypeVar("Kind", bound=Model)
OptionsType = TypeVar("OptionsType", bound=Options)


@dataclass
class TrainingRequest:
    """changes: field = value, for the training's settings, the model's config and the recipe's own choices; a recipe
    asks for each by name, and what nobody asked for is refused at the end. folder: of the run, where a recipe may keep
    what it made of its data."""

    recipe: str
    folder: Path
    data: str | None = None
    start: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    skip_bad: bool = False
    report: Callable[[str], None] = lambda line: None
    known: set[str] = field(default_factory=set)

    def to_json(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "data": _lasting(self.data),
            "start": self.start,
            "changes": dict(self.changes),
            "skip_bad": self.skip_bad,
        }

    def settings(self, **defaults: Any) -> Settings:
        """The training's settings: the recipe's defaults, and what was asked for."""
        return self._changed(Settings.from_json(defaults))

    def config(self, default: Made) -> Made:
        """A model's config: the recipe's, and what was asked for."""
        return self._changed(default)

    def _changed(self, config: Made) -> Made:
        names = {one.name for one in fields(config)}
        self.known |= names
        wanted = {name: value for name, value in self.changes.items() if name in names}
        return config.replace(**wanted) if wanted else config

    def options(self, kind: type[OptionsType]) -> OptionsType:
        """The recipe's own fields: their defaults, and what was asked for.

        Args:
            kind: The class that declares them.

        Raises:
            ArgumentError: If a value is invalid, or its field does not apply to this request.
        """
        names = {declared.name for declared in fields(kind)}
        self.known |= names
        changed = {name: value for name, value in self.changes.items() if name in names}
        for declared in fields(kind):  # --set source=1: a column named 1
            if declared.metadata["kind"] is str and type(changed.get(declared.name)) is int:
                changed[declared.name] = str(changed[declared.name])
        inapplicable = {
            *(() if self.data is not None else kind.with_data),
            *(() if self.data is None else kind.without_data),
            *(() if self.start is not None else kind.with_start),
            *(() if self.start is None else kind.without_start),
        }
        for name in changed:
            if name in inapplicable:
                condition = kind.describe_condition(name)
                raise ArgumentError(f"{name} of the recipe {self.recipe} applies {condition}; leave it out")
        return kind.from_json(changed)

    def load_start(self) -> Loaded | None:
        """What to start from, where somebody said so (``--from``)."""
        return None if self.start is None else load(self.start)

    def model(self, kind: type[Kind], config: Config, settings: Settings) -> Kind:
        """A new model, drawn with the run's seed."""
        torch.manual_seed(settings.seed)
        return kind(config)  # every family is built from its config

    def finish(self) -> None:
        """Refuse what no part of the recipe asked for."""
        for name in self.changes:
            if name not in self.known:
                near = difflib.get_close_matches(name, self.known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(self.known))}"
                raise ArgumentError(f"the recipe {self.recipe} has no field {name!r}; {hint}")

    def refuse_data(self) -> None:
        if self.data is not None:
            raise ArgumentError(f"the recipe {self.recipe} makes its own data; it takes no --data")


def _lasting(data: str | None) -> str | None:
    """A path that still means the same when the run is taken up from another folder; names as they are."""
    return str(Path(data).absolute()) if data is not None and Path(data).exists() else data


def parse_changes(words: tuple[str, ...]) -> dict[str, Any]:
    """field=value, as people write them: numbers, true and false, lists, or text."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise ArgumentError(f"--set takes field=value, not {word!r}; for example --set width=128")
        try:
            found[name.strip()] = json.loads(value)
        except ValueError:
            found[name.strip()] = value.strip()
    return found
