"""Choose the next token from logits: greedy, or sampled with temperature, top-k, top-p, min-p and a penalty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.errors import ArgumentError

LEAST_TEMPERATURE = 1e-30  # below, float32 overflows, and the most probable token has all of the probability

Logits = Float[Tensor, "batch vocab"]


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. The filters apply in the order of the fields.

    Args:
        temperature: Divides the logits; 0 takes the most probable token (greedy).
        repetition: Divides the logits of tokens that are already in the text, and multiplies negative ones (Keskar et
            al. 2019); 1 changes nothing.
        top_k: Sample from the k most probable tokens; None = all.
        top_p: Sample from the fewest tokens that together have this probability (Holtzman et al. 2020); None = all.
        min_p: Sample from tokens whose probability is at least this fraction of the largest one (Nguyen et al. 2024);
            None = all.

    >>> Sampling(temperature=0.8, top_p=0.9, seed=1).top_p
    0.9
    """

    temperature: float = 1.0
    repetition: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ArgumentError(f"temperature must be a finite number of at least 0, not {self.temperature}")
        if not 0 < self.repetition < math.inf:
            raise ArgumentError(f"repetition must be a finite number above 0, not {self.repetition}")
        if not -(2**63) <= self.seed < 2**64:
            raise ArgumentError(f"seed must be an integer of at most 64 bits, not {self.seed}")
        if self.top_k is not None and self.top_k < 1:
            raise ArgumentError(f"top_k must be at least 1, not {self.top_k}")
        for name, probability in (("top_p", self.top_p), ("min_p", self.min_p)):
            if probability is not None and not 0 < probability <= 1:
                raise ArgumentError(f"{name} must be above 0 and at most 1, not {probability}")

    def create_generator(self, device: torch.device) -> torch.Generator:
        """Return a random number generator on ``device`` that starts from the seed."""
        return torch.Generator(device).manual_seed(self.seed)

    def choose(self, logits: Logits, texts: list[list[int]], generator: torch.Generator) -> Int[Tensor, " batch"]:
        """Return the next token of each text."""
        logits = self.filter_logits(logits.float(), texts)
        check_logits(logits)
        if self.temperature < LEAST_TEMPERATURE:
            return logits.argmax(-1)
        return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]

    def filter_logits(self, logits: Logits, texts: list[list[int]]) -> Logits:
        """Return the logits after penalty, temperature and filters; -inf = excluded."""
        if self.repetition != 1:
            logits = self._penalize_repetition(logits, texts)
        if self.temperature < LEAST_TEMPERATURE:
            return logits

        logits = logits / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            smallest = logits.topk(self.top_k, -1).values[:, -1:]
            logits = logits.masked_fill(logits < smallest, float("-inf"))
        if self.top_p is not None and self.top_p < 1:
            ascending, order = logits.sort(-1)
            excluded = ascending.softmax(-1).cumsum(-1) <= 1 - self.top_p
            excluded[:, -1] = False  # the most probable token always remains
            logits = logits.masked_fill(excluded.scatter(-1, order, excluded), float("-inf"))
        if self.min_p is not None:
            probabilities = logits.softmax(-1)
            threshold = self.min_p * probabilities.amax(-1, keepdim=True)
            logits = logits.masked_fill(probabilities < threshold, float("-inf"))
        return logits

    def _penalize_repetition(self, logits: Logits, texts: list[list[int]]) -> Logits:
        logits = logits.clone()
        for row, tokens in zip(logits, texts, strict=True):
            repeated = torch.tensor(sorted(set(tokens)), device=logits.device, dtype=torch.long)
            scores = row[repeated]
            row[repeated] = torch.where(scores < 0, scores * self.repetition, scores / self.repetition)
        return logits


SAMPLING_SETTINGS = tuple(field.name for field in fields(Sampling))
RANDOM_SETTINGS = ("temperature", "top_k", "top_p", "min_p", "seed")  # settings that imply random sampling


def parse_sampling(settings: Mapping[str, Any]) -> Sampling:
    """Return the sampling that settings by name describe; without one of ``RANDOM_SETTINGS`` it is greedy."""
    is_random = any(name in settings for name in RANDOM_SETTINGS)
    return Sampling(**{"temperature": 1.0 if is_random else 0.0, **settings})


def check_logits(logits: Float[Tensor, "*batch vocab"]) -> None:
    """Raise ArgumentError unless every row has a largest logit, which is then the most probable token."""
    if not bool(logits.amax(-1).isfinite().all()):
        raise ArgumentError(
            "no token can be chosen, because the model's logits contain NaN or infinity; its training has diverged, "
            "its parameters are damaged, or repetition is too small"
        )


greedy = Sampling(temperature=0.0)
