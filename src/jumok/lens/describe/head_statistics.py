"""Collect the statistics of one head's weights that its kind is derived from, a few rows at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture

LOCAL_DISTANCE = 3
MAX_WEIGHTS = 2**22  # weights in memory at once

RowPatterns = dict[str, Bool[Tensor, "row key"]]


class KeyPatterns:
    """The keys that belong to each kind of head, as tables ``[row, key]``.

    Attributes:
        vectors: A normalised vector for each token, or None.
    """

    def __init__(
        self,
        tokens: Int[Tensor, " token"],
        separators: list[int],
        arcs: list[tuple[int, int]],
        vectors: Float[Tensor, "vector width"] | None,
    ) -> None:
        """Check the annotations of a text."""
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
        self._all_rows: RowPatterns | None = None

    def get_rows(self, rows: Int[Tensor, " row"]) -> RowPatterns:
        """Return the tables of some rows by kind. Tables of all rows are computed once and reused for every head."""
        if len(rows) < len(self.tokens):
            return self._build(rows)
        if self._all_rows is None:
            self._all_rows = self._build(rows)
        return self._all_rows

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
    """Some rows of a head's map.

    Attributes:
        weights: The weights ``[row, key]``.
        allowed: True where the mask allows attention ``[row, key]``.
    """

    rows: Tensor
    weights: Tensor
    allowed: Tensor


@dataclass(frozen=True)
class HeadStatistics:
    """The statistics of one head.

    Attributes:
        scores: The score of each kind; None where the text has no such keys.
        shares: The share of all weight on the keys of each kind.
        entropy: The mean entropy of the rows, in nats.
        distance: The mean distance between query and key.
    """

    scores: dict[str, float | None]
    shares: dict[str, float]
    entropy: float
    distance: float

    @staticmethod
    def collect(
        capture: Capture, site: str, head: int, patterns: KeyPatterns, batch: int, *, skip_first: bool = False
    ) -> HeadStatistics:
        """Compute the statistics of one head.

        Args:
            skip_first: Whether to leave out the first key and normalise the rows again.
        """
        count = len(patterns.tokens)
        step = max(1, MAX_WEIGHTS // count)

        @lru_cache(maxsize=1)  # a map that is read at once is computed once
        def read_rows(begin: int) -> MapRows:
            rows = slice(begin, min(begin + step, count))
            weights = capture.tile(site, head, rows, slice(None), batch).float().cpu()
            allowed = capture.attentions[site].evaluate_mask(batch, head, rows, slice(None)).cpu()
            if skip_first:
                weights = drop_first_key(weights)
                allowed = allowed & (torch.arange(allowed.shape[1]) > 0)
            return MapRows(torch.arange(rows.start, rows.stop), weights, allowed)

        pattern_sums = _PatternSums(patterns)
        entropy = _EntropySums()
        profile = _DistanceProfile(count)
        moments = _Moments()
        for begin in range(0, count, step):
            tile = read_rows(begin)
            pattern_sums.add(tile)
            entropy.add(tile)
            profile.add(tile)
            if patterns.vectors is not None:
                moments.add(tile, patterns.vectors[tile.rows] @ patterns.vectors.T)

        scores = pattern_sums.compute_scores()
        scores["uniform"] = entropy.compute_uniformity()
        scores["positional"] = _score_positional(map(read_rows, range(0, count, step)), profile.compute_means())
        if patterns.vectors is not None:
            scores["semantic"] = moments.compute_correlation()
        return HeadStatistics(
            scores, dict(pattern_sums.shares), entropy.entropy_sum / count, profile.distance_sum / count
        )


def drop_first_key(weights: Tensor) -> Tensor:
    """Set the weight on the first key to 0 and divide each row by the sum of the others.

    Args:
        weights: Weights ``[..., query, key]``. Rows whose weight is all on the first key become 0.
    """
    weights = weights.clone()
    weights[..., 0] = 0
    sums = weights.sum(-1, keepdim=True)
    return torch.where(sums > 0, weights / sums.clamp_min(1e-30), 0.0)


def merge_into_words(
    weights: Float[Tensor, "query key"], queries: Sequence[range] | None, keys: Sequence[range] | None
) -> Float[Tensor, "query_word key_word"]:
    """Merge tokens into words: sum the weights over a word's keys, average them over its queries.

    Rows still sum to 1 if every key belongs to a word. The weights on other keys, such as special tokens, are left out.

    Args:
        queries: The tokens of each word on the query axis; None leaves the axis unchanged.
        keys: The tokens of each word on the key axis; None leaves the axis unchanged.

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

    Args:
        weight: The weight of each row on the cells, ``[row]``.
        cells: The cells, ``[row, key]``.
        allowed: True where the mask allows attention, ``[row, key]``.

    Returns:
        The excess of each row, and True for the rows where it is defined: those with some, but not only, such cells.
    """
    cell_counts = (cells & allowed).sum(-1)
    uniform = cell_counts / allowed.sum(-1).clamp_min(1)
    excess = (weight - uniform) / (1 - uniform).clamp_min(1e-9)
    return excess, (cell_counts > 0) & (uniform < 1)


class _PatternSums:
    """Sums, over tiles, the weight on the keys of each kind."""

    def __init__(self, patterns: KeyPatterns) -> None:
        self.patterns = patterns
        self.shares: defaultdict[str, float] = defaultdict(float)
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._row_counts: defaultdict[str, int] = defaultdict(int)

    def add(self, tile: MapRows) -> None:
        for name, cells in self.patterns.get_rows(tile.rows).items():
            weight = (tile.weights * cells).sum(-1)
            has_keys = (cells & tile.allowed).any(-1)
            self.shares[name] += float(weight.sum()) / len(self.patterns.tokens)
            if name == "syntactic":
                weight, has_keys = subtract_uniform(weight, cells, tile.allowed)
            self._sums[name] += float(weight[has_keys].sum())
            self._row_counts[name] += int(has_keys.sum())

    def compute_scores(self) -> dict[str, float | None]:
        """The mean weight over the rows that have keys of the kind; None without any such row."""
        return {
            name: total / self._row_counts[name] if self._row_counts[name] else None
            for name, total in self._sums.items()
        }


class _EntropySums:
    """Sums, over tiles, the entropy of the rows and its ratio to that of a uniform row."""

    def __init__(self) -> None:
        self.entropy_sum = 0.0
        self._ratio_sum = 0.0
        self._row_count = 0

    def add(self, tile: MapRows) -> None:
        entropy = torch.special.entr(tile.weights).sum(-1)
        key_counts = tile.allowed.sum(-1)
        has_choice = key_counts > 1
        self.entropy_sum += float(entropy.sum())
        self._ratio_sum += float((entropy / key_counts.clamp_min(2).log())[has_choice].sum())
        self._row_count += int(has_choice.sum())

    def compute_uniformity(self) -> float | None:
        """The mean ratio over the rows with several allowed keys; None without any such row."""
        return self._ratio_sum / self._row_count if self._row_count else None


class _DistanceProfile:
    """Sums, over tiles, the weight and the number of allowed cells at each distance between query and key."""

    def __init__(self, count: int) -> None:
        self.distance_sum = 0.0
        self._count = count
        self._weight_sums = torch.zeros(2 * count - 1)
        self._cell_counts = torch.zeros(2 * count - 1)

    def add(self, tile: MapRows) -> None:
        distances = _compute_distances(tile)
        self.distance_sum += float((tile.weights * distances.abs()).sum())
        indices = (distances + self._count - 1).flatten()
        self._weight_sums.index_add_(0, indices, tile.weights.flatten())
        self._cell_counts.index_add_(0, indices, tile.allowed.float().flatten())

    def compute_means(self) -> Tensor:
        """The mean weight at each distance from 1 - count to count - 1."""
        return self._weight_sums / self._cell_counts.clamp_min(1)


class _Moments:
    """Sums, over tiles, the moments from which a correlation is computed."""

    def __init__(self) -> None:
        self._sums = torch.zeros(6, dtype=torch.float64)

    def add(self, tile: MapRows, similarities: Tensor) -> None:
        # a token is most similar to itself: with its own cell, every head that attends to itself would be semantic
        cells = tile.allowed & (_compute_distances(tile) != 0)
        x, y = tile.weights[cells].double(), similarities[cells].double()
        self._sums += torch.stack([torch.tensor(len(x)).double(), x.sum(), y.sum(), x @ x, y @ y, x @ y])

    def compute_correlation(self) -> float | None:
        """Pearson's correlation of weights and similarities; None where one of them is constant."""
        n, x, y, xx, yy, xy = self._sums.tolist()
        variances = (n * xx - x * x) * (n * yy - y * y)
        return None if variances <= 0 else float((n * xy - x * y) / variances**0.5)


def _compute_distances(tile: MapRows) -> Tensor:
    """Return the distance from each key to its query, ``[row, key]``; negative for later keys."""
    return tile.rows[:, None] - torch.arange(tile.weights.shape[1])


def _score_positional(tiles: Iterable[MapRows], profile: Tensor) -> float | None:
    """Compute how well the mean profile over distances predicts the rows."""
    count = (len(profile) + 1) // 2
    similarity_sum, row_count = 0.0, 0
    for tile in tiles:
        expected = profile[_compute_distances(tile) + count - 1] * tile.allowed
        expected = expected / expected.sum(-1, keepdim=True).clamp_min(1e-12)
        has_choice = tile.allowed.sum(-1) > 1
        similarity = 1 - (tile.weights - expected).abs().sum(-1) / 2
        similarity_sum += float(similarity[has_choice].sum())
        row_count += int(has_choice.sum())
    return similarity_sum / row_count if row_count else None
