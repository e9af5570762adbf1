"""Read the attention maps that a transformers model returns itself, where its attention cannot be routed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from jumok.errors import ArgumentError
from jumok.lens.capture.captured_attention import CapturedAttention, WeightTable
from jumok.lens.model_state import evaluation_mode

from .route_attention import select_implementation

#: the outputs that hold maps, and the site names they get; cross-attentions are recognised by their name
MAP_OUTPUTS = {
    "attentions": "attention",
    "encoder_attentions": "encoder.attention",
    "decoder_attentions": "decoder.attention",
    "cross_attentions": "decoder.cross",
    "text_attentions": "text.attention",
    "vision_attentions": "vision.attention",
    "image_attentions": "image.attention",
}
MAX_LENGTH = 2048  # a map of n x n weights of every head is kept in memory
ROW_SUM_BOUND = 1e-3


class MapsRun(NamedTuple):
    """A forward pass that returned attention maps."""

    attentions: dict[str, CapturedAttention]
    output: Any


def run_with_maps(model: nn.Module, inputs: tuple[Any, ...], settings: Mapping[str, Any]) -> MapsRun:
    """Run a model that returns its attention maps.

    Args:
        settings: Further arguments of ``forward``.
    """
    tokens = settings.get("input_ids", inputs[0] if inputs else None)
    length = tokens.shape[1] if isinstance(tokens, Tensor) and tokens.dim() == 2 else 0
    if length > MAX_LENGTH:
        raise ArgumentError(
            f"{type(model).__name__} returns its complete maps, which the lens keeps for at most {MAX_LENGTH:,} "
            f"tokens; the input has {length:,}"
        )
    with select_implementation(model, lambda _: "eager"), evaluation_mode(model), torch.no_grad():
        output = model(*inputs, **{**settings, "output_attentions": True, "return_dict": True})
    attentions: dict[str, CapturedAttention] = {}
    for name, site in MAP_OUTPUTS.items():
        maps = output.get(name) if isinstance(output, Mapping) else None
        for layer, table in enumerate(maps if isinstance(maps, list | tuple) else ()):
            if isinstance(table, Tensor):
                _check_map(model, f"{name}[{layer}]", table)
                block, _, word = site.rpartition(".")
                full_site = f"{block}.{layer}.{word}" if block else f"layers.{layer}.{word}"
                attentions[full_site] = WeightTable(full_site, table=table.detach())
    if not attentions:
        raise ArgumentError(f"{type(model).__name__} returns no attention maps")
    return MapsRun(attentions, output)


def _check_map(model: nn.Module, name: str, table: Tensor) -> None:
    """Raise an ArgumentError for a tensor that is not a map of weights: not query x key, or rows without sum 1 or 0."""
    windows = getattr(model.config, "attention_window", None)
    sums = table.detach().float().sum(-1)
    is_weight = bool((((sums - 1).abs() < ROW_SUM_BOUND) | (sums.abs() < ROW_SUM_BOUND)).all()) and bool(
        (table >= 0).all()
    )
    if table.dim() != 4 or not is_weight or windows is not None:
        raise ArgumentError(
            f"{type(model).__name__} returns {name} {list(table.shape)}, which are not weights "
            "[batch, head, query, key]"
        )
