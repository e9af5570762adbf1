"""Build a small model of a class of transformers, with random parameters and valid inputs."""

from __future__ import annotations

import copy
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .model_classes import ModelClass
from .parameters import randomise_parameters
from .shrink_config import shrink_config

SEED = 0
LARGEST_MODEL = 40_000_000
#: config fields that the generic rules cannot choose
OVERRIDES = Path(__file__).with_name("overrides.toml")


def build_small_model(model_class: ModelClass) -> Any:
    """Build a small model in eval mode.

    Args:
        model_class: The class to build.
    """
    loaded = model_class.load()
    overrides = get_overrides(model_class)
    config = shrink_config(_build_default_config(loaded.config_class, overrides), overrides)
    _check_size(loaded, config)
    torch.manual_seed(SEED)
    model = loaded(config).eval()
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")  # the fused function needs widths that are multiples of four
    randomise_parameters(model, SEED)
    return model


@cache
def read_overrides() -> dict[str, dict[str, Any]]:
    """Read the table of config fields by model type or by class name."""
    return tomllib.loads(OVERRIDES.read_text())


def get_overrides(model_class: ModelClass) -> dict[str, Any]:
    """Return the config fields to set for a class: those of its model type and those of its name.

    Args:
        model_class: The class.
    """
    table = read_overrides()
    return {**table.get(model_class.model_type, {}), **table.get(model_class.name, {})}


def _check_size(loaded: Any, config: Any) -> None:
    """Raise an error for a model that is not small, before its parameters take memory."""
    try:
        with torch.device("meta"):
            parameters = sum(parameter.numel() for parameter in loaded(copy.deepcopy(config)).parameters())
    except Exception:  # some models compute numbers while they are built; these are built as usual
        return
    if parameters > LARGEST_MODEL:
        raise ValueError(f"the shrunken model has {parameters:,} parameters")


def _build_default_config(config_class: Any, overrides: dict[str, Any]) -> Any:
    """Build a config with default sizes; where the defaults contradict each other, with the overrides."""
    try:
        return config_class()
    except Exception:
        return config_class(**overrides)
