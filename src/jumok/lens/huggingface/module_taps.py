"""Forward hooks that pass inputs and outputs of a transformers model's blocks, attentions and MLPs to ``tap()``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from jumok.tap import tap

from .module_names import OUTPUT_PROJECTION_NAMES, find_feedforwards, find_residual_blocks, find_sibling_projection

ModuleOutput = Tensor | tuple[Any, ...]
ModuleArguments = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments
NameSite = Callable[[str], str]
Hook = Callable[..., Any]


class TapPoint(NamedTuple):
    """A module whose input or output is tapped.

    Attributes:
        name: The name of the block or attention that its site belongs to.
        word: "input", "feedforward_output" or "block_output".
    """

    module: nn.Module
    name: str
    word: str


def find_tap_points(model: nn.Module) -> list[TapPoint]:
    """Find the inputs of blocks and the outputs of attentions and MLPs."""
    points = [TapPoint(block, name, "input") for name, block in find_residual_blocks(model).items()]
    points += [TapPoint(module, name, "feedforward_output") for name, module in find_feedforwards(model)]
    modules = dict(model.named_modules())
    for name in modules:
        # the output of the projection, because some attentions add the residual stream themselves (BLOOM)
        projections = (modules.get(f"{name}.{projection}") for projection in OUTPUT_PROJECTION_NAMES)
        projection = next((module for module in projections if module is not None), None)
        if projection is not None:
            points.append(TapPoint(projection, name, "block_output"))
        sibling = find_sibling_projection(modules, name)
        if name.rpartition(".")[2] in ("self", "attention") and sibling is not None:
            points.append(TapPoint(sibling, name, "block_output"))
    return points


def register_taps(
    points: Iterable[TapPoint], name_site: NameSite, name_input: NameSite, limit: Callable[[Hook], Hook]
) -> list[RemovableHandle]:
    """Register forward hooks that pass inputs and outputs of modules to ``tap()``.

    Args:
        name_site: Returns the site name of a block or an attention for its module name. It is called at every tap,
            because a module that runs several times in one forward pass is a different layer each time.
        name_input: Likewise for the input of a block, which comes before its attention.

    Returns:
        The handles that remove the hooks.
    """
    handles: list[RemovableHandle] = []
    for module, name, word in points:
        if word == "input":
            hook = limit(_create_input_hook(name, name_input))
            handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        else:
            handles.append(module.register_forward_hook(limit(_create_output_hook(name, word, name_site))))
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
