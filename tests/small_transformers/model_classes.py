"""List the model classes in the auto mappings of the installed transformers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import transformers
from transformers.models.auto import modeling_auto


@dataclass(frozen=True)
class ModelClass:
    """A model class of transformers.

    Attributes:
        name: The name of the class, such as "GPT2LMHeadModel".
        model_type: The model type that the auto mappings list it under, such as "gpt2".
        mappings: The auto mappings that contain it, such as "FOR_CAUSAL_LM".
    """

    name: str
    model_type: str
    mappings: tuple[str, ...]

    def load(self) -> Any:
        """Import the class."""
        return getattr(transformers, self.name)


def list_model_classes() -> list[ModelClass]:
    """List every class of the auto mappings once, sorted by model type and name."""
    mappings: dict[str, list[str]] = {}
    model_types: dict[str, list[str]] = {}
    for mapping, model_type, name in _read_mappings():
        mappings.setdefault(name, []).append(mapping)
        model_types.setdefault(name, []).append(model_type)
    classes = [ModelClass(name, min(model_types[name], key=len), tuple(mappings[name])) for name in mappings]
    return sorted(classes, key=lambda entry: (entry.model_type, entry.name))


def _read_mappings() -> Iterator[tuple[str, str, str]]:
    """Yield (mapping, model type, class name) for every entry of the mappings of PyTorch models."""
    for attribute in sorted(vars(modeling_auto)):
        if not (attribute.startswith("MODEL_") and attribute.endswith("MAPPING_NAMES")):
            continue
        mapping = attribute.removeprefix("MODEL_").removesuffix("_MAPPING_NAMES")
        for model_type, names in getattr(modeling_auto, attribute).items():
            for name in (names,) if isinstance(names, str) else names:
                yield mapping, model_type, name
