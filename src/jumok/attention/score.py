"""Scores: the formula that makes a number of a query and a key, before bias and mask.

ScaledDot and Dot are formulas; General, Additive and Concat have parameters and are modules; Kernel is linear
attention. Query and key widths may differ in General, Additive and Concat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok import axes
from jumok.errors import ArgumentError, ShapeError

from .feature_maps import EluPlusOne, FeatureMap
from .groups import grouped_matmul, spread


class Score:
    """What the door asks of a score."""

    #: one number a head that takes part in the softmax and has no value ("attention sink")
    sink: Tensor | None = None

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raise ShapeError where the widths do not fit this formula."""
        raise NotImplementedError

    def evaluate(self, query: axes.Query, key: axes.Key) -> axes.Scores:
        raise NotImplementedError

    def as_dot(self, query: axes.Query) -> tuple[Float[Tensor, "batch head query key_width"], float] | None:
        """(query', scale) with scores = scale * query' . key, where the formula is such a product; else None."""
        return None

    def gradient_tensors(self) -> tuple[Tensor, ...]:
        """What gradients must reach besides query and key."""
        return () if self.sink is None else (self.sink,)


@dataclass(frozen=True, eq=False)
class ScaledDot(Score):
    """query . key / sqrt(head_width) (Vaswani et al. 2017).

    ``scale`` replaces 1/sqrt(head_width); ``softcap`` c bends scores to c*tanh(score/c) (Gemma 2);
    ``sink`` is [head], see Score.
    """

    scale: float | None = None
    softcap: float | None = None
    sink: Tensor | None = field(default=None)

    def __post_init__(self) -> None:
        if self.softcap is not None and not self.softcap > 0:
            raise ArgumentError(f"softcap must be above 0, not {self.softcap}")

    def check(self, query: Tensor, key: Tensor) -> None:
        if query.shape[-1] != key.shape[-1]:
            raise ShapeError(
                f"query is {query.shape[-1]} wide and key {key.shape[-1]}, but {type(self).__name__} multiplies them "
                f"number by number (query {list(query.shape)}, key {list(key.shape)})"
            )
        if self.sink is not None and list(self.sink.shape) != [query.shape[1]]:
            raise ShapeError(f"sink has shape {list(self.sink.shape)}, but the query has {query.shape[1]} heads")

    def evaluate(self, query: axes.Query, key: axes.Key) -> axes.Scores:
        # scaling the query costs n*d, scaling the scores n*n
        scores = grouped_matmul(query * self._scale(query), key.transpose(-1, -2))
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def as_dot(self, query: axes.Query) -> tuple[Float[Tensor, "batch head query key_width"], float] | None:
        return None if self.softcap is not None or self.sink is not None else (query, self._scale(query))

    def _scale(self, query: Tensor) -> float:
        return 1 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale


@dataclass(frozen=True, eq=False)
class Dot(ScaledDot):
    """query . key, unscaled (Luong et al. 2015, "dot")."""

    scale: float | None = 1.0


class _Module(nn.Module, Score):
    """A score with parameters. ``heads=1``: all heads share them."""

    def __init__(self, query_width: int, key_width: int, heads: int, hidden: int = 1) -> None:
        super().__init__()
        numbers = {"query_width": query_width, "key_width": key_width, "heads": heads, "hidden": hidden}
        for name, number in numbers.items():
            if number < 1:
                raise ArgumentError(f"{name} must be at least 1, not {number}")
        self.query_width, self.key_width, self.heads = query_width, key_width, heads

    def check(self, query: Tensor, key: Tensor) -> None:
        name = type(self).__name__
        if query.shape[-1] != self.query_width:
            raise ShapeError(f"{name} was made for queries {self.query_width} wide, not {list(query.shape)}")
        if key.shape[-1] != self.key_width:
            raise ShapeError(f"{name} was made for keys {self.key_width} wide, not {list(key.shape)}")
        if self.heads not in (1, query.shape[1]):
            raise ShapeError(f"{name} has parameters for {self.heads} heads, but the query has {query.shape[1]}")

    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return tuple(self.parameters())

    def _parameter(self, *shape: int) -> nn.Parameter:
        # so that a product with unit-variance input has unit variance: sums of `fan in` terms
        table = torch.empty(self.heads, *shape)
        if not table.is_meta:  # there, drawing would import hundreds of modules for numbers that a file brings
            nn.init.normal_(table, std=1 / math.sqrt(shape[-1]))
        return nn.Parameter(table)


