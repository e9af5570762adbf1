"""Forward hooks that pass inputs and outputs of a transformers model's blocks, attentions and MLPs to ``tap()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from jumok.tap import tap

from .module_names import OUTPUT_PROJECTION_NAMES, SIBLING_PROJECTION, find_feedforwards, find_residual_blocks

ModuleOutput = Tensor | tuple[Any, ...]
ModuleArguments = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments
NameSite = Callable[[str], str]


def keep_name(name: str) -> str:
    """Return a module name as the name of its site.

    Args:
        name: The name of a block or an attention.
    """
    return name


def register_taps(
    model: nn.Module, name_site: NameSite = keep_name, name_input: NameSite = keep_name
) -> list[RemovableHandle]:
    """Register forward hooks that pass the inputs of blocks and the outputs of attentions and MLPs to ``tap()``.

    Args:
        model: A model of transformers.
        name_site: Returns the site name of a block or an attention for its module name. It is called at every tap,
            because a module that runs several times in one forward pass is a different layer each time.
        name_input: Likewise for the input of a block, which comes before its attention.

    Returns:
        The handles that remove the hooks.
    """
    handles = [
        block.register_forward_pre_hook(_create_input_hook(name, name_input), with_kwargs=True)
        for name, block in find_residual_blocks(model).items()
    ]
    for name, module in find_feedforwards(model):
        handles.append(module.register_forward_hook(_create_output_hook(name, "feedforward_output", name_site)))
    modules = dict(model.named_modules())
    for name in modules:
        # the output of the projection, because some attentions add the residual stream themselves (BLOOM)
        projections = (modules.get(f"{name}.{projection}") for projection in OUTPUT_PROJECTION_NAMES)
        projection = next((module for module in projections if module is not None), None)
        if projection is not None:
            handles.append(projection.register_forward_hook(_create_output_hook(name, "block_output", name_site)))
        parent, _, word = name.rpartition(".")
        sibling = modules.get(f"{parent}.{SIBLING_PROJECTION}")
        if word in ("self", "attention") and sibling is not None:
            handles.append(sibling.register_forward_hook(_create_output_hook(name, "block_output", name_site)))
    return handles


def _create_input_hook(
    name: str, name_site: NameSite
) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], ModuleArguments | None]:
    """Create a forward pre-hook that passes the hidden states that enter a block to ``tap()``."""

    def tap_input(module: nn.Module, inputs: tuple[Any, ...], settings: dict[str, Any]) -> ModuleArguments | None:
        if inputs and isinstance(inputs[0], Tensor):
            return (tap(f"{name_site(name)}.input", inputs[0]), *inputs[1:]), settings
        if isinstance(settings.get("hidden_states"), Tensor):
            hidden = tap(f"{name_site(name)}.input", settings["hidden_states"])
            return inputs, {**settings, "hidden_states": hidden}
        return None

    return tap_input


def _create_output_hook(
    name: str, word: str, name_site: NameSite
) -> Callable[[nn.Module, tuple[Any, ...], ModuleOutput], ModuleOutput]:
    """Create a forward hook that passes a module's output, or the first element of a tuple, to ``tap()``."""

    def tap_output(module: nn.Module, inputs: tuple[Any, ...], output: ModuleOutput) -> ModuleOutput:
        site = f"{name_site(name)}.{word}"
        if isinstance(output, tuple):
            return (tap(site, output[0]), *output[1:])
        return tap(site, output)

    return tap_output
