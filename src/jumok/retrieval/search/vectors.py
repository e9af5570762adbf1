"""Search vectors by their cosine with a question's: by exact products, or in a graph if there are very many."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from jumok.errors import ArgumentError, DataError
from jumok.threads import use_threads

from .ranking import check_count, select_largest

EXACT_LIMIT = 500_000  # vectors; up to here exact products take a few hundredths of a second
ROUNDING = 1e-5  # more than the rounding error of a product in float32
BLOCK_ROWS = 1024  # vectors that are converted at a time; they stay in the processor's cache
CONNECTIONS = 32  # neighbours of a vector in the graph; more find more of the exact neighbours
BUILD_CANDIDATES = 128  # candidates among which the neighbours of a new vector are chosen
SEARCH_CANDIDATES = 256  # candidates that a search keeps
ADDED_ROWS = 16_384  # vectors that are added to a graph at a time


class VectorIndex:
    """Vectors of length 1, numbered from 0, that are searched by their cosine with a question's vector.

    A text that the embedding model cannot read has a vector of zeros, which is never found. The matrix [number, width],
    float32 or float16, is usually memory-mapped. With a graph of its neighbours the search is approximate: it may miss
    some of the closest vectors. Without it, it is exact.

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
        """Open vectors that were stored with ``numpy.save``, and perhaps their graph, without reading them."""
        try:
            matrix = np.load(file, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            try:
                matrix = np.load(file, allow_pickle=False)
            except (OSError, ValueError):
                matrix = None
            if matrix is None or matrix.size:  # a file without vectors cannot be mapped
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
        results = [(int(numbers[position]), cosine) for position, cosine in ranked]
        return [(number, cosine) for number, cosine in results if self._matrix[number].any()]

    def score(self, vector: np.ndarray, numbers: Sequence[int]) -> list[float]:
        """Return the cosines of some vectors with the question's."""
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
            # numpy multiplies and converts float16 slowly
            factor, products = torch.from_numpy(vector), torch.from_numpy(cosines)
            converted = torch.empty(BLOCK_ROWS, len(vector))
            with use_threads(1):  # a block is too small for several threads
                for start in range(0, len(self), BLOCK_ROWS):
                    # a copy: torch accepts no read-only array
                    halves = torch.from_numpy(np.array(self._matrix[start : start + BLOCK_ROWS]))
                    rows = converted[: len(halves)].copy_(halves)
                    torch.mv(rows, factor, out=products[start : start + len(halves)])
        self._check_finite(cosines, np.arange(len(self)))
        return cosines

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


class NeighbourGraph:
    """A stored graph of neighbouring vectors."""

    def __init__(self, index: Any) -> None:
        self._index = index

    @classmethod
    def build(cls, file: str | Path, matrix: np.ndarray) -> NeighbourGraph:
        """Build the graph of vectors [number, width] of length 1, store it in a file and open it."""
        index = _import_usearch().Index(
            ndim=matrix.shape[1],
            metric="ip",  # the vectors have length 1, so their product is the cosine
            dtype="f16",
            connectivity=CONNECTIONS,
            expansion_add=BUILD_CANDIDATES,
        )
        for start in range(0, len(matrix), ADDED_ROWS):
            block = np.asarray(matrix[start : start + ADDED_ROWS], dtype=np.float32)
            # one thread: the graph depends on the order in which vectors are added
            index.add(np.arange(start, start + len(block)), block, threads=1)
        index.save(str(file))
        return cls.open(file)

    @classmethod
    def open(cls, file: str | Path) -> NeighbourGraph:
        """Open a stored graph without reading it into memory."""
        usearch = _import_usearch()
        try:
            index = usearch.Index.restore(str(file), view=True)
        except Exception as error:  # usearch raises RuntimeError and others for damaged files
            raise DataError(f"the graph in {file} is damaged ({error}); build the index again") from error
        if index is None:
            raise DataError(f"there is no graph in {file}; build the index again")
        index.expansion_search = SEARCH_CANDIDATES
        return cls(index)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._index)

    def search(self, vector: np.ndarray, count: int) -> np.ndarray:
        """Return the numbers of vectors that have large products with a vector, at most ``count``."""
        return np.asarray(self._index.search(vector, count, threads=1).keys, dtype=np.int64)


def is_usearch_installed() -> bool:
    """Return True if graphs can be built and searched: if usearch is installed."""
    return find_spec("usearch") is not None


def _import_usearch() -> Any:
    try:
        import usearch.index
    except ImportError:
        raise ArgumentError(
            'searching very many passages needs usearch; install it with: pip install "jumok[large-retrieval]"'
        ) from None
    return usearch.index
