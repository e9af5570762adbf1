"""Walk a config of transformers and its sub-configs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from transformers import PreTrainedConfig


def walk_configs(config: PreTrainedConfig) -> Iterator[PreTrainedConfig]:
    """Yield a config and all its sub-configs.

    Args:
        config: The config of a model.
    """
    yield config
    for _, entry in list_fields(config):
        if isinstance(entry, PreTrainedConfig):
            yield from walk_configs(entry)


def list_fields(config: PreTrainedConfig) -> list[tuple[str, Any]]:
    """List the fields of a config with their values.

    Args:
        config: A config.
    """
    return [
        # not getattr: some configs refuse to read a field that differs between layers
        (field.name, vars(config).get(config.attribute_map.get(field.name, field.name)))
        for field in dataclasses.fields(config)
    ]


def find_field(config: PreTrainedConfig, *names: str) -> Any:
    """Return the first of several fields that a config or one of its sub-configs has, or None.

    Args:
        config: The config of a model.
        names: The names of the fields, in order of preference.
    """
    for name in names:
        for part in walk_configs(config):
            entry = vars(part).get(name)
            if entry is not None:
                return entry
    return None
