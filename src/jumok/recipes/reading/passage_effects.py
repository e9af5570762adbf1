"""Measure which passage an answer depends on: cut each passage, and read its cross-attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jumok.attention import Cache
from jumok.attention.weights import record_weights
from jumok.models.fusion import Fusion, find_passages


@dataclass(frozen=True)
class PassageEffects:
    """What each passage contributes to an answer.

    Attributes:
        drops: By passage, how much the log-probability of the answer falls when the passage is cut.
        weights: By passage, the cross-attention on it, as the mean over layers, heads and tokens of the answer.
    """

    drops: list[float]
    weights: list[float]

    @property
    def cited(self) -> int:
        """The passage whose cut costs the answer most."""
        return max(range(len(self.drops)), key=lambda index: self.drops[index])

    @property
    def most_attended(self) -> int:
        """The passage with the largest weight."""
        return max(range(len(self.weights)), key=lambda index: self.weights[index])


def measure_passages(model: Fusion, source: list[int], answer: list[int]) -> PassageEffects:
    """Cut each passage in turn. Passages are encoded apart, so cutting one changes no other passage."""
    tokens = torch.tensor([source], device=model.device)
    passages = find_passages(tokens, model.config.separator)[0]
    count = int(passages.max())
    target = torch.tensor([[model.config.start, *answer[:-1]]], device=model.device)

    encoded = model.encode(tokens)
    with record_weights() as calls:
        model.decode(target, encoded)
    weights = torch.stack(model.arrange_weights(calls)["cross"]).mean((0, 1, 2, 3))  # [key]
    # row 0 keeps every passage, row k cuts passage k; one row keeps all, so that each row has at least one key
    is_kept = passages != torch.arange(count + 1, device=tokens.device)[:, None]
    rows = len(is_kept)
    logits = model.decode(
        target.expand(rows, -1),
        encoded.expand(rows, -1, -1),
        source_token_mask=is_kept,
        cache=Cache(),
    ).logits
    assert logits is not None
    chosen = torch.tensor(answer, device=tokens.device)[None, :, None].expand(rows, -1, -1)
    log_probability: Tensor = logits.log_softmax(-1).gather(-1, chosen)[..., 0].sum(1)
    drops = (log_probability[0] - log_probability[1:]).tolist()
    shares = torch.zeros(count + 1, device=tokens.device).index_add(0, passages, weights)
    return PassageEffects(drops, shares[1:].tolist())
