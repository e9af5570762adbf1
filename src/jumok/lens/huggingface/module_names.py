"""Find the blocks, attentions and MLPs of a transformers model by their names, and tap their inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from jumok.lens.sites import remove_call_suffix
from jumok.tap import tap

MLP_NAMES = frozenset({"mlp", "feed_forward", "ffn", "DenseReluDense"})
#: MLPs that add the residual stream to their result, and their part that computes what is added
MLPS_WITH_RESIDUAL = {
    "BloomMLP": "dense_4h_to_h",
    "CpmAntFFNBlock": "ffn",
    "DabDetrDecoderLayerFFN": "fc2",
    "FunnelPositionwiseFFN": "linear_2",
    "LwDetrMLP": "fc2",
    "MptMLP": "down_proj",
    "Pix2StructTextLayerFF": "DenseReluDense",
    "RfDetrMLP": "fc2",
    "TimesFmMLP": "down_proj",
}
#: names of the output projection as a submodule of the attention
OUTPUT_PROJECTION_NAMES = (
    "c_proj", "o_proj", "out_proj", "out_lin", "o", "dense", "proj", "wo", "Wo", "linear_out", "attention_out",
)  # fmt: skip
ATTENTION_CLASS = re.compile("(Att(entio)?n|MultiHead)(?!.*Output)")
#: BERT and Swin keep the heads in one module ("attention.self") and their projection in its sibling
SIBLING_PROJECTION = "output.dense"
SECOND_STREAMS = ("layout",)

ModuleOutput = Tensor | tuple[Any, ...]
ModuleArguments = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments
NameSite = Callable[[str], str]
Hook = Callable[..., Any]


class Feedforward(NamedTuple):
    """An MLP of a block; the output of its module is added to the residual stream."""

    block: str
    module: nn.Module


def find_feedforwards(model: nn.Module) -> list[Feedforward]:
    """Find every MLP of a model."""
    modules = dict(model.named_modules())
    feedforwards: list[Feedforward] = []
    for name, module in modules.items():
        block, _, word = name.rpartition(".")
        if type(modules.get(block)).__name__ in MLPS_WITH_RESIDUAL:
            continue  # a part of an MLP that is in the list
        if word in MLP_NAMES:
            part = MLPS_WITH_RESIDUAL.get(type(module).__name__)
            feedforwards.append(Feedforward(block, module if part is None else module.get_submodule(part)))
        elif f"{name}.intermediate" in modules and f"{name}.output.dense" in modules:  # BERT, Swin
            feedforwards.append(Feedforward(name, modules[f"{name}.output.dense"]))
        elif all(f"{name}.{part}" in modules for part in ("self_attn", "fc1", "fc2")):  # BART
            feedforwards.append(Feedforward(name, modules[f"{name}.fc2"]))
    return feedforwards


def find_output_projection_module(model: nn.Module, site: str) -> nn.Module | None:
    """Find the linear layer that follows the heads of an attention; None where its name is unknown."""
    site = remove_call_suffix(site)
    modules = dict(model.named_modules())
    for name in ("output", *OUTPUT_PROJECTION_NAMES):
        if f"{site}.{name}" in modules:
            return modules[f"{site}.{name}"]
    return find_sibling_projection(modules, site)


def find_sibling_projection(modules: Mapping[str, nn.Module], name: str) -> nn.Module | None:
    """Find the linear layer beside a module that follows its heads, as in BERT and Swin.

    LiLT computes two attentions in one module and has a projection for each beside it, so neither belongs to all heads.
    """
    parent = name.rpartition(".")[0]
    if any(f"{parent}.{other}_{SIBLING_PROJECTION}" in modules for other in SECOND_STREAMS):
        return None
    return modules.get(f"{parent}.{SIBLING_PROJECTION}")


def find_residual_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Find the blocks of a model by name: elements of module lists with an attention and an MLP.

    The residual stream of the model passes from block to block. T5 keeps the attention and the MLP of a block in a list
    of their own; Swin keeps its blocks in a list inside each stage. Hence a block is the smallest element that contains
    both; where the MLPs of a model have unknown names, the smallest that contains an attention.
    """
    modules = dict(model.named_modules())
    lists = {name for name, module in modules.items() if isinstance(module, nn.ModuleList)}
    elements = [name for name in modules if name.rpartition(".")[0] in lists]
    feedforwards = {id(feedforward.module) for feedforward in find_feedforwards(model)}
    with_mlp = {name for name in elements if any(id(part) in feedforwards for part in modules[name].modules())}

    blocks: dict[str, nn.Module] = {}
    for name, module in modules.items():
        # by its class ("BertSelfAttention") or its name ("self_attn")
        if "attention" not in type(module).__name__.lower() and "attn" not in name.rpartition(".")[2]:
            continue
        containing = [element for element in elements if name == element or name.startswith(f"{element}.")]
        candidates = [element for element in containing if element in with_mlp] or containing
        if candidates:
            block = max(candidates, key=len)
            blocks[block] = modules[block]
    return blocks