class General(_Module):
    """query^T M key (Luong et al. 2015, "general")."""

    def __init__(self, query_width: int, key_width: int, heads: int = 1) -> None:
        super().__init__(query_width, key_width, heads)
        self.matrix = self._parameter(query_width, key_width)

    def evaluate(self, query: axes.Query, key: axes.Key) -> axes.Scores:
        return grouped_matmul(query @ self.matrix.to(query.dtype), key.transpose(-1, -2))

    def as_dot(self, query: axes.Query) -> tuple[Float[Tensor, "batch head query key_width"], float] | None:
        return query @ self.matrix.to(query.dtype), 1.0


class _Tanh(_Module):
    """vector^T tanh(W_q query + W_k key): additive attention, however its matrix is cut."""

    vector: nn.Parameter

    def _halves(self) -> tuple[Float[Tensor, "h hidden q"], Float[Tensor, "h hidden k"]]:
        raise NotImplementedError

    def evaluate(self, query: axes.Query, key: axes.Key) -> axes.Scores:
        for_query, for_key = (half.to(query.dtype) for half in self._halves())
        vector = self.vector.to(query.dtype)
        if self.heads == 1:  # one product for the whole batch, and each group is mapped once before its heads look
            queries, keys = query @ for_query[0].T, spread(key @ for_key[0].T, query.shape[1])
            return torch.tanh(queries[:, :, :, None] + keys[:, :, None]) @ vector[0]
        queries = query @ for_query.transpose(-1, -2)
        keys = spread(key, query.shape[1]) @ for_key.transpose(-1, -2)
        hidden = torch.tanh(queries[:, :, :, None] + keys[:, :, None])
        return (hidden @ vector[:, None, :, None]).squeeze(-1)


class Additive(_Tanh):
    """v^T tanh(W query + U key) (Bahdanau, Cho and Bengio, 2014)."""

    def __init__(self, query_width: int, key_width: int, hidden: int, heads: int = 1) -> None:
        super().__init__(query_width, key_width, heads, hidden)
        self.query_matrix = self._parameter(hidden, query_width)
        self.key_matrix = self._parameter(hidden, key_width)
        self.vector = self._parameter(hidden)

    def _halves(self) -> tuple[Float[Tensor, "h hidden q"], Float[Tensor, "h hidden k"]]:
        return self.query_matrix, self.key_matrix


class Concat(_Tanh):
    """v^T tanh(W [query; key]) (Luong et al. 2015, "concat").

    Without the tanh the query's part would be one number added to a whole row, and softmax would cancel it.
    """

    def __init__(self, query_width: int, key_width: int, hidden: int, heads: int = 1) -> None:
        super().__init__(query_width, key_width, heads, hidden)
        self.matrix = self._parameter(hidden, query_width + key_width)
        self.vector = self._parameter(hidden)

    def _halves(self) -> tuple[Float[Tensor, "h hidden q"], Float[Tensor, "h hidden k"]]:
        # W [q; k] = W_q q + W_k k: the pairs are never laid side by side
        return self.matrix[..., : self.query_width], self.matrix[..., self.query_width :]


@dataclass(frozen=True)
class Kernel(Score):
    """Linear attention: weights are phi(query).phi(key), each row divided by its sum.

    The score is the logarithm of that product, so softmax, masks and the row log-sum-exp mean what they mean
    everywhere else; the ``linear`` backend gives the same output in O(n) and never forms the scores.
    """

    feature_map: FeatureMap = field(default_factory=EluPlusOne)

    def check(self, query: Tensor, key: Tensor) -> None:
        if query.shape[-1] != key.shape[-1]:
            raise ShapeError(f"query is {query.shape[-1]} wide and key {key.shape[-1]}; Kernel needs them equal")

    def evaluate(self, query: axes.Query, key: axes.Key) -> axes.Scores:
        queries, query_scale = self.feature_map.queries(query)
        keys, key_scale = self.feature_map.keys(key)
        similarity = grouped_matmul(queries, keys.transpose(-1, -2))
        if key_scale.dim():
            key_scale = spread(key_scale, query.shape[1])
        # features are positive; only underflow makes a product 0, and its logarithm would be no number
        return similarity.clamp_min(torch.finfo(similarity.dtype).tiny).log() + query_scale + key_scale
