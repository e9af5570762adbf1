"""Fill the parameters of a model with random numbers that are large enough for attention to differ between keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def randomise_parameters(model: nn.Module, seed: int) -> None:
    """Fill the parameters of a model, so that a wrong mask, bias or scale changes its outputs.

    The initial parameters of transformers make attention almost uniform, and some are zero (gates, relative position
    biases, layer scales), which would hide errors.

    Args:
        model: The model; its matrices keep the variance of their input.
        seed: The seed of the random numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.is_floating_point():
                    _fill(module, name, parameter, generator)


def _fill(module: nn.Module, name: str, parameter: Tensor, generator: torch.Generator) -> None:
    """Fill one parameter by its shape: matrices by their fan-in, vectors by noise around their initial numbers."""
    noise = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
    if not parameter.numel():
        return
    if parameter.dim() >= 2:
        parameter.copy_(noise * _choose_deviation(module, parameter))
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            parameter[module.padding_idx] = 0
    elif float(parameter.abs().max()) < 0.05:
        parameter.copy_(noise * 0.2)
    else:
        parameter.add_(noise * 0.05)


def _choose_deviation(module: nn.Module, parameter: Tensor) -> float:
    """Return the standard deviation of a matrix."""
    if isinstance(module, nn.Embedding):
        return 1.0
    if isinstance(module, nn.Linear):
        return 1.2 / math.sqrt(parameter.shape[1])
    if isinstance(module, nn.modules.conv._ConvNd):
        return 1.2 / math.sqrt(math.prod(parameter.shape[1:]))
    # experts [expert, input, output], tables of positions and others: no larger than their inner size allows
    return 1.0 / math.sqrt(max(parameter.shape[-2:])) if parameter.dim() == 3 and parameter.shape[0] > 1 else 0.5
