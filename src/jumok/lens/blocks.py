"""Find the block and the MLP of an attention, in models of Jumok and of transformers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from torch import nn

from jumok.errors import ArgumentError
from jumok.layers import DecoderBlock, EncoderBlock
from jumok.models import Model

from .huggingface.module_names import find_feedforwards, find_residual_blocks
from .sites import Sites, count_shared_words, get_call_suffix


def find_block(model: nn.Module, site: str) -> str:
    """Return the name of the block that contains an attention of a model of Jumok or transformers."""
    if isinstance(model, Model):
        name = site.rpartition(".")[0]
        if isinstance(model.get_submodule(name), EncoderBlock | DecoderBlock):
            return name
    else:
        containing = [name for name in find_residual_blocks(model) if site.startswith(f"{name}.")]
        if containing:
            return max(containing, key=len) + get_call_suffix(site)
    raise ArgumentError(f"{site} of {type(model).__name__} is not part of a block, so no residual stream enters it")


def find_sites_of_block(layer: str, sites: Sites, model: nn.Module) -> Iterable[str]:
    """Return the attentions of a block ("decoder.0"), or the one that is named."""
    blocks: dict[str, str] = {}
    for site in sites.names:
        with contextlib.suppress(ArgumentError):  # SigLIP pools its last hidden states by an attention outside
            blocks[site] = find_block(model, site)
    matches = Sites(list(dict.fromkeys(blocks.values()))).find_matches(layer)
    if len(matches) == 1:
        return [site for site, block in blocks.items() if block == matches[0]]
    return sites.find_all(layer)


def find_mlp(model: nn.Module, site: str) -> str:
    """Return the name of the block whose MLP follows an attention."""
    if isinstance(model, Model):
        return site.rpartition(".")[0]
    shared = {block: count_shared_words(block, site) for block, _ in find_feedforwards(model)}
    most = max(shared.values(), default=0)
    blocks = [block + get_call_suffix(site) for block, count in shared.items() if count == most]
    if len(blocks) != 1:
        raise ArgumentError(f"the lens could not determine which MLP of {type(model).__name__} follows {site}")
    return blocks[0]
