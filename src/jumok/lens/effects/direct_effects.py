"""Decompose a logit into the direct contributions of each head, each MLP and the embedding.

The last norm is linearised at this forward pass, so that the contributions sum to the logit. Indirect effects
through later layers are not included; ``jumok.effect`` measures those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.layers import RMSNorm
from jumok.lens.capture.model_capture import Capture
from jumok.lens.lens import Lens, LensModel
from jumok.models.gpt import GPT

from .metrics import encode_single_token
from .output_projection import compute_head_contributions, find_output_projection


@dataclass(frozen=True)
class LogitContribution:
    """The direct contribution of one part of a model to a logit.

    Attributes:
        name: The part: "embedding", a site name, a block's MLP, or a bias.
        head: The head; None for parts that are not heads.
        logit: The contribution.
    """

    name: str
    head: int | None
    logit: float


@torch.no_grad()
def compute_direct_effects(
    model: LensModel, tokens: Any, token: int | str, position: int = -1
) -> list[LogitContribution]:
    """Compute how much each part of a GPT adds to a token's logit.

    Args:
        model: A model of the family gpt, or its name or folder, as for ``Lens``.
        tokens: The text, as for ``Lens.run``.
        token: The token whose logit is split: its id or text.
        position: The position whose logits are read, negative from the end.

    Returns:
        The contributions, the largest first; their sum is the logit.

    Raises:
        ArgumentError: If the model is of another family or the token is unknown.
    """
    with Lens(model) as lens:
        gpt = require_gpt(lens)
        capture = lens.run(tokens, keep=("output", "feedforward_output", "input"), logits=True)
    if isinstance(token, str):
        token = encode_single_token(token, lens.tokenizer)
    reader = LinearisedReader(gpt, capture, token, position)

    embedding = capture.activations["blocks.0.input"][0, position]
    parts = [LogitContribution("embedding", None, reader.read_logit(embedding))]
    for layer, site in enumerate(capture.sites.names):
        for head, contribution in enumerate(compute_head_contributions(gpt, capture, site)[0, :, position]):
            parts.append(LogitContribution(site, head, reader.read_logit(contribution)))
        bias = find_output_projection(gpt, site).bias
        if bias is not None:
            parts.append(LogitContribution(f"{site}.bias", None, reader.read_logit(bias)))
        feedforward = capture.activations[f"blocks.{layer}.feedforward_output"][0, position]
        parts.append(LogitContribution(f"blocks.{layer}.feedforward", None, reader.read_logit(feedforward)))
    if reader.constant:
        parts.append(LogitContribution("norm.bias", None, reader.constant))
    return sorted(parts, key=lambda part: -abs(part.logit))


class LinearisedReader:
    """The last norm and the output projection of one token, as a linear function at one position of a capture.

    Attributes:
        constant: The contribution of the norm's bias.
    """

    def __init__(self, gpt: GPT, capture: Capture, token: int, position: int) -> None:
        """Linearise the norm.

        Args:
            gpt: The model.
            capture: A capture made with keep=("output", "feedforward_output", "input").
            token: The token id whose logit is read.
            position: The position whose logits are read.

        Raises:
            ArgumentError: If the token does not exist.
        """
        table = get_output_table(gpt)
        if not 0 <= token < len(table):
            raise ArgumentError(f"token {token} does not exist; the model has tokens 0 to {len(table) - 1}")
        self._row = table[token].double()
        hidden = compute_final_hidden(gpt, capture, position)
        norm = gpt.norm
        parameters = {name: parameter.double() for name, parameter in norm.named_parameters()}
        self._is_centred = not isinstance(norm, RMSNorm)
        centred = hidden - hidden.mean() if self._is_centred else hidden
        self._scale = parameters["weight"] / (centred.square().mean() + gpt.config.epsilon).sqrt()
        self.constant = float(self._row @ parameters["bias"]) if "bias" in parameters else 0.0

    def read_logit(self, contribution: Tensor) -> float:
        """Return how much a vector in the residual stream adds to the logit.

        Args:
            contribution: A vector ``[width]``.
        """
        contribution = contribution.double()
        if self._is_centred:
            contribution = contribution - contribution.mean()
        return float(self._row @ (contribution * self._scale))


def compute_final_hidden(gpt: GPT, capture: Capture, position: int) -> Tensor:
    """Compute the residual stream after the last block ``[width]``, in float64.

    Args:
        gpt: The model.
        capture: A capture made with keep=("output", "feedforward_output", "input").
        position: The position.
    """
    block = f"blocks.{len(capture.sites.names) - 1}"
    site = f"{block}.attention"
    heads = compute_head_contributions(gpt, capture, site)[0, :, position].double()
    hidden = capture.activations[f"{block}.input"][0, position].double() + heads.sum(0)
    bias = find_output_projection(gpt, site).bias
    if bias is not None:
        hidden = hidden + bias.double()
    return hidden + capture.activations[f"{block}.feedforward_output"][0, position].double()


def get_output_table(gpt: GPT) -> Tensor:
    """Return the output projection ``[token, width]``; GPT-2 shares it with the embedding.

    Args:
        gpt: The model.
    """
    return gpt.embedding.weight if gpt.output is None else gpt.output.weight


def require_gpt(lens: Lens) -> GPT:
    """Return the model of a lens if it belongs to the family gpt.

    Args:
        lens: The lens.

    Raises:
        ArgumentError: If the model is of another family.
    """
    if not isinstance(lens.model, GPT):
        raise ArgumentError(
            f"the logit lens and direct effects need a model of the family gpt (GPT-2, Llama, Mistral, Qwen2, "
            f"SmolLM2, ...) from jumok.load, not {type(lens.model).__name__}"
        )
    return lens.model
