"""Read the table of config fields that the generic rules cannot choose: overrides.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from .model_classes import ModelClass

PATH = Path(__file__).with_name("overrides.toml")


@cache
def read_overrides() -> dict[str, dict[str, Any]]:
    """Read the table: fields by model type or by class name."""
    return tomllib.loads(PATH.read_text())


def get_overrides(model_class: ModelClass) -> dict[str, Any]:
    """Return the config fields to set for a class: those of its model type and those of its name.

    Args:
        model_class: The class.
    """
    table = read_overrides()
    return {**table.get(model_class.model_type, {}), **table.get(model_class.name, {})}
