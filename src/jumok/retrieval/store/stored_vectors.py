"""Search the vectors of an index in which some passages have none."""

from __future__ import annotations

import numpy as np

from jumok.retrieval.search import VectorIndex


class StoredVectors(VectorIndex):
    """The vectors of an index. Passages that the embedding model cannot read have zeros, and are never found."""

    def search(self, vector: np.ndarray, count: int) -> list[tuple[int, float]]:
        """Return the vectors with the largest cosines as (number, cosine), best first, without those of zeros."""
        ranked = super().search(vector, count)
        return [(number, cosine) for number, cosine in ranked if self._matrix[number].any()]
