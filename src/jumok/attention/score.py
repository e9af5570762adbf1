"""Scores: the formula that gives a number for each query and key, before bias and mask.

ScaledDot and Dot are formulas without parameters; General, Additive and Concat are modules with parameters; Kernel is
linear attention. Query and key widths may differ in General, Additive and Concat.
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
from .groups import expand_groups, multiply_by_group

# The range of float32, in which most backends compute.
SMALLEST, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max

ScaledQuery = tuple[Float[Tensor, "batch head query key_width"], float]


class Score:
    """Base class of scores."""

    #: One score per head, [head], that takes part in the softmax without a value ("attention sink"), or None.
    sink: Tensor | None = None

    #: Whether the scores are dot products with the keys, which fused kernels compute: ``fold_into_query`` is not None.
    is_dot_product: bool = False

    #: Hidden numbers computed for every cell: 0 unless the score keeps a vector per pair of query and key.
    hidden_width: int = 0

    #: Whether heads have formulas or parameters of their own, so that all heads must be evaluated at once.
    differs_by_head: bool = False

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raise ShapeError if the widths do not fit this formula."""
        raise NotImplementedError

    def evaluate(self, query: axes.Query, key: axes.Key) -> axes.Scores:
        """Return the score of every query and key, ``[batch, head, query, key]``."""
        raise NotImplementedError

    def fold_into_query(self, query: axes.Query) -> ScaledQuery | None:
        """Return ``(new_query, scale)`` with scores = scale * new_query . key, or None if they are no dot products.

        The scale is above 0, because kernels scale after they apply the causal mask: -inf * 0 is NaN, -inf * -1 is inf.
        """
        return None

    def convert_sink(self, like: Tensor) -> Tensor | None:
        """Return the sink in the type of a tensor and within its range: the softmax of an infinite number is NaN."""
        if self.sink is None:
            return None
        limits = torch.finfo(like.dtype)
        return self.sink.to(like).clamp(limits.min, limits.max)

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors that may require gradients, besides query and key."""
        return () if self.sink is None else (self.sink,)


@dataclass(frozen=True, eq=False)
class ScaledDot(Score):
    """query . key / sqrt(head_width) (Vaswani et al. 2017).

    Args:
        scale: Factor of the dot product; None is 1/sqrt(head_width).
        softcap: Bound c: scores become c * tanh(score / c) (Gemma 2); None is no bound.
        sink: Score per head, ``[head]``, that takes part in the softmax without a value; None is no sink.
    """

    scale: float | None = None
    softcap: float | None = None
    sink: Tensor | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not abs(self.scale) <= LARGEST:
            raise ArgumentError(f"scale must be a finite number within the range of float32, not {self.scale}")
        if self.softcap is not None and not SMALLEST <= self.softcap <= LARGEST:
            raise ArgumentError(
                f"softcap must be above 0 and within the range of float32, not {self.softcap}; None is no bound"
            )
        object.__setattr__(self, "is_dot_product", self.softcap is None and self.sink is None)  # frozen

    def check(self, query: Tensor, key: Tensor) -> None:
        if query.shape[-1] != key.shape[-1]:
            raise ShapeError(
                f"query has width {query.shape[-1]} and key {key.shape[-1]}, but {type(self).__name__} needs equal "
                f"widths (query {list(query.shape)}, key {list(key.shape)})"
            )
        if self.sink is not None and list(self.sink.shape) != [query.shape[1]]:
            raise ShapeError(f"sink has shape {list(self.sink.shape)}, but the query has {query.shape[1]} heads")

    def evaluate(self, query: axes.Query, key: axes.Key) -> axes.Scores:
        # Scaling the query takes n*d multiplications, scaling the scores n*n.
        scores = multiply_by_group(query * self.get_scale(query), key.transpose(-1, -2))
        if self.softcap is None:
            return scores
        return self.softcap * torch.tanh(scores / self.softcap)

    def fold_into_query(self, query: axes.Query) -> ScaledQuery | None:
        if not self.is_dot_product:
            return None
        scale = self.get_scale(query)
        if scale >= SMALLEST:
            return query, scale
        return (-query, -scale) if scale <= -SMALLEST else (query * scale, 1.0)

    def get_scale(self, query: Tensor) -> float:
        """Return the factor of the dot product."""
        return 1 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale


@dataclass(frozen=True, eq=False)
class Dot(ScaledDot):
    """query . key, unscaled (Luong et al. 2015, "dot")."""

    scale: float | None = 1.0


class _ParametricScore(nn.Module, Score):
    """A score with parameters: one set per head, or with ``heads=1`` one that all heads share."""

    def __init__(self, query_width: int, key_width: int, heads: int, hidden: int = 1) -> None:
        super().__init__()
        sizes = {"query_width": query_width, "key_width": key_width, "heads": heads, "hidden": hidden}
        for name, size in sizes.items():
            if size < 1:
                raise ArgumentError(f"{name} must be at least 1, not {size}")
        self.query_width, self.key_width, self.heads = query_width, key_width, heads
        self.differs_by_head = heads > 1

    def check(self, query: Tensor, key: Tensor) -> None:
        name = type(self).__name__
        if query.shape[-1] != self.query_width:
            raise ShapeError(f"this {name} takes queries of width {self.query_width}, not {list(query.shape)}")
        if key.shape[-1] != self.key_width:
            raise ShapeError(f"this {name} takes keys of width {self.key_width}, not {list(key.shape)}")
        if self.heads not in (1, query.shape[1]):
            raise ShapeError(f"{name} has parameters for {self.heads} heads, but the query has {query.shape[1]}")

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return tuple(self.parameters())

    def _make_parameter(self, *shape: int) -> nn.Parameter:
        # This standard deviation gives products of unit variance for inputs of unit variance.
        table = torch.empty(self.heads, *shape)
        if not table.is_meta:  # on the meta device, drawing would import hundreds of modules for nothing
            nn.init.normal_(table, std=1 / math.sqrt(shape[-1]))
        return nn.Parameter(table)


class General(_ParametricScore):
    """query^T M key (Luong et al. 2015, "general")."""

    is_dot_product = True

    def __init__(self, query_width: int, key_width: int, heads: int = 1) -> None:
        super().__init__(query_width, key_width, heads)
        self.matrix = self._make_parameter(query_width, key_width)

    def evaluate(self, query: axes.Query, key: axes.Key) -> axes.Scores:
        return multiply_by_group(query @ self.matrix.to(query.dtype), key.transpose(-1, -2))

    def fold_into_query(self, query: axes.Query) -> ScaledQuery | None:
        return query @ self.matrix.to(query.dtype), 1.0


class _TanhScore(_ParametricScore):
    """vector^T tanh(W_q query + W_k key): what Additive and Concat have in common."""

    vector: nn.Parameter
    query_bias: nn.Parameter | None
    key_bias: nn.Parameter | None
    vector_bias: nn.Parameter | None

    def __init__(self, query_width: int, key_width: int, heads: int, hidden: int, *, bias: bool = False) -> None:
        super().__init__(query_width, key_width, heads, hidden)
        self.hidden_width = hidden
        for name, shape in (("query_bias", (hidden,)), ("key_bias", (hidden,)), ("vector_bias", ())):
            self.register_parameter(name, nn.Parameter(torch.zeros(heads, *shape)) if bias else None)

    def _split_matrix(self) -> tuple[Float[Tensor, "h hidden q"], Float[Tensor, "h hidden k"]]:
        """Return (W_q, W_k)."""
        raise NotImplementedError

    def evaluate(self, query: axes.Query, key: axes.Key) -> axes.Scores:
        query_matrix, key_matrix = (matrix.to(query.dtype) for matrix in self._split_matrix())
        vector = self.vector.to(query.dtype)

        if self.heads == 1:  # one product for the batch; each group is projected once, before it is expanded
            queries = query @ query_matrix[0].T
            keys = expand_groups(key @ key_matrix[0].T, query.shape[1])
        else:
            queries = query @ query_matrix.transpose(-1, -2)
            keys = expand_groups(key, query.shape[1]) @ key_matrix.transpose(-1, -2)
        if self.query_bias is not None and self.key_bias is not None:
            queries = queries + self.query_bias.to(query.dtype)[:, None]
            keys = keys + self.key_bias.to(query.dtype)[:, None]

        hidden = torch.tanh(queries[:, :, :, None] + keys[:, :, None])
        scores = hidden @ vector[0] if self.heads == 1 else (hidden @ vector[:, None, :, None]).squeeze(-1)
        return scores if self.vector_bias is None else scores + self.vector_bias.to(query.dtype)[:, None, None]


class Additive(_TanhScore):
    """v^T tanh(W query + U key) (Bahdanau, Cho and Bengio, 2014).

    Args:
        hidden: Width of the hidden vector of each pair.
        bias: Add a bias to W query, to U key and to the score, as implementations with ``nn.Linear`` do; the paper has
            none. The bias of the score changes no weights, because the softmax cancels it.
    """

    def __init__(self, query_width: int, key_width: int, hidden: int, heads: int = 1, *, bias: bool = False) -> None:
        super().__init__(query_width, key_width, heads, hidden, bias=bias)
        self.query_matrix = self._make_parameter(hidden, query_width)
        self.key_matrix = self._make_parameter(hidden, key_width)
        self.vector = self._make_parameter(hidden)

    def _split_matrix(self) -> tuple[Float[Tensor, "h hidden q"], Float[Tensor, "h hidden k"]]:
        return self.query_matrix, self.key_matrix


class Concat(_TanhScore):
    """v^T tanh(W [query; key]) (Luong et al. 2015, "concat").

    Without the tanh, the query's part would add one constant to its row, and the softmax would cancel it.
    """

    def __init__(self, query_width: int, key_width: int, hidden: int, heads: int = 1) -> None:
        super().__init__(query_width, key_width, heads, hidden)
        self.matrix = self._make_parameter(hidden, query_width + key_width)
        self.vector = self._make_parameter(hidden)

    def _split_matrix(self) -> tuple[Float[Tensor, "h hidden q"], Float[Tensor, "h hidden k"]]:
        # W [q; k] = W_q q + W_k k, so the pairs need not be concatenated.
        return self.matrix[..., : self.query_width], self.matrix[..., self.query_width :]


@dataclass(frozen=True)
class Kernel(Score):
    """Linear attention: weights are phi(query) . phi(key), and each row is divided by its sum.

    The score is the logarithm of that product, so softmax, masks and the row log-sum-exp are used as with any other
    score. The ``linear`` backend computes the same output in O(n), without forming the scores.
    """

    feature_map: FeatureMap = field(default_factory=EluPlusOne)  # phi

    def check(self, query: Tensor, key: Tensor) -> None:
        if query.shape[-1] != key.shape[-1]:
            raise ShapeError(f"query has width {query.shape[-1]} and key {key.shape[-1]}; Kernel needs equal widths")

    def evaluate(self, query: axes.Query, key: axes.Key) -> axes.Scores:
        queries, query_scale = self.feature_map.map_queries(query)
        keys, key_scale = self.feature_map.map_keys(key)
        similarity = multiply_by_group(queries, keys.transpose(-1, -2))
        if key_scale.dim():
            key_scale = expand_groups(key_scale, query.shape[1])

        # Features are positive, but a product may underflow to 0, whose logarithm is not finite.
        similarity = similarity.clamp_min(torch.finfo(similarity.dtype).tiny)
        return similarity.log() + query_scale + key_scale
