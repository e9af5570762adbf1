"""Read the residual stream: what each part of a model adds to a logit, and what each layer would predict.

``compute_direct_effects`` splits a logit into the contributions of each head, each MLP and the embedding. The last norm
and norms on the outputs of attentions (Gemma 3) are linearised at this forward pass, so that they sum to the logit.
Indirect effects through later layers are not included; ``jumok.effect`` measures those. ``apply_logit_lens``
(nostalgebraist 2020) says which tokens a model would predict if it ended after each block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.attention import MultiHead
from jumok.checkpoint import Loaded
from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.errors import ArgumentError
from jumok.layers import RMSNorm
from jumok.lens.capture.model_capture import Capture
from jumok.lens.huggingface.module_names import find_output_projection_module
from jumok.lens.lens import Lens, LensModel
from jumok.lens.sites import SOURCE
from jumok.models import Model
from jumok.models.gpt import GPT

from .metrics import LogitDifference, encode_single_token
from .residual_stream import STREAM_PARTS, compute_stream_logits, read_residual_stream


@dataclass(frozen=True)
class LogitContribution:
    """The direct contribution of one part of a model to a logit."""

    name: str  # "embedding", a site name, a block's MLP, or a bias
    head: int | None  # None for parts that are not heads
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
    with Lens(model) as lens:
        gpt, tokenizer = lens.model, lens.tokenizer
        if not isinstance(gpt, GPT):
            raise ArgumentError(
                f"direct effects need a model of the family gpt (GPT-2, Llama, Mistral, Qwen2, SmolLM2, ...) from "
                f"jumok.load, not {type(gpt).__name__}"
            )
        capture = lens.run(tokens, keep=("output", *STREAM_PARTS))
        _check_single_text(capture)
    if isinstance(token, LogitDifference):
        if position is not None:
            raise ArgumentError(f"give the position once: LogitDifference(..., position={position})")
        position = token.position
    position = -1 if position is None else position

    vectors: list[tuple[str, int | None, Tensor]] = []  # what each part adds to the residual stream
    vectors.append(("embedding", None, capture.activations["blocks.0.input"][0, position]))
    has_bias = gpt.config.output_bias or (gpt.config.output_norm and gpt.config.norm == "layer")  # of an attention
    for layer, site in enumerate(capture.sites.names):
        heads = compute_head_contributions(gpt, capture, site)[0, :, position]
        vectors += [(site, head, contribution) for head, contribution in enumerate(heads)]
        if has_bias:
            output = capture.activations[f"{site}.block_output"][0, position]
            vectors.append((f"{site}.bias", None, output - heads.sum(0)))
        feedforward = capture.activations[f"blocks.{layer}.feedforward_output"][0, position]
        vectors.append((f"blocks.{layer}.feedforward", None, feedforward))

    row = _build_direction(gpt, token, tokenizer)
    added = torch.stack([vector for _, _, vector in vectors]).double()
    logits = _normalize_parts(gpt.norm, added, added.sum(0)) @ row
    parts = [
        LogitContribution(name, head, float(logit)) for (name, head, _), logit in zip(vectors, logits, strict=True)
    ]
    norm_bias = dict(gpt.norm.named_parameters()).get("bias")
    if norm_bias is not None and bool(norm_bias.any()):
        parts.append(LogitContribution("norm.bias", None, float(row @ norm_bias.double())))
    return sorted(parts, key=lambda part: -abs(part.logit))


def _normalize_parts(
    norm: nn.Module, parts: Float[Tensor, "*part width"], total: Tensor
) -> Float[Tensor, "*part width"]:
    """Apply a norm, linearised at its input ``total`` and without its bias, to the parts of this input."""
    assert isinstance(norm, RMSNorm | nn.LayerNorm)
    if isinstance(norm, nn.LayerNorm):
        parts, total = (vectors - vectors.mean(-1, keepdim=True) for vectors in (parts, total))
    size = (total.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    return parts / size * norm.weight.to(parts.dtype)


@dataclass(frozen=True)
class LayerPrediction:
    """The most likely tokens after some blocks."""

    layer: int  # the number of blocks; 0 is the embedding alone
    tokens: tuple[tuple[int, float], ...]  # token ids with their probabilities, the likeliest first


@torch.no_grad()
def apply_logit_lens(model: LensModel, tokens: Any, position: int = -1, count: int = 5) -> list[LayerPrediction]:
    """Predict tokens from the residual stream before the first block and after each block.

    Args:
        model: A model of Jumok that continues a text or fills masks, or its name or folder, as for ``Lens``.
        tokens: A single text, as for ``Lens.run``.
        position: The position at which tokens are predicted, negative from the end: the next token, or a masked one.
        count: How many tokens to return for each layer.

    Raises:
        ArgumentError: If the model is another one, or there are several texts.
    """
    with Lens(model) as lens:
        if not isinstance(lens.model, Model) or lens.model.task not in ("continue", "fill"):
            raise ArgumentError(
                "the logit lens needs a model of jumok.load that continues a text or fills masks, not "
                f"{type(lens.model).__name__}"
            )
        capture = lens.run(tokens, keep=STREAM_PARTS)
        _check_single_text(capture)
        blocks = read_residual_stream(lens.model, capture, SOURCE, position)
    vectors = [*(block.before for block in blocks), blocks[-1].after]
    logits = compute_stream_logits(lens.model, torch.stack([vector for vector in vectors if vector is not None]))
    assert logits is not None
    best = logits.float().softmax(-1).topk(min(count, logits.shape[-1]))
    return [
        LayerPrediction(layer, tuple(zip(ids, probabilities, strict=True)))
        for layer, (ids, probabilities) in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    ]


def _check_single_text(capture: Capture) -> None:
    texts = next(iter(capture.attentions.values())).batch
    if texts != 1:
        raise ArgumentError(f"the logit lens and direct effects read one text at a time, not {texts}")


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


def get_output_table(gpt: GPT) -> Tensor:
    """Return the output projection ``[token, width]``; GPT-2 shares it with the embedding."""
    return gpt.embedding.weight if gpt.output is None else gpt.output.weight


def compute_head_contributions(
    model: nn.Module | Loaded, capture: Capture, layer: int | str
) -> Float[Tensor, "batch head query width"]:
    """Compute the contribution of each head of an attention to the residual stream.

    With the bias of the output projection, the contributions sum to the attention's output. A norm on that output is
    linearised at this forward pass; one that a block of transformers applies to it afterwards is not.

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
    weight, bias = find_output_projection(model, site)
    width = output.shape[-1]
    contributions = torch.stack(
        [output[:, head] @ weight[:, head * width : (head + 1) * width].T for head in range(output.shape[1])], 1
    )
    module = model.model if isinstance(model, Loaded) else model
    attention = module.get_submodule(site) if isinstance(module, Model) else None
    if not isinstance(attention, MultiHead) or attention.output_norm is None:
        return contributions
    total = contributions.sum(1, keepdim=True)
    return _normalize_parts(attention.output_norm, contributions, total if bias is None else total + bias)


def find_output_projection(
    model: nn.Module | Loaded, site: str
) -> tuple[Float[Tensor, "width heads_width"], Tensor | None]:
    """Return the weight and the bias of the linear layer that follows the heads of an attention."""
    module = find_output_projection_module(model.model if isinstance(model, Loaded) else model, site)
    parameters = {} if module is None else dict(module.named_parameters(recurse=False))
    weight = parameters.get("weight")
    if weight is None or weight.dim() != 2:
        raise ArgumentError(f"the output projection of {site} was not found, so its heads have no contributions")
    # transformers' Conv1D stores the transposed matrix
    is_transposed = type(module).__name__ == "Conv1D"
    return weight.T if is_transposed else weight, parameters.get("bias")
