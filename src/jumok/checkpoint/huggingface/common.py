"""Read and write the fields that the configs of several Hugging Face architectures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import EllipsisType

from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue

# Hugging Face's name of an activation -> ours; when saving, the first of several names is written
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


def get_field(hf_config: JSONObject, name: str, default: JSONValue | EllipsisType = ...) -> JSONValue:
    """Return a field of a config; null is treated as missing.

    Args:
        hf_config: The content of config.json, or an object in it.

    Raises:
        CheckpointError: If a required field is missing.
    """
    value = hf_config.get(name)
    if value is not None:
        return value
    if isinstance(default, EllipsisType):
        raise CheckpointError(f"config.json has no field {name!r}")
    return default


def get_integer_field(hf_config: JSONObject, name: str, default: int) -> int:
    """Return an integer field of a config.

    Raises:
        CheckpointError: If the field is not an integer.
    """
    value = get_field(hf_config, name, default)
    if not isinstance(value, int):
        raise CheckpointError(f"{name} in config.json must be an integer, not {str(value)[:40]!r}")
    return value


def refuse_unless(hf_config: JSONObject, **supported: JSONValue) -> None:
    """Raise CheckpointError for a config whose arithmetic our models do not implement.

    Args:
        **supported: The only supported value of each field; a missing field passes.

    Raises:
        CheckpointError: If a field has another value.
    """
    for name, value in supported.items():
        stored = hf_config.get(name, value)
        if stored != value:
            raise CheckpointError(f"config.json has {name} = {str(stored)[:80]!r}; only {value!r} is supported")


def parse_activation(name: JSONValue) -> JSONValue:
    """Return our name of an activation. An unknown name is returned unchanged; our config raises the error for it.

    Args:
        name: Hugging Face's name.
    """
    return ACTIVATIONS.get(name, name) if isinstance(name, str) else name


def format_activation(activation: str, preferred: str = "") -> str:
    """Return Hugging Face's name of an activation.

    Args:
        preferred: The name to write if Hugging Face has several for it.
    """
    names = [name for name, ours in ACTIVATIONS.items() if ours == activation]
    return preferred if preferred in names else names[0]


def parse_architectures(hf_config: JSONObject) -> list[str]:
    """Return the class names that a config lists under "architectures"."""
    architectures = hf_config.get("architectures")
    return [str(name) for name in architectures] if isinstance(architectures, list) else []


def find_head(hf_config: JSONObject, heads: Mapping[str, str]) -> str:
    """Return our name of the head that the first architecture has; "none" if the config names no architecture.

    Raises:
        CheckpointError: If the architecture is not in ``heads``.
    """
    architectures = parse_architectures(hf_config)
    if not architectures:
        return "none"
    if architectures[0] not in heads:
        raise CheckpointError(f"config.json has architecture {architectures[0][:80]!r}; supported: {', '.join(heads)}")
    return heads[architectures[0]]


def parse_class_count(hf_config: JSONObject) -> JSONValue:
    """Return the number of classes: the length of id2label, else num_labels, else transformers' default of 2."""
    labels = hf_config.get("id2label")
    return len(labels) if isinstance(labels, dict) else get_field(hf_config, "num_labels", 2)


def parse_size(hf_config: JSONObject, name: str, default: int) -> list[int]:
    """Return [rows, columns] of a field that holds one or two integers.

    Args:
        default: The value of a missing field, for rows and columns.

    Raises:
        CheckpointError: If the field is neither one nor two integers.
    """
    size = get_field(hf_config, name, default)
    pair = [size, size] if isinstance(size, int) else size
    if not (isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair)):
        raise CheckpointError(f"{name} in config.json must be one or two integers, not {str(size)[:80]!r}")
    return pair


def format_size(size: Sequence[int]) -> int | list[int]:
    """Return (rows, columns) as Hugging Face stores it: one number for a square."""
    return size[0] if size[0] == size[1] else list(size)
