"""Feature maps of linear attention: exp(q.k) is replaced by phi(q).phi(k), and O(n^2) becomes O(n).

Katharopoulos et al. 2020, "Transformers are RNNs" (elu + 1); Choromanski et al. 2021, "Rethinking Attention with
Performers" (FAVOR+).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jumok.errors import ArgumentError

Vectors = Float[Tensor, "batch head length inner"]


class ScaledFeatures(NamedTuple):
    """Features with a common factor: phi is ``features * exp(log_scale)``."""

    features: Tensor
    log_scale: Tensor


class FeatureMap:
    """The map phi, for queries and for keys.

    Both methods return the scale separately, so that the features neither overflow nor underflow. It cancels when rows
    are normalised.
    """

    def map_queries(self, vectors: Vectors) -> ScaledFeatures:
        """Return the features of queries and their log scale."""
        raise NotImplementedError

    def map_keys(self, vectors: Vectors) -> ScaledFeatures:
        """Return the features of keys and their log scale."""
        raise NotImplementedError


@dataclass(frozen=True)
class EluPlusOne(FeatureMap):
    """phi(x) = elu(x) + 1: positive, as many features as inputs."""

    def map_queries(self, vectors: Vectors) -> ScaledFeatures:
        return ScaledFeatures(functional.elu(vectors) + 1, vectors.new_zeros(()))

    map_keys = map_queries


@dataclass(frozen=True)
class FavorPlus(FeatureMap):
    """Positive orthogonal random features: the expectation of phi(q).phi(k) is exp(q.k / sqrt(head_width)).

    The projection is a pure function of (features, seed, head_width), so it is not stored in checkpoints.

    Args:
        features: Number of random features.
        seed: Seed of the projection.
    """

    features: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        if self.features < 1:
            raise ArgumentError(f"FavorPlus takes at least 1 feature, not {self.features}")

    def map_queries(self, vectors: Vectors) -> ScaledFeatures:
        exponent = self._compute_exponent(vectors)
        # The maximum of each row cancels when the row is normalised.
        largest = exponent.detach().amax(-1, keepdim=True)
        return ScaledFeatures(torch.exp(exponent - largest), largest)

    def map_keys(self, vectors: Vectors) -> ScaledFeatures:
        exponent = self._compute_exponent(vectors)
        if exponent.shape[-2] == 0:
            return ScaledFeatures(exponent, exponent.new_zeros(()))

        # One maximum for all keys of a head: a different one for each key would not cancel.
        largest = exponent.detach().amax((-2, -1), keepdim=True)
        return ScaledFeatures(torch.exp(exponent - largest), largest)

    def _compute_exponent(self, vectors: Tensor) -> Tensor:
        width = vectors.shape[-1]
        vectors = vectors * width**-0.25  # queries and keys together give the 1/sqrt(head_width) of the scaled dot
        # A fake tensor stands for a tensor while a program is traced: what is drawn for it must not be stored.
        sample = _sample_orthogonal_rows if type(vectors) is Tensor else _sample_orthogonal_rows.__wrapped__
        projection = sample(self.features, width, self.seed).to(vectors)
        return vectors @ projection.T - vectors.square().sum(-1, keepdim=True) / 2 - 0.5 * math.log(self.features)


@lru_cache(maxsize=32)
@torch.inference_mode(False)  # autograd refuses a tensor made in inference mode
def _sample_orthogonal_rows(count: int, width: int, seed: int) -> Tensor:
    """Draw rows with the lengths of Gaussian vectors, orthogonal within each block of ``width`` rows."""
    generator = torch.Generator().manual_seed(seed)
    blocks = []
    for start in range(0, count, width):
        square = torch.randn(width, width, generator=generator, dtype=torch.float64)
        directions, triangle = torch.linalg.qr(square)
        directions = directions * triangle.diagonal().sign()  # QR alone is not uniform over rotations
        blocks.append(directions.T[: min(width, count - start)])
    lengths = torch.randn(count, width, generator=generator, dtype=torch.float64).norm(dim=-1, keepdim=True)
    return torch.cat(blocks) * lengths
