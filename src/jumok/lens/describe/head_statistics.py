"""Collect the statistics of one head's weights that its kind is derived from, a few rows at a time, of all queries
or of some."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture

LOCAL_DISTANCE = 3
MAX_WEIGHTS = 2**22  # weights in memory at once
MAX_SAMPLE_WEIGHTS = 2**18  # the same for a sample, beside a long text

RowPatterns = dict[str, Bool[Tensor, "row key"]]


class KeyPatterns:
    """The keys that belong to each kind of head, as tables ``[row, key]``."""

    def __init__(
        self,
        tokens: Int[Tensor, " token"],
        separators: list[int],
        arcs: list[tuple[int, int]],
        vectors: Float[Tensor, "vector width"] | None,
        queries: Int[Tensor, " row"] | None = None,
    ) -> None:
        """Check the annotations of a text; ``queries`` are the rows that are read, by default all."""
        count = len(tokens)
        positions = [*separators, *(end for arc in arcs for end in arc)]
        missing = next((position for position in positions if not 0 <= position < count), None)
        if missing is not None:
            raise ArgumentError(f"position {missing} does not exist; there are {count} tokens, counted from 0")
        if vectors is not None and len(vectors) != count:
            raise ArgumentError(f"there are {count} tokens and {len(vectors)} vectors; give one vector per token")
        self.tokens = tokens
        self.vectors = None if vectors is None else torch.nn.functional.normalize(vectors, dim=-1)
        self._separators = separators
        self._arcs = arcs
        self.is_sample = queries is not None
        self.queries = torch.arange(count) if queries is None else queries
        limit = MAX_SAMPLE_WEIGHTS if self.is_sample else MAX_WEIGHTS
        self.parts = self.queries.split(max(1, limit // max(1, count)))  # the rows that are read at once
        # tables of all rows, and those of a sample, are computed once and reused for every head; not by lru_cache,
        # whose function would refer back to this object and keep its tables until the garbage is collected
        self._keeps_tables = self.is_sample or len(self.parts) == 1
        self._rows: dict[int, RowPatterns] = {}
        self._similarities: dict[int, Tensor] = {}

    def get_rows(self, number: int) -> RowPatterns:
        """Return the tables of a part of the rows by kind."""
        rows = self._rows.get(number)
        if rows is None:
            rows = self._build(self.parts[number])
            if self._keeps_tables:
                self._rows[number] = rows
        return rows

    def get_similarities(self, number: int) -> Float[Tensor, "row key"]:
        """Return the cosine similarities of a part of the rows with all keys."""
        similarities = self._similarities.get(number)
        if similarities is None:
            similarities = self._compare(self.parts[number])
            if self._keeps_tables:
                self._similarities[number] = similarities
        return similarities

    def _compare(self, rows: Tensor) -> Tensor:
        assert self.vectors is not None
        return self.vectors[rows] @ self.vectors.T

    def _build(self, rows: Tensor) -> RowPatterns:
        columns = torch.arange(len(self.tokens))
        distance = rows[:, None] - columns  # distance from each key to the query; negative for later keys
        is_same = self.tokens[rows][:, None] == self.tokens
        follows_same = torch.zeros_like(is_same)
        follows_same[:, 1:] = is_same[:, :-1] & (distance[:, :-1] > 0)
        patterns = {
            "previous": distance == 1,
            "own": distance == 0,
            "first": (columns == 0) & (rows[:, None] > 0),
            "local": distance.abs() <= LOCAL_DISTANCE,
            "duplicate": is_same & (distance > 0),
            "induction": follows_same & (distance >= 0),
        }
        if self._separators:
            patterns["separator"] = torch.isin(columns, torch.tensor(self._separators)).expand_as(is_same)
        if self._arcs:
            ends = torch.zeros(len(self.tokens), len(self.tokens), dtype=torch.bool)
            for dependent, governor in self._arcs:
                ends[dependent, governor] = ends[governor, dependent] = True
            patterns["syntactic"] = ends[rows]
        return patterns


class MapRows(NamedTuple):
    """Some rows of a head's map."""

    rows: Tensor
    weights: Tensor  # [row, key]
    allowed: Tensor  # [row, key], True where the mask allows attention

    @property
    def distances(self) -> Int[Tensor, "row key"]:
        """The distance from each key to its query; negative for later keys."""
        return self.rows[:, None] - torch.arange(self.weights.shape[1])

    @property
    def key_counts(self) -> Int[Tensor, " row"]:
        """The number of keys that each row may attend to."""
        return self.allowed.sum(-1)


ReadRows = Callable[[int], MapRows]  # returns the rows of a part


