"""Configs: frozen dataclasses whose fields say what they are, check themselves, and read and write as JSON."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from jumok.errors import ArgumentError

Made = TypeVar("Made", bound="Config")

LARGEST = 2**31  # no real size is larger; a file that says so is wrong


def integer(default: int, help: str, least: int = 1, most: int = LARGEST) -> Any:
    """A whole number between ``least`` and ``most``."""
    return field(default=default, metadata={"kind": int, "help": help, "least": least, "most": most})


def real(default: float, help: str, least: float = 0.0, most: float = 1e30) -> Any:
    """A number between ``least`` and ``most``."""
    return field(default=default, metadata={"kind": float, "help": help, "least": least, "most": most})


def choice(default: str, options: tuple[str, ...], help: str) -> Any:
    """One of ``options``."""
    return field(default=default, metadata={"kind": str, "help": help, "options": options})


def flag(default: bool, help: str) -> Any:
    return field(default=default, metadata={"kind": bool, "help": help})


def optional(inner: Any) -> Any:
    """The same field, but None is allowed and is the default."""
    return field(default=None, metadata={**inner.metadata, "optional": True})


@dataclass(frozen=True)
class Config:
    """What a model is made from. Subclasses add fields with ``number``, ``real``, ``choice``, ``truth``, ``maybe``."""

    family: ClassVar[str]

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            object.__setattr__(self, one.name, _checked(self.family, one, getattr(self, one.name)))
        self.check()

    def check(self) -> None:
        """Raise ArgumentError where fields do not fit each other."""

    def to_json(self) -> dict[str, Any]:
        told = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        inner = {name: value.to_json() for name, value in told.items() if isinstance(value, Config)}
        return {"family": self.family, **told, **inner}

    @classmethod
    def from_json(cls: type[Made], told: dict[str, Any]) -> Made:
        known = {one.name: one for one in dataclasses.fields(cls)}
        told = {name: value for name, value in told.items() if name != "family"}
        for name in told.keys() - known.keys():
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"
            raise ArgumentError(f"the {cls.family} config has no field {name!r}{hint}")
        # checked before anything is made of them: a file may hold anything
        return cls(**{name: _checked(cls.family, known[name], value) for name, value in told.items()})

    def replace(self: Made, **fields: Any) -> Made:
        """The same config with some fields changed."""
        return self.from_json({**self.to_json(), **fields})


def _checked(family: str, one: dataclasses.Field[Any], value: Any) -> Any:
    told = one.metadata
    place = f"{one.name} of the {family} config"
    if value is None and told.get("optional"):
        return None
    kind = told["kind"]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else float("inf")  # a file may hold a number of any length
    if kind is tuple and isinstance(value, list):
        value = tuple(value)
    if kind is Config:
        return _inner(place, told["families"], value)
    parts = value if isinstance(value, tuple) else ()
    whole = not any(isinstance(one, bool) or not isinstance(one, int) for one in parts)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)) or not whole:
        raise ArgumentError(f"{place} must be {_called(kind)}, not {value!r}")
    if "least" in told:
        for part in parts if kind is tuple else (value,):
            if not told["least"] <= part <= told["most"]:
                raise ArgumentError(f"{place} must be from {told['least']} to {told['most']}, not {value!r}")
    if "options" in told and value not in told["options"]:
        raise ArgumentError(f"{place} must be one of {', '.join(told['options'])}, not {value!r}")
    return value


def integers(default: tuple[int, ...], help: str, least: int = 1, most: int = LARGEST) -> Any:
    """Several whole numbers."""
    return field(default=default, metadata={"kind": tuple, "help": help, "least": least, "most": most})


def nested(default: Config, families: tuple[str, ...], help: str) -> Any:
    """Another model's config, of one of ``families``; in JSON an object with its own "family"."""
    return field(default=default, metadata={"kind": Config, "help": help, "families": families})


def _inner(place: str, families: tuple[str, ...], value: Any) -> Config:
    family = value.get("family") if isinstance(value, dict) else getattr(value, "family", None)
    if family not in families or not isinstance(value, dict | Config):
        raise ArgumentError(f"{place} must be a config of the family {' or '.join(families)}, not {str(value)[:80]}")
    if isinstance(value, Config):
        return value
    from . import registry  # which knows the families, and they this file

    return registry.get_family(family).config_class.from_json(value)


def _called(kind: type) -> str:
    named = {int: "a whole number", float: "a number", str: "text", bool: "true or false", tuple: "a list of numbers"}
    return named[kind]
