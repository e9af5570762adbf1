"""Decompose a logit into the direct contributions of each head, each MLP and the embedding.

The last norm is linearised at this forward pass, so that the contributions sum to the logit. Indirect effects
through later layers are not included; ``jumok.effect`` measures those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.errors import ArgumentError
from jumok.layers import RMSNorm
from jumok.lens.capture.model_capture import Capture
from jumok.lens.lens import Lens, LensModel
from jumok.models.gpt import GPT

from .metrics import LogitDifference, encode_single_token
from .output_projection import compute_head_contributions, find_output_projection


@dataclass(frozen=True)
class LogitContribution:
    """The direct contribution of one part of a model to a logit.

    Attributes:
        name: The part: "embedding", a site name, a block's MLP, or a bias.
        head: The head; None for parts that are not heads.
    """

    name: str
    head: int | None
    logit: float


@torch.no_grad()
def compute_direct_effects(
    model: LensModel, tokens: Any, token: int | str | LogitDifference, position: int | None = None
) -> list[LogitContribution]:
    """Compute how much each part of a GPT adds to a token's logit, or to the difference of two logits.

    Args:
        model: A model of the family gpt, or its name or folder, as for ``Lens``.
        tokens: A single text, as for ``Lens.run``.
        token: The token whose logit is split: its id or text; or a ``LogitDifference``.
        position: The position whose logits are read, negative from the end; default: the last one, or the one of the
            ``LogitDifference``.

    Returns:
        The contributions, the largest first; their sum is the logit, or the difference.

    Raises:
        ArgumentError: If the model is of another family, there are several texts, or the token is unknown.
    """
    gpt, capture, tokenizer = capture_residual_stream(model, tokens)
    if isinstance(token, LogitDifference):
        if position is not None:
            raise ArgumentError(f"give the position once: LogitDifference(..., position={position})")
        position = token.position
    position = -1 if position is None else position
    reader = LinearisedReader(gpt, capture, _build_direction(gpt, token, tokenizer), position)

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


def capture_residual_stream(model: LensModel, tokens: Any) -> tuple[GPT, Capture, TextTokenizer | None]:
    """Run a GPT on one text, and record what its parts add to the residual stream.

    Args:
        model: A model of the family gpt, or its name or folder, as for ``Lens``.
        tokens: The text, as for ``Lens.run``.

    Raises:
        ArgumentError: If the model is of another family, or there are several texts.
    """
    with Lens(model) as lens:
        if not isinstance(lens.model, GPT):
            raise ArgumentError(
                f"the logit lens and direct effects need a model of the family gpt (GPT-2, Llama, Mistral, Qwen2, "
                f"SmolLM2, ...) from jumok.load, not {type(lens.model).__name__}"
            )
        capture = lens.run(tokens, keep=("output", "feedforward_output", "input"))
    texts = len(capture.activations["blocks.0.input"])
    if texts != 1:
        raise ArgumentError(f"the logit lens and direct effects read one text at a time, not {texts}")
    return lens.model, capture, lens.tokenizer


def _build_direction(gpt: GPT, token: int | str | LogitDifference, tokenizer: TextTokenizer | None) -> Tensor:
    """Return the vector ``[width]`` whose product with the last hidden state is the logit, or the difference."""
    if isinstance(token, LogitDifference):
        return _build_direction(gpt, token.right, tokenizer) - _build_direction(gpt, token.wrong, tokenizer)
    table = get_output_table(gpt)
    if isinstance(token, str):
        token = encode_single_token(token, tokenizer)
    if not 0 <= token < len(table):
        raise ArgumentError(f"token {token} does not exist; the model has tokens 0 to {len(table) - 1}")
    return table[token].double()


class LinearisedReader:
    """The last norm and the output projection, as a linear function at one position of a capture.

    Attributes:
        constant: The contribution of the norm's bias.
    """

    def __init__(self, gpt: GPT, capture: Capture, direction: Tensor, position: int) -> None:
        """Linearise the norm.

        Args:
            capture: A capture made with keep=("output", "feedforward_output", "input").
            direction: The row of the output projection that is read ``[width]``, in float64.
        """
        self._row = direction
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
        capture: A capture made with keep=("output", "feedforward_output", "input").
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
    """Return the output projection ``[token, width]``; GPT-2 shares it with the embedding."""
    return gpt.embedding.weight if gpt.output is None else gpt.output.weight