class HeadStatistics(NamedTuple):
    """The statistics of one head."""

    scores: dict[str, float | None]  # of each kind; None where the text has no such keys
    entropy: float  # the mean over the rows, in nats
    distance: float  # the mean distance between query and key
    shares: dict[str, float]  # of all weight on the keys of each kind

    @staticmethod
    def collect(read_rows: ReadRows, patterns: KeyPatterns) -> HeadStatistics:
        """Compute the statistics of one head, whose rows ``read_rows`` returns part by part."""
        count, row_count = len(patterns.tokens), len(patterns.queries)

        row_scores: defaultdict[str, list[Tensor]] = defaultdict(list)  # of the rows where each score is defined
        shares: defaultdict[str, float] = defaultdict(float)
        entropy_sum = distance_sum = 0.0
        weights_by_distance, cells_by_distance = torch.zeros(2 * count - 1), torch.zeros(2 * count - 1)
        moments = torch.zeros(6, dtype=torch.float64)
        for number in range(len(patterns.parts)):
            part = read_rows(number)
            for name, cells in patterns.get_rows(number).items():
                weight = (part.weights * cells).sum(-1)
                shares[name] += float(weight.sum()) / row_count
                is_defined = (cells & part.allowed).any(-1)
                if name == "syntactic":
                    weight, is_defined = subtract_uniform(weight, cells, part.allowed)
                row_scores[name].append(weight[is_defined])

            entropy = torch.special.entr(part.weights).sum(-1)
            entropy_sum += float(entropy.sum())
            has_choice = part.key_counts > 1
            row_scores["uniform"].append((entropy / part.key_counts.log())[has_choice])

            distance_sum += float((part.weights * part.distances.abs()).sum())
            indices = (part.distances + count - 1).flatten()
            weights_by_distance.index_add_(0, indices, part.weights.flatten())
            cells_by_distance.index_add_(0, indices, part.allowed.float().flatten())
            if patterns.vectors is not None:
                # a token is most similar to itself: with its own cell, a head that attends to itself would be semantic
                cells = part.allowed & (part.distances != 0)
                x = part.weights.masked_fill(~cells, 0.0).flatten().double()
                y = patterns.get_similarities(number).masked_fill(~cells, 0.0).flatten().double()
                moments += torch.stack([cells.sum().double(), x.sum(), y.sum(), x @ x, y @ y, x @ y])

        profile = weights_by_distance / cells_by_distance.clamp_min(1)
        for number in range(len(patterns.parts)):
            part = read_rows(number)
            expected = profile[part.distances + count - 1] * part.allowed
            expected = expected / expected.sum(-1, keepdim=True).clamp_min(1e-12)
            differences = (part.weights - expected).abs().sum(-1)
            row_scores["positional"].append(1 - differences[part.key_counts > 1] / 2)

        joined = {name: torch.cat(rows).double() for name, rows in row_scores.items()}
        scores = {name: float(rows.mean()) if len(rows) else None for name, rows in joined.items()}
        if patterns.vectors is not None:
            scores["semantic"] = _correlate(moments)
        return HeadStatistics(scores, entropy_sum / row_count, distance_sum / row_count, dict(shares))


def build_row_functions(
    capture: Capture, site: str, head: int, patterns: KeyPatterns, batch: int
) -> tuple[ReadRows, ReadRows]:
    """Return what reads the rows of a head, and what reads them without the first key, normalised again."""

    size = len(patterns.parts) if patterns.is_sample else 1

    @lru_cache(maxsize=size)  # a map that is read at once is computed once, and so is a sample
    def read_rows(number: int) -> MapRows:
        rows = patterns.parts[number]
        attention = capture.attentions[site]
        if patterns.is_sample:
            with torch.no_grad():
                weights, allowed = attention.read_rows(batch, head, rows)
        else:  # the capture keeps a complete map for other readers
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            weights = capture.tile(site, head, part, slice(None), batch)
            allowed = attention.evaluate_mask(batch, head, part, slice(None))
        return MapRows(rows, weights.float().cpu(), allowed.cpu())

    @lru_cache(maxsize=size)
    def read_without_first(number: int) -> MapRows:
        rows, weights, allowed = read_rows(number)
        return MapRows(rows, drop_first_key(weights), allowed & (torch.arange(allowed.shape[1]) > 0))

    return read_rows, read_without_first


def _correlate(moments: Float64[Tensor, " moment"]) -> float | None:
    """Return Pearson's correlation; None where one side is constant."""
    n, x, y, xx, yy, xy = moments.tolist()
    variances = (n * xx - x * x) * (n * yy - y * y)
    return None if variances <= 0 else float((n * xy - x * y) / variances**0.5)


def drop_first_key(weights: Tensor) -> Tensor:
    """Set the weight on the first key to 0 and divide each row by the sum of the others, if that is not 0."""
    weights = weights.clone()
    weights[..., 0] = 0
    sums = weights.sum(-1, keepdim=True)
    return torch.where(sums > 0, weights / sums.clamp_min(1e-30), 0.0)


def merge_into_words(
    weights: Float[Tensor, "query key"], queries: Sequence[range] | None, keys: Sequence[range] | None
) -> Float[Tensor, "query_word key_word"]:
    """Merge tokens into words: sum the weights over a word's keys, average them over its queries.

    Rows still sum to 1 if every key belongs to a word. The weights on other keys, such as special tokens, are left out.
    Without words, an axis stays as it is.

    >>> merge_into_words(torch.tensor([[0.2, 0.8], [0.4, 0.6]]), [range(0, 2)], [range(0, 1), range(1, 2)])
    tensor([[0.3000, 0.7000]])
    """
    if keys is not None:
        weights = torch.stack([weights[:, word.start : word.stop].sum(1) for word in keys], 1)
    if queries is not None:
        weights = torch.stack([weights[word.start : word.stop].mean(0) for word in queries])
    return weights


def subtract_uniform(weight: Tensor, cells: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Subtract the weight that a uniform row would have on the same cells, and rescale the excess to at most 1.

    The excess is defined, as the second result says, for rows with some, but not only, such cells.
    """
    cell_counts = (cells & allowed).sum(-1)
    uniform = cell_counts / allowed.sum(-1).clamp_min(1)
    excess = (weight - uniform) / (1 - uniform).clamp_min(1e-9)
    return excess, (cell_counts > 0) & (uniform < 1)
