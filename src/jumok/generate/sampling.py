"""From logits to a token: greedy, or drawn after temperature, top-k, top-p, min-p and a repetition penalty."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.errors import ArgumentError

Logits = Float[Tensor, "batch vocab"]


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. temperature 0 takes the likeliest; the filters apply in the order of the fields.

    repetition: logits of tokens already in the text are divided by it (multiplied where negative; Keskar et al. 2019).
    top_p: the fewest tokens that together have this probability (Holtzman et al. 2020).
    min_p: tokens at least this likely, as a share of the likeliest (Nguyen et al. 2024).
    """

    temperature: float = 1.0
    repetition: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ArgumentError(f"temperature must be at least 0, not {self.temperature}")
        if self.repetition <= 0:
            raise ArgumentError(f"repetition must be above 0, not {self.repetition}")
        if self.top_k is not None and self.top_k < 1:
            raise ArgumentError(f"top_k must be at least 1, not {self.top_k}")
        for name in ("top_p", "min_p"):
            share = getattr(self, name)
            if share is not None and not 0 < share <= 1:
                raise ArgumentError(f"{name} must be above 0 and at most 1, not {share}")

    def generator(self, device: torch.device) -> torch.Generator:
        return torch.Generator(device).manual_seed(self.seed)

    def choose(self, logits: Logits, seen: list[list[int]], generator: torch.Generator) -> Int[Tensor, " batch"]:
        """A token for each text; ``seen`` are the tokens of each so far."""
        logits = self.filtered(logits.float(), seen)
        if self.temperature == 0:
            return logits.argmax(-1)
        return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]

    def filtered(self, logits: Logits, seen: list[list[int]]) -> Logits:
        if self.repetition != 1:
            logits = logits.clone()
            for row, tokens in zip(logits, seen, strict=True):
                met = torch.tensor(sorted(set(tokens)), device=logits.device, dtype=torch.long)
                row[met] = torch.where(row[met] < 0, row[met] * self.repetition, row[met] / self.repetition)
        if self.temperature == 0:
            return logits
        logits = logits / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k, -1).values[:, -1:]
            logits = logits.masked_fill(logits < least, float("-inf"))
        if self.top_p is not None and self.top_p < 1:
            logits = _nucleus(logits, self.top_p)
        if self.min_p is not None:
            shares = logits.softmax(-1)
            logits = logits.masked_fill(shares < self.min_p * shares.amax(-1, keepdim=True), float("-inf"))
        return logits


def _nucleus(logits: Logits, share: float) -> Logits:
    ordered, order = logits.sort(-1)  # rising: what is cut is a beginning
    before = ordered.softmax(-1).cumsum(-1)
    cut = before <= 1 - share
    cut[:, -1] = False  # the likeliest always stays
    return logits.masked_fill(cut.scatter(-1, order, cut), float("-inf"))


greedy = Sampling(temperature=0.0)
