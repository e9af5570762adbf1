"""Find the attention outputs and MLPs of a transformers model by the names of its modules."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from .site_names import remove_call_suffix

MLP_NAMES = frozenset({"mlp", "feed_forward", "ffn", "DenseReluDense"})
#: names of the output projection as a submodule of the attention
OUTPUT_PROJECTION_NAMES = ("c_proj", "o_proj", "out_proj", "out_lin", "o")
#: BERT and Swin keep the heads in one module ("attention.self") and their projection in its sibling
SIBLING_PROJECTION = "output.dense"


class Feedforward(NamedTuple):
    """An MLP of a model.

    Attributes:
        block: The name of the block that contains it.
        module: The module whose output is added to the residual stream.
    """

    block: str
    module: nn.Module


def find_feedforwards(model: nn.Module) -> list[Feedforward]:
    """Find every MLP of a model.

    Args:
        model: A model of transformers.
    """
    modules = dict(model.named_modules())
    feedforwards: list[Feedforward] = []
    for name, module in modules.items():
        block, _, word = name.rpartition(".")
        if word in MLP_NAMES:
            feedforwards.append(Feedforward(block, module))
        elif f"{name}.intermediate" in modules and f"{name}.output.dense" in modules:  # BERT, Swin
            feedforwards.append(Feedforward(name, modules[f"{name}.output.dense"]))
        elif all(f"{name}.{part}" in modules for part in ("self_attn", "fc1", "fc2")):  # BART
            feedforwards.append(Feedforward(name, modules[f"{name}.fc2"]))
    return feedforwards


def find_output_projection_module(model: nn.Module, site: str) -> nn.Module | None:
    """Find the linear layer that follows the heads of an attention; None where its name is unknown.

    Args:
        model: A model of Jumok or transformers.
        site: The attention's module name.
    """
    site = remove_call_suffix(site)
    modules = dict(model.named_modules())
    for name in ("output", *OUTPUT_PROJECTION_NAMES):
        if f"{site}.{name}" in modules:
            return modules[f"{site}.{name}"]
    return modules.get(f"{site.rpartition('.')[0]}.{SIBLING_PROJECTION}")
