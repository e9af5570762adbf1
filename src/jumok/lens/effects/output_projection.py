"""Split the output of an attention into the contributions of its heads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture
from jumok.lens.huggingface.module_names import find_output_projection_module


class OutputProjection(NamedTuple):
    """The linear layer that follows the heads of an attention.

    Attributes:
        weight: Its matrix ``[width, heads * head_width]``.
        bias: Its bias ``[width]``, or None.
    """

    weight: Float[Tensor, "width heads_width"]
    bias: Tensor | None


def compute_head_contributions(
    model: nn.Module | Loaded, capture: Capture, layer: int | str
) -> Float[Tensor, "batch head query width"]:
    """Compute the contribution of each head of an attention to the residual stream.

    With the bias of the output projection, the contributions sum to the attention's output.

    Args:
        model: The model of the capture.
        capture: A capture made with keep="output".
        layer: The layer's number or site name.

    Raises:
        ArgumentError: If the capture has no outputs, or the model's output projection is unknown.
    """
    site = capture.sites.find(layer)
    output = capture.activations.get(f"{site}.output")
    if output is None:
        raise ArgumentError('this capture has no outputs of heads; create it with lens.run(..., keep="output")')
    weight = find_output_projection(model, site).weight
    width = output.shape[-1]
    contributions = [
        output[:, head] @ weight[:, head * width : (head + 1) * width].T for head in range(output.shape[1])
    ]
    return torch.stack(contributions, 1)


def find_output_projection(model: nn.Module | Loaded, site: str) -> OutputProjection:
    """Find the output projection of an attention.

    Args:
        model: A model, as for ``Lens``.

    Raises:
        ArgumentError: If the model names its output projection in an unknown way.
    """
    module = find_output_projection_module(model.model if isinstance(model, Loaded) else model, site)
    parameters = {} if module is None else dict(module.named_parameters(recurse=False))
    weight = parameters.get("weight")
    if weight is None or weight.dim() != 2:
        raise ArgumentError(f"the output projection of {site} was not found, so its heads have no contributions")
    # transformers' Conv1D stores the transposed matrix
    is_transposed = type(module).__name__ == "Conv1D"
    return OutputProjection(weight.T if is_transposed else weight, parameters.get("bias"))
