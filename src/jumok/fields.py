"""Declare, validate and serialise the fields of configs: frozen dataclasses that read and write JSON.

Model configs and training settings are subclasses of ``Fields``. Each field is declared by a function that states its
type, its default, its bounds and its help text:

    @dataclass(frozen=True)
    class TinyConfig(Fields):
        family: ClassVar[str] = "tiny"

        width: int = integer(64, "width of the model")
        activation: str = choice("gelu", ("relu", "gelu"), "activation of the feed-forward network")
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from jumok.errors import ArgumentError

JSONValue = None | bool | int | float | str | list[Any] | dict[str, Any]
JSONObject = dict[str, JSONValue]

# The functions below return Any, as dataclasses.field does: at runtime a Field, in the annotated class its value.

MAX_INTEGER = 2**31  # no real size is larger; a file that holds a larger one is damaged

KIND_NAMES = {int: "an integer", float: "a number", str: "text", bool: "true or false", tuple: "a list of integers"}

FieldsType = TypeVar("FieldsType", bound="Fields")


def integer(default: int, help: str, least: int = 1, most: int = MAX_INTEGER) -> Any:
    """Declare an integer field."""
    return field(default=default, metadata={"kind": int, "help": help, "least": least, "most": most})


def real(default: float, help: str, least: float = 0.0, most: float = 1e30) -> Any:
    """Declare a field for a real number."""
    return field(default=default, metadata={"kind": float, "help": help, "least": least, "most": most})


def choice(default: str, options: tuple[str, ...], help: str) -> Any:
    """Declare a field that holds one of several words."""
    return field(default=default, metadata={"kind": str, "help": help, "options": options})


def flag(default: bool, help: str) -> Any:
    """Declare a boolean field."""
    return field(default=default, metadata={"kind": bool, "help": help})


def integers(default: tuple[int, ...], help: str, least: int = 1, most: int = MAX_INTEGER) -> Any:
    """Declare a field that holds several integers; JSON stores them as a list."""
    return field(default=default, metadata={"kind": tuple, "help": help, "least": least, "most": most})


def subconfig(default: Fields, classes: tuple[type[Fields], ...], help: str) -> Any:
    """Declare a field that holds another config; JSON stores it as an object with its own "family"."""
    return field(default=default, metadata={"kind": Fields, "help": help, "classes": classes})


def optional(inner: dataclasses.Field[Any]) -> Any:
    """Declare a field like ``inner`` that may also be None, which is its default."""
    return field(default=None, metadata={**inner.metadata, "optional": True})


@dataclass(frozen=True)
class Fields:
    """Base class of configs. Values are validated on construction; lists become tuples, integers become floats where
    the field is a real number.
    """

    family: ClassVar[str]

    def __post_init__(self) -> None:
        for declared in dataclasses.fields(self):
            value = getattr(self, declared.name)
            # the class is frozen: this is how __post_init__ stores a normalised value (a tuple for a list)
            object.__setattr__(self, declared.name, _validate(self.family, declared, value))
        self.check()

    def check(self) -> None:
        """Raise ArgumentError if fields contradict each other. Subclasses override it."""

    def to_json(self) -> JSONObject:
        """Return all fields, and the family's name as "family"."""
        values: JSONObject = {"family": self.family}
        for declared in dataclasses.fields(self):
            value = getattr(self, declared.name)
            values[declared.name] = value.to_json() if isinstance(value, Fields) else value
        return values

    @classmethod
    def from_json(cls: type[FieldsType], values: Mapping[str, Any]) -> FieldsType:
        """Build a config from field values, which may come from an untrusted file."""
        declared = {field.name: field for field in dataclasses.fields(cls)}
        values = {name: value for name, value in values.items() if name != "family"}
        for name in values.keys() - declared.keys():
            near = difflib.get_close_matches(name, declared, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(sorted(declared))}"
            raise ArgumentError(f"the {cls.family} config has no field {name!r}; {hint}")
        return cls(**{name: _validate(cls.family, declared[name], value) for name, value in values.items()})

    def replace(self: FieldsType, **fields: Any) -> FieldsType:
        """Return a copy with other values for these fields."""
        return self.from_json({**self.to_json(), **fields})


def _validate(family: str, declared: dataclasses.Field[Any], value: Any) -> Any:
    """Return ``value`` in its normal form, or raise ArgumentError."""
    rule, name = declared.metadata, f"{declared.name} of the {family} config"
    if value is None and rule.get("optional"):
        return None

    kind = rule["kind"]
    if kind is Fields:
        return _validate_nested(name, rule["classes"], value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else float("inf")  # a file may hold an integer of any length
    if kind is tuple and isinstance(value, list):
        value = tuple(value)

    numbers = value if isinstance(value, tuple) else (value,)
    are_integers = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    if not isinstance(value, kind) or (kind in (int, tuple) and not are_integers):
        raise ArgumentError(f"{name} must be {KIND_NAMES[kind]}, not {value!r}")
    if "least" in rule and not all(rule["least"] <= number <= rule["most"] for number in numbers):
        raise ArgumentError(f"{name} must be from {rule['least']} to {rule['most']}, not {value!r}")
    if "options" in rule and value not in rule["options"]:
        raise ArgumentError(f"{name} must be one of {', '.join(rule['options'])}, not {value!r}")
    return value


def _validate_nested(name: str, classes: tuple[type[Fields], ...], value: Any) -> Fields:
    if isinstance(value, classes):
        return value
    for config_class in classes:
        if isinstance(value, dict) and value.get("family") == config_class.family:
            return config_class.from_json(value)
    families = " or ".join(config_class.family for config_class in classes)
    raise ArgumentError(f"{name} must be a config of the family {families}, not {str(value)[:80]}")
