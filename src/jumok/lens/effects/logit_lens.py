"""The logit lens (nostalgebraist 2020): which tokens a model would predict if it ended after each block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from jumok.lens.lens import LensModel

from .direct_effects import capture_residual_stream, compute_final_hidden, get_output_table


@dataclass(frozen=True)
class LayerPrediction:
    """The most likely tokens after some blocks.

    Attributes:
        layer: The number of blocks; 0 is the embedding alone.
        tokens: The most likely token ids with their probabilities, the likeliest first.
    """

    layer: int
    tokens: tuple[tuple[int, float], ...]


@torch.no_grad()
def apply_logit_lens(model: LensModel, tokens: Any, position: int = -1, count: int = 5) -> list[LayerPrediction]:
    """Predict the next token from the residual stream before the first block and after each block.

    Args:
        model: A model of the family gpt, or its name or folder, as for ``Lens``.
        tokens: A single text, as for ``Lens.run``.
        position: The position whose next token is predicted, negative from the end.
        count: How many tokens to return for each layer.

    Raises:
        ArgumentError: If the model is of another family, or there are several texts.
    """
    gpt, capture, _ = capture_residual_stream(model, tokens)
    layers = range(len(capture.sites.names))
    hidden = [capture.activations[f"blocks.{layer}.input"][0, position] for layer in layers]
    hidden.append(compute_final_hidden(gpt, capture, position).to(hidden[0]))

    table = get_output_table(gpt)
    predictions = []
    for layer, vector in enumerate(hidden):
        best = (gpt.norm(vector) @ table.T).softmax(-1).topk(min(count, len(table)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        predictions.append(LayerPrediction(layer, tuple(pairs)))
    return predictions
