"""Route a transformers model through ``attend()`` while a context is open, and restore it afterwards.

transformers looks up its attention and mask functions by name in two registries. Jumok's functions are registered under
a name of their own for each model, and the model's config selects that name.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import NamedTuple

from torch import nn

from jumok.errors import ArgumentError

from .attention_function import create_attention_function
from .mask_functions import create_mask_function
from .module_taps import register_taps


class TransformersModules(NamedTuple):
    """The package ``transformers`` and its module ``masking_utils``."""

    package: ModuleType
    masking: ModuleType


def import_transformers(model: nn.Module) -> TransformersModules:
    """Import transformers if the model is one of its models.

    Args:
        model: The model to check.

    Raises:
        ArgumentError: If the model is not a model of transformers, or transformers is not installed.
    """
    try:
        package = importlib.import_module("transformers")
        masking = importlib.import_module("transformers.masking_utils")
    except ImportError:
        modules = None
    else:
        modules = TransformersModules(package, masking)
    if modules is None or not isinstance(model, modules.package.PreTrainedModel):
        raise ArgumentError(
            f"the lens does not support {type(model).__name__}; use a model of Jumok, what jumok.load returns, or a "
            "model of transformers"
        )
    return modules


@contextmanager
def route_attention(model: nn.Module) -> Iterator[None]:
    """Compute the model's attentions with ``attend()`` while the context is open.

    Args:
        model: A model of transformers.

    Raises:
        ArgumentError: If the model does not use the attention registry of transformers.
    """
    package, masking = import_transformers(model)
    parts = [module for module in model.modules() if isinstance(module, package.PreTrainedModel)]
    previous = [(part.config, part.config._attn_implementation) for part in parts]
    sites = {id(module): name for name, module in model.named_modules()}
    name = f"jumok-{id(model)}"  # unique for each model, so that two open lenses do not interfere
    registries = (package.AttentionInterface, masking.AttentionMaskInterface)
    registries[0].register(name, create_attention_function(sites))
    registries[1].register(name, create_mask_function(masking))
    with ExitStack() as hooks:
        try:
            if not all(part._can_set_attn_implementation() for part in parts):
                raise ArgumentError(
                    f"{type(model).__name__} does not use the attention registry of transformers, so the lens cannot "
                    "record it"
                )
            for config, _ in previous:
                config._attn_implementation_internal = name
            for handle in register_taps(model):
                hooks.callback(handle.remove)
            yield
        finally:
            for config, implementation in previous:
                config._attn_implementation_internal = implementation
            for registry in registries:
                registry._global_mapping.pop(name, None)
