"""Hugging Face's names for our families, one file a type: configs both ways, and the name table."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from jumok.checkpoint.name_table import Table
from jumok.errors import CheckpointError
from jumok.models import Config, Model


@dataclass(frozen=True)
class Reading:
    """How a folder is to be read: which model, from which config, by which names."""

    model: type[Model]
    config: Config
    table: Table


class Dialect(Protocol):
    """A module of this folder."""

    MODEL_TYPES: tuple[str, ...]

    def reading(self, theirs: dict[str, Any]) -> Reading:
        """From their config.json."""

    def config_json(self, model: Model) -> dict[str, Any]:
        """Their config.json for our model."""

    def table(self, config: Config) -> Table: ...


# model_type in config.json -> the module that knows it
DIALECTS: dict[str, str] = {
    "gpt2": "gpt2",
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "llama",
    "bert": "bert",
    "roberta": "bert",
    "distilbert": "distilbert",
    "t5": "t5",
    "marian": "marian",
    "pegasus": "pegasus",
    "vit": "vit",
    "deit": "vit",
    "swin": "swin",
}

# our family -> the modules that may be able to write it
WRITERS: dict[str, tuple[str, ...]] = {
    "gpt": ("gpt2", "llama"),
    "bert": ("bert", "distilbert"),
    "t5": ("t5",),
    "transformer": ("marian", "pegasus"),
    "vit": ("vit",),
    "swin": ("swin",),
}


def dialect(model_type: object) -> Any:
    if not isinstance(model_type, str) or model_type not in DIALECTS:
        known = ", ".join(sorted(DIALECTS))
        raise CheckpointError(f"config.json says model_type {str(model_type)[:80]!r}; known are {known}")
    return import_module(f"{__name__}.{DIALECTS[model_type]}")


def dialect_of(model: Model) -> Any:
    """The module that can write this model."""
    for name in WRITERS.get(model.family, ()):
        module = import_module(f"{__name__}.{name}")
        if module.writes(model):
            return module
    raise CheckpointError(f"Hugging Face has no model like this {model.family}; save it with format='jumok'")


def take(theirs: dict[str, Any], name: str, default: Any = ...) -> Any:
    """A field of their config; a sentence where it is missing."""
    if name in theirs and theirs[name] is not None:
        return theirs[name]
    if default is ...:
        raise CheckpointError(f"config.json has no field {name!r}")
    return default


def refuse_unless(theirs: dict[str, Any], **expected: Any) -> None:
    """Fields that change the arithmetic, and that we know only one value of."""
    for name, value in expected.items():
        found = theirs.get(name, value)
        if found != value:
            raise CheckpointError(f"config.json has {name} = {str(found)[:80]!r}; only {value!r} is supported")
