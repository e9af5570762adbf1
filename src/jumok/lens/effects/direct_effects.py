"""What parts of a model write into the residual path, read as logits.

contributions   what each head of an attention adds to the path; with the output map's bias they sum to what the
                attention gives
direct          how much each head, MLP and embedding adds to one token's logit, the last norm taken as it was in
                this run: the parts sum to the logit. What later parts make of it is not in there (jumok.effect is)
logit_lens      the likeliest next tokens if the model ended after each block (nostalgebraist 2020)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.layers import RMSNorm
from jumok.lens.capture.capture import Capture
from jumok.lens.huggingface.attention_interface import OUTPUT_PROJECTIONS
from jumok.lens.lens import Lens
from jumok.models.gpt import GPT

from .metrics import encode_single_token


@dataclass(frozen=True)
class LogitContribution:
    """One part of a model and what it adds to a logit. head: None for what is no head."""

    name: str
    head: int | None
    logit: float


@dataclass(frozen=True)
class LayerPrediction:
    """After ``layer`` blocks (0: the embedding alone): the likeliest tokens with their probabilities."""

    layer: int
    tokens: tuple[tuple[int, float], ...]


def compute_head_contributions(model: Any, run: Capture, layer: int | str) -> Float[Tensor, "batch head query width"]:
    """``run`` must have kept "output"."""
    site = run.sites.find(layer)
    kept = run.kept.get(f"{site}.output")
    if kept is None:
        raise ArgumentError('this run did not keep what heads give; make it with keep=("output",)')
    weight, _ = find_output_projection(model, site)
    width = kept.shape[-1]
    return torch.stack(
        [kept[:, head] @ weight[:, head * width : (head + 1) * width].T for head in range(kept.shape[1])], 1
    )


def find_output_projection(model: Any, site: str) -> tuple[Float[Tensor, "width heads_width"], Tensor | None]:
    """The matrix behind the heads of an attention, and its bias."""
    modules = dict((model.model if isinstance(model, Loaded) else model).named_modules())
    attention = modules[site]
    found = getattr(attention, "output", None)
    if not isinstance(found, nn.Module):
        found = next(
            (one for name in OUTPUT_PROJECTIONS if isinstance(one := getattr(attention, name, None), nn.Module)), None
        )
    if found is None:  # BERT and its kin keep the map beside the heads: attention.self, attention.output.dense
        found = modules.get(f"{site.rpartition('.')[0]}.output.dense")
    weight = getattr(found, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise ArgumentError(f"the map behind the heads of {site} is not known, so their shares of it are not either")
    # transformers' Conv1D has its matrix the other way round
    matrix = weight.T if type(found).__name__ == "Conv1D" else weight
    return matrix, getattr(found, "bias", None)


@torch.no_grad()
def direct(model: Any, tokens: Any, token: int | str, position: int = -1) -> list[LogitContribution]:
    """How much each part adds to the logit of ``token`` at a position, largest first; ``Part.logit`` sum to it."""
    with Lens(model) as lens:
        gpt = _gpt(lens)
        run = lens.run(tokens, keep=("output", "feedforward_output", "input"), logits=True)
    if isinstance(token, str):
        token = encode_single_token(token, None if lens.loaded is None else lens.loaded.tokenizer)
    reader = _Reader(gpt, run, token, position)
    first = run.kept["blocks.0.input"][0, position]
    parts = [LogitContribution("embedding", None, reader.logit(first))]
    for layer, site in enumerate(run.sites.names):
        for head, given in enumerate(compute_head_contributions(gpt, run, site)[0, :, position]):
            parts.append(LogitContribution(site, head, reader.logit(given)))
        bias = find_output_projection(gpt, site)[1]
        if bias is not None:
            parts.append(LogitContribution(f"{site}.bias", None, reader.logit(bias)))
        block = f"blocks.{layer}"
        parts.append(
            LogitContribution(
                f"{block}.feedforward", None, reader.logit(run.kept[f"{block}.feedforward_output"][0, position])
            )
        )
    if reader.constant:
        parts.append(LogitContribution("norm.bias", None, reader.constant))
    return sorted(parts, key=lambda one: -abs(one.logit))


class _Reader:
    """The last norm and the output map, at one position, as the straight line that they were in this run."""

    def __init__(self, gpt: GPT, run: Capture, token: int, position: int) -> None:
        last = len(run.sites.names) - 1
        table: Tensor = gpt.embedding.weight if gpt.output is None else gpt.output.weight
        if not 0 <= token < len(table):
            raise ArgumentError(f"the model has tokens 0 to {len(table) - 1}; {token} is none of them")
        self.row = table[token].double()
        hidden = _after(run, last, position, gpt)
        norm: Any = gpt.norm
        self.centred = not isinstance(norm, RMSNorm)
        moved = hidden - hidden.mean() if self.centred else hidden
        self.scale = norm.weight.double() / (moved.square().mean() + gpt.config.epsilon).sqrt()
        bias = getattr(norm, "bias", None)
        self.constant = 0.0 if bias is None else float(self.row @ bias.double())

    def logit(self, given: Tensor) -> float:
        given = given.double()
        given = given - given.mean() if self.centred else given
        return float(self.row @ (given * self.scale))


def _after(run: Capture, layer: int, position: int, gpt: GPT) -> Tensor:
    """The residual path behind a block: what went in, and what its two parts added."""
    site = f"blocks.{layer}"
    attention = compute_head_contributions(gpt, run, f"{site}.attention")[0, :, position].double().sum(0)
    bias = find_output_projection(gpt, f"{site}.attention")[1]
    total = run.kept[f"{site}.input"][0, position].double() + attention
    total = total if bias is None else total + bias.double()
    return total + run.kept[f"{site}.feedforward_output"][0, position].double()


@torch.no_grad()
def apply_logit_lens(model: Any, tokens: Any, position: int = -1, count: int = 5) -> list[LayerPrediction]:
    """The likeliest tokens at a position, after each block."""
    with Lens(model) as lens:
        gpt = _gpt(lens)
        run = lens.run(tokens, keep=("output", "feedforward_output", "input"))
    layers = len(run.sites.names)
    hidden = [run.kept[f"blocks.{layer}.input"][0, position] for layer in range(layers)]
    hidden.append(_after(run, layers - 1, position, gpt).to(hidden[0]))
    table = gpt.embedding.weight if gpt.output is None else gpt.output.weight
    found = []
    for layer, one in enumerate(hidden):
        shares = (gpt.norm(one) @ table.T).softmax(-1).topk(min(count, len(table)))
        pairs = zip(shares.indices.tolist(), shares.values.tolist(), strict=True)
        found.append(LayerPrediction(layer, tuple(pairs)))
    return found


def _gpt(lens: Lens) -> GPT:
    if not isinstance(lens.model, GPT):
        raise ArgumentError(
            f"{type(lens.model).__name__} does not say what leads from its path to its logits; logit lens and direct "
            "effect are for the family gpt (GPT-2, Llama, Mistral, Qwen2, SmolLM2 ...), as jumok.load gives it"
        )
    return lens.model
