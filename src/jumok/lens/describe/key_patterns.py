"""Tables of the keys that heads of each kind attend to, for every row of a text."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.errors import ArgumentError

LOCAL_DISTANCE = 3

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
        """Check the annotations of a text.

        Args:
            vectors: A vector for each token, or None.
        """
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
