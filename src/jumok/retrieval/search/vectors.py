"""Search vectors by their cosine with a question's: by exact products, or in a graph if there are very many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from jumok.errors import ArgumentError, DataError
from jumok.threads import use_threads

from .neighbour_graph import NeighbourGraph
from .ranking import check_count, select_largest

EXACT_LIMIT = 500_000  # vectors; up to here exact products take a few hundredths of a second
ROUNDING = 1e-5  # more than the rounding error of a product in float32
BLOCK_ROWS = 1024  # vectors that are converted at a time; they stay in the processor's cache


class VectorIndex:
    """Vectors of length 1, numbered from 0, that are searched by their cosine with a question's vector.

    Args:
        matrix: The vectors [number, width], float32 or float16, usually memory-mapped. They stay where they are.
        graph: A graph of neighbours of the same vectors (``build_neighbour_graph``). With it the search is
            approximate: it may miss some of the closest vectors. Without it, it is exact.

    >>> index = VectorIndex(np.eye(3, dtype=np.float32))
    >>> [(number, round(cosine, 3)) for number, cosine in index.search(np.array([0.0, 0.6, 0.8]), 2)]
    [(2, 0.8), (1, 0.6)]
    """

    def __init__(self, matrix: np.ndarray, graph: NeighbourGraph | None = None) -> None:
        if matrix.ndim != 2 or matrix.dtype not in (np.float32, np.float16):
            raise DataError(f"vectors must be float32 or float16 [number, width], not {matrix.dtype} {matrix.shape}")
        if graph is not None and len(graph) != len(matrix):
            raise DataError(f"the graph has {len(graph):,} vectors, but there are {len(matrix):,}; build it again")
        self._matrix = matrix
        self._graph = graph

    @classmethod
    def open(cls, file: str | Path, graph_file: str | Path | None = None) -> VectorIndex:
        """Open vectors that were stored with ``numpy.save``, without reading them into memory.

        Args:
            graph_file: The file of a graph of neighbours; None: the search is exact.

        Raises:
            DataError: If a file is missing or damaged.
        """
        try:
            matrix = np.load(file, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            if _is_empty_matrix(file):  # a file without vectors cannot be mapped
                matrix = np.load(file, allow_pickle=False)
            else:
                raise DataError(f"the vectors in {file} are damaged ({error}); build the index again") from error
        except OSError as error:
            raise DataError(f"the vectors in {file} cannot be read ({error}); build the index again") from error
        graph = None if graph_file is None else NeighbourGraph.open(graph_file)
        return cls(matrix, graph)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._matrix)

    @property
    def is_exact(self) -> bool:
        """True if a search compares all vectors."""
        return self._graph is None

    def search(self, vector: np.ndarray, count: int) -> list[tuple[int, float]]:
        """Return the vectors with the largest cosines as (number, cosine), best first.

        Of equal cosines, the smaller number comes first.

        Args:
            vector: The question's vector [width], of length 1.

        Raises:
            ArgumentError: If the vector does not fit, or ``count`` is not a positive integer.
            DataError: If a stored vector is not finite.
        """
        check_count(count)
        vector = self._check_vector(vector)
        if not len(self):
            return []
        if self._graph is None:
            cosines = self._multiply_all(vector)
            last = len(self) - min(count, len(self))
            numbers = np.flatnonzero(cosines >= np.partition(cosines, last)[last] - ROUNDING)
        else:
            numbers = np.sort(self._graph.search(vector, min(2 * count, len(self))))
        ranked = select_largest(self._multiply_exactly(vector, numbers), count)
        return [(int(numbers[position]), cosine) for position, cosine in ranked]

    def score(self, vector: np.ndarray, numbers: Sequence[int]) -> list[float]:
        """Return the cosines of some vectors with the question's.

        Args:
            vector: The question's vector [width], of length 1.

        Raises:
            ArgumentError: If the vector does not fit, or there is no vector of such a number.
        """
        vector = self._check_vector(vector)
        for number in numbers:
            if not 0 <= number < len(self):
                raise ArgumentError(f"there is no vector {number}; the index has {len(self):,} vectors")
        return self._multiply_exactly(vector, np.asarray(numbers, dtype=np.int64)).tolist()

    def _check_vector(self, vector: np.ndarray) -> np.ndarray:
        width = self._matrix.shape[1]
        if vector.shape != (width,) and len(self):
            raise ArgumentError(f"the vector must have {width} numbers, like the stored ones, not {vector.shape}")
        if not np.isfinite(vector).all():
            raise ArgumentError("the vector of the question must be finite; it contains NaN or infinity")
        return vector.astype(np.float32)

    def _multiply_all(self, vector: np.ndarray) -> np.ndarray:
        """Return the products with all vectors in float32; those of equal vectors may differ in the last digit."""
        cosines = np.empty(len(self), dtype=np.float32)
        if self._matrix.dtype == np.float32:
            np.matmul(self._matrix, vector, out=cosines)
        else:
            self._multiply_halves(vector, cosines)
        self._check_finite(cosines, np.arange(len(self)))
        return cosines

    def _multiply_halves(self, vector: np.ndarray, cosines: np.ndarray) -> None:
        """Write the products of float16 vectors, which numpy multiplies and converts slowly, into ``cosines``."""
        factor, products = torch.from_numpy(vector), torch.from_numpy(cosines)
        converted = torch.empty(BLOCK_ROWS, len(vector))
        with use_threads(1):  # a block is too small for several threads
            for start in range(0, len(self), BLOCK_ROWS):
                # a copy: torch accepts no read-only array
                halves = torch.from_numpy(np.array(self._matrix[start : start + BLOCK_ROWS]))
                rows = converted[: len(halves)].copy_(halves)
                torch.mv(rows, factor, out=products[start : start + len(halves)])

    def _multiply_exactly(self, vector: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return the products with some vectors in float64, each summed in the same order, so that ties are exact."""
        cosines = np.empty(len(numbers))
        for start in range(0, len(numbers), BLOCK_ROWS):
            rows = self._matrix[numbers[start : start + BLOCK_ROWS]].astype(np.float64)
            cosines[start : start + BLOCK_ROWS] = (rows * vector).sum(axis=1)
        self._check_finite(cosines, numbers)
        return cosines

    def _check_finite(self, cosines: np.ndarray, numbers: np.ndarray) -> None:
        is_finite = np.isfinite(cosines)
        if not is_finite.all():
            number = int(numbers[np.argmin(is_finite)])
            raise DataError(f"vector {number:,} of the index contains NaN or infinity; build the index again")


def _is_empty_matrix(file: str | Path) -> bool:
    try:
        return np.load(file, allow_pickle=False).size == 0
    except (OSError, ValueError):
        return False