class OutputHead(NamedTuple):
    """What turns the last block's output into token logits."""

    norm: nn.Module | None
    output: nn.Module


def find_output_head(model: nn.Module) -> OutputHead | None:
    """Find the output layer of a language model, and the norm beside its blocks; None without an output layer.

    The norm is found by the name of its class, so compare what the head computes with the logits of the model.
    """
    get_output = getattr(model, "get_output_embeddings", None)
    output = None if get_output is None else get_output()
    blocks = list(find_residual_blocks(model))
    if not isinstance(output, nn.Module) or not blocks:
        return None
    owner = blocks[-1].rpartition(".")[0].rpartition(".")[0]
    norms = [part for part in model.get_submodule(owner).children() if "norm" in type(part).__name__.lower()]
    return OutputHead(norms[-1] if norms else None, output)


def find_attention_modules(model: nn.Module) -> list[nn.Module]:
    """Find the innermost modules that are attentions by the names of their classes."""

    def is_named(module: nn.Module) -> bool:
        return ATTENTION_CLASS.search(type(module).__name__) is not None

    return [
        module
        for module in model.modules()
        if is_named(module) and sum(is_named(part) for part in module.modules()) == 1
    ]


class TapPoint(NamedTuple):
    """A module whose input or output is tapped, and the block or attention that its site belongs to."""

    module: nn.Module
    name: str
    word: str  # "input", "feedforward_output" or "block_output"


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
    """Register forward hooks that pass inputs and outputs of modules to ``tap()``, and return their handles.

    The names of sites follow from those of modules at every tap, because a module that runs several times in one
    forward pass is a different layer each time; the input of a block comes before its attention.
    """
    handles: list[RemovableHandle] = []
    for module, name, word in points:
        if word == "input":
            hook = limit(partial(_tap_input, name, name_input))
            handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        else:
            handles.append(module.register_forward_hook(limit(partial(_tap_output, name, word, name_site))))
    return handles


def _tap_input(
    name: str, name_site: NameSite, module: nn.Module, inputs: tuple[Any, ...], settings: dict[str, Any]
) -> ModuleArguments | None:
    """Pass the hidden states that enter a block to ``tap()``: a forward pre-hook."""
    if inputs and isinstance(inputs[0], Tensor):
        return (tap(f"{name_site(name)}.input", inputs[0]), *inputs[1:]), settings
    if isinstance(settings.get("hidden_states"), Tensor):
        hidden = tap(f"{name_site(name)}.input", settings["hidden_states"])
        return inputs, {**settings, "hidden_states": hidden}
    return None


def _tap_output(
    name: str, word: str, name_site: NameSite, module: nn.Module, inputs: tuple[Any, ...], output: ModuleOutput
) -> ModuleOutput:
    """Pass a module's output, or the first element of a tuple, to ``tap()``: a forward hook."""
    site = f"{name_site(name)}.{word}"
    if isinstance(output, tuple):
        return (tap(site, output[0]), *output[1:])
    return tap(site, output)
