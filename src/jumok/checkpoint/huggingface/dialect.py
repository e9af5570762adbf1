"""The base class of dialects: how Hugging Face stores one of our families, as tables that are read in both directions.

A ``Field`` pairs a field of config.json with one of our config, and a ``NameTable`` pairs tensors with parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType, MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from jumok.checkpoint.name_table import NameTable
from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue
from jumok.models import Config, Model

ConfigType = TypeVar("ConfigType", bound=Config)

# Hugging Face's name of an activation -> ours; when saving, the first of several names is written
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class LikeField:
    """The default of a field: the value of another field of our config, such as "layers" for "decoder_layers"."""

    ours: str


@dataclass(frozen=True)
class Field:
    """A field of config.json and its counterpart in our config."""

    name: str
    ours: str
    default: JSONValue | LikeField | EllipsisType = ...  # without one, config.json must have the field
    #: converts a value of config.json, which may come from an untrusted file; it receives the name too
    parse: Callable[[str, JSONValue], JSONValue] = lambda name, value: value
    format: Callable[[Any], JSONValue] = lambda value: value


class Dialect(ABC, Generic[ConfigType]):
    """How Hugging Face stores one of our families. It converts names and configs and contains no model arithmetic."""

    model_types: ClassVar[tuple[str, ...]]  # "model_type" in the config.json that it reads; the first one is written
    architectures: ClassVar[Mapping[str | None, str]]  # classes of transformers by our head; None: always this class
    model_class: ClassVar[type[Model]]
    fields: ClassVar[Sequence[Field]]
    supported: ClassVar[Mapping[str, JSONValue]] = MappingProxyType({})  # fields with one supported value

    def from_hf_config(self, hf_config: JSONObject) -> ConfigType:
        """Convert Hugging Face's config to ours."""
        return self.model_class.config_class.from_json(self.parse_fields(hf_config))  # type: ignore[return-value]

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        """Return the fields of our config. Subclasses add those that the table does not say."""
        refuse_unless(hf_config, **self.supported)
        values: JSONObject = {}
        for field in self.fields:
            default = values[field.default.ours] if isinstance(field.default, LikeField) else field.default
            values[field.ours] = field.parse(field.name, get_field(hf_config, field.name, default))
        return values

    def can_express(self, config: Config) -> bool:
        """Return True if Hugging Face has a model that computes the same outputs as ours."""
        return isinstance(config, self.model_class.config_class) and self.fits(config)  # type: ignore[arg-type]

    def fits(self, config: ConfigType) -> bool:
        """Return True if this dialect has all variants of a config. Subclasses override it."""
        return True

    def to_hf_config(self, config: ConfigType) -> JSONObject:
        """Convert our config to the content of config.json. Subclasses add what the table does not say."""
        return {
            "model_type": self.model_types[0],
            "architectures": [self.architectures[getattr(config, "head", None)]],
            **self.supported,
            **self.format_fields(config),
        }

    def format_fields(self, config: Config) -> JSONObject:
        """Return the fields of the table as config.json stores them."""
        written: JSONObject = {}
        for field in self.fields:
            value = getattr(config, field.ours)
            if value is None and isinstance(field.default, LikeField):
                value = getattr(config, field.default.ours)
            written[field.name] = field.format(value)
        return written

    @abstractmethod
    def build_name_table(self, config: ConfigType) -> NameTable:
        """Return the table of parameter names."""


def get_field(hf_config: JSONObject, name: str, default: JSONValue | EllipsisType = ...) -> JSONValue:
    """Return a field of a config; null is treated as missing."""
    value = hf_config.get(name)
    if value is not None:
        return value
    if isinstance(default, EllipsisType):
        raise CheckpointError(f"config.json has no field {name!r}")
    return default


def refuse_unless(hf_config: JSONObject, **supported: JSONValue) -> None:
    """Raise CheckpointError for a config with another than the only supported value; a missing field passes."""
    for name, value in supported.items():
        stored = hf_config.get(name, value)
        if stored != value:
            raise CheckpointError(f"config.json has {name} = {str(stored)[:80]!r}; only {value!r} is supported")


def parse_integer(name: str, value: JSONValue) -> int:
    """Return a value that must be an integer."""
    if not isinstance(value, int):
        raise CheckpointError(f"{name} in config.json must be an integer, not {str(value)[:40]!r}")
    return value


def activation_field(name: str, default: str, preferred: str = "") -> Field:
    """Return the field of an activation; ``preferred`` is the name to write if Hugging Face has several."""
    # an unknown name is not converted; our config raises the error for it
    return Field(name, "activation", default, parse_activation, lambda ours: format_activation(ours, preferred))


def parse_activation(name: str, value: JSONValue) -> JSONValue:
    """Return our name of an activation."""
    return ACTIVATIONS.get(value, value) if isinstance(value, str) else value


def format_activation(activation: str, preferred: str = "") -> str:
    """Return Hugging Face's name of an activation."""
    names = [name for name, ours in ACTIVATIONS.items() if ours == activation]
    return preferred if preferred in names else names[0]


def list_architectures(hf_config: JSONObject) -> list[str]:
    """Return the class names that a config lists under "architectures"."""
    architectures = hf_config.get("architectures")
    return [str(name) for name in architectures] if isinstance(architectures, list) else []


def parse_class_count(hf_config: JSONObject) -> JSONValue:
    """Return the number of classes: the length of id2label, else num_labels, else transformers' default of 2."""
    labels = hf_config.get("id2label")
    return len(labels) if isinstance(labels, dict) else get_field(hf_config, "num_labels", 2)
