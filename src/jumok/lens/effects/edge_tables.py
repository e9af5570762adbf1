"""Tables of all edges of a model: list, sort and sample them, and find edges of similar weight."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

Table = Float[Tensor, "query key"]


class Edge(NamedTuple):
    """One cell of a head's map: a query that attends to a key, by index."""

    site: str
    head: int
    query: int
    key: int


class EdgeTables:
    """The weight and the estimated effect of every edge. Cells with weight 0 are not edges."""

    def __init__(self, weights: dict[tuple[str, int], Table], estimates: dict[tuple[str, int], Table]) -> None:
        """Store the tables.

        Args:
            weights: The weights ``[query, key]`` of each (site, head).
            estimates: The estimated effects ``[query, key]`` of each (site, head).
        """
        self.weights, self.estimates = weights, estimates

    def list_all(self) -> list[Edge]:
        """Return all edges."""
        return [
            Edge(site, head, query, key)
            for (site, head), table in self.weights.items()
            for query, key in (table > 0).nonzero().tolist()
        ]

    def find_largest(self, tables: dict[tuple[str, int], Table], count: int) -> list[Edge]:
        """Return the edges with the largest absolute entries of a table, the largest first.

        Args:
            tables: ``weights`` or ``estimates``.
        """
        candidates: list[tuple[float, Edge]] = []
        for (site, head), table in tables.items():
            sizes = table.abs().masked_fill(self.weights[site, head] <= 0, -1.0).flatten()
            largest, indices = sizes.topk(min(count, len(sizes)))
            for size, index in zip(largest.tolist(), indices.tolist(), strict=True):
                if size >= 0:
                    candidates.append((size, Edge(site, head, *divmod(index, table.shape[1]))))
        candidates.sort(key=lambda candidate: -candidate[0])
        return [edge for _, edge in candidates[:count]]

    def sample(self, count: int, generator: random.Random) -> list[Edge]:
        """Draw random edges, the same number from each head. Most of them have small weights, because most edges do."""
        per_head = max(1, count // len(self.weights))
        edges: list[Edge] = []
        for (site, head), table in self.weights.items():
            indices = (table.flatten() > 0).nonzero().flatten().tolist()
            for index in generator.sample(indices, min(per_head, len(indices))):
                edges.append(Edge(site, head, *divmod(index, table.shape[1])))
        return edges

    def get_weight(self, edge: Edge) -> float:
        """Return the weight of an edge."""
        return float(self.weights[edge.site, edge.head][edge.query, edge.key])

    def count_row_edges(self, edge: Edge) -> int:
        """Return how many edges the row of an edge has, itself included."""
        return int((self.weights[edge.site, edge.head][edge.query] > 0).sum())

    def get_estimate(self, edge: Edge) -> float:
        """Return the estimated effect of an edge."""
        return float(self.estimates[edge.site, edge.head][edge.query, edge.key])


class SimilarWeightFinder:
    """Finds the edges of a pool whose weights are closest to that of a given edge, by ratio."""

    def __init__(self, tables: EdgeTables, pool: Sequence[Edge]) -> None:
        """Sort the pool by weight."""
        self.tables = tables
        self.pool = sorted((_log_weight(tables.get_weight(edge)), edge) for edge in pool)

    def find(self, edge: Edge, count: int) -> list[Edge]:
        """Return the edges of the pool with the most similar weights, the edge itself excluded."""
        log_weight = _log_weight(self.tables.get_weight(edge))
        index = bisect.bisect_left(self.pool, (log_weight, edge))
        nearby = self.pool[max(0, index - count - 1) : index + count + 1]
        candidates = ((abs(other_weight - log_weight), other) for other_weight, other in nearby if other != edge)
        return [candidate for _, candidate in sorted(candidates)[:count]]


def _log_weight(weight: float) -> float:
    return math.log(max(weight, 1e-12))
