"""Feature maps of linear attention: exp(q.k) becomes phi(q).phi(k), and O(n^2) becomes O(n).

Katharopoulos et al. 2020, "Transformers are RNNs" (elu + 1); Choromanski et al. 2021, "Rethinking Attention with
Performers" (FAVOR+).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jumok.errors import ArgumentError

Features = Float[Tensor, "batch head length feature"]


class FeatureMap:
    """phi, for queries and for keys. The true feature is ``features * exp(log_scale)``: kept apart, so that the
    numbers stay in range; both log_scales cancel when rows are normalised."""

    def queries(self, vectors: Float[Tensor, "batch head length inner"]) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def keys(self, vectors: Float[Tensor, "batch head length inner"]) -> tuple[Tensor, Tensor]:
        raise NotImplementedError


@dataclass(frozen=True)
class EluPlusOne(FeatureMap):
    """phi(x) = elu(x) + 1: positive, one feature for each number."""

    def queries(self, vectors: Float[Tensor, "batch head length inner"]) -> tuple[Tensor, Tensor]:
        return functional.elu(vectors) + 1, vectors.new_zeros(())

    keys = queries


@dataclass(frozen=True)
class FavorPlus(FeatureMap):
    """Positive orthogonal random features: phi(q).phi(k) is exp(q.k / sqrt(head_width)) on average.

    The projection is a pure function of (features, seed, head_width), so it needs no place in a checkpoint.
    """

    features: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        if self.features < 1:
            raise ArgumentError(f"FavorPlus takes at least 1 feature, not {self.features}")

    def queries(self, vectors: Float[Tensor, "batch head length inner"]) -> tuple[Tensor, Tensor]:
        exponent = self._exponent(vectors)
        # a row's own largest exponent cancels when the row is normalised
        largest = exponent.detach().amax(-1, keepdim=True)
        return torch.exp(exponent - largest), largest

    def keys(self, vectors: Float[Tensor, "batch head length inner"]) -> tuple[Tensor, Tensor]:
        exponent = self._exponent(vectors)
        if exponent.shape[-2] == 0:
            return exponent, exponent.new_zeros(())
        # one number for all keys of a head: a number of each key's own would not cancel
        largest = exponent.detach().amax((-2, -1), keepdim=True)
        return torch.exp(exponent - largest), largest

    def _exponent(self, vectors: Tensor) -> Tensor:
        width = vectors.shape[-1]
        vectors = vectors * width**-0.25  # both sides together give the 1/sqrt(head_width) of the scaled dot
        projection = _orthogonal(self.features, width, self.seed).to(vectors)
        half_log_count = 0.5 * torch.log(torch.tensor(float(self.features))).item()
        return vectors @ projection.T - vectors.square().sum(-1, keepdim=True) / 2 - half_log_count


@lru_cache(maxsize=32)
def _orthogonal(count: int, width: int, seed: int) -> Tensor:
    """Rows as of a Gaussian matrix in length and direction, but orthogonal within each run of ``width`` rows."""
    generator = torch.Generator().manual_seed(seed)
    runs = []
    for start in range(0, count, width):
        square = torch.randn(width, width, generator=generator, dtype=torch.float64)
        directions, triangle = torch.linalg.qr(square)
        directions = directions * triangle.diagonal().sign()  # QR alone is not uniform over rotations
        runs.append(directions.T[: min(width, count - start)])
    lengths = torch.randn(count, width, generator=generator, dtype=torch.float64).norm(dim=-1, keepdim=True)
    return torch.cat(runs) * lengths
