"""Find the blocks of a model: which block contains an attention, and which attentions an edit names."""

from __future__ import annotations

import contextlib

from torch import nn

from jumok.errors import ArgumentError
from jumok.layers import DecoderBlock, EncoderBlock
from jumok.models import Model

from .edits.edit_types import Edit, Patch
from .sites import Sites


def find_block(model: nn.Module, site: str) -> str:
    """Return the name of the block that contains an attention.

    Args:
        model: A model of Jumok or transformers.
    """
    if isinstance(model, Model):
        name = site.rpartition(".")[0]
        if isinstance(model.get_submodule(name), EncoderBlock | DecoderBlock):
            return name
    else:
        from .huggingface.module_names import find_residual_blocks
        from .huggingface.site_names import get_call_suffix

        containing = [name for name in find_residual_blocks(model) if site.startswith(f"{name}.")]
        if containing:
            return max(containing, key=len) + get_call_suffix(site)
    raise ArgumentError(f"{site} of {type(model).__name__} is not part of a block, so no residual stream enters it")


def find_edited_sites(edit: Edit, sites: Sites, model: nn.Module) -> frozenset[str]:
    """Return the attention sites that an edit names.

    Args:
        edit: The edit. Where it changes a residual stream, its layer may also name a block ("decoder.0").
    """
    if isinstance(edit, Patch) and edit.part == "residual" and isinstance(edit.layer, str):
        blocks: dict[str, str] = {}
        for site in sites.names:
            with contextlib.suppress(ArgumentError):  # SigLIP pools its last hidden states by an attention outside
                blocks[site] = find_block(model, site)
        matches = Sites(list(dict.fromkeys(blocks.values()))).find_matches(edit.layer)
        if len(matches) == 1:
            return frozenset(site for site, block in blocks.items() if block == matches[0])
    return sites.find_all(edit.layer)
