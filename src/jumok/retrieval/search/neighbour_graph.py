"""A graph of neighbouring vectors for approximate search (HNSW; Malkov and Yashunin 2018). usearch builds it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from jumok.errors import ArgumentError, DataError

CONNECTIONS = 32  # neighbours of a vector in the graph; more find more of the exact neighbours
BUILD_CANDIDATES = 128  # candidates among which the neighbours of a new vector are chosen
SEARCH_CANDIDATES = 256  # candidates that a search keeps
BLOCK_ROWS = 16_384  # vectors that are added at a time


class NeighbourGraph:
    """A stored graph of neighbouring vectors."""

    def __init__(self, index: Any) -> None:
        self._index = index

    @classmethod
    def build(cls, file: str | Path, matrix: np.ndarray) -> NeighbourGraph:
        """Build the graph of vectors, store it in a file and open it.

        Args:
            matrix: The vectors [number, width], of length 1.

        Raises:
            ArgumentError: If usearch is not installed.
        """
        index = _import_usearch().Index(
            ndim=matrix.shape[1],
            metric="ip",  # the vectors have length 1, so their product is the cosine
            dtype="f16",
            connectivity=CONNECTIONS,
            expansion_add=BUILD_CANDIDATES,
        )
        for start in range(0, len(matrix), BLOCK_ROWS):
            block = np.asarray(matrix[start : start + BLOCK_ROWS], dtype=np.float32)
            # one thread: the graph depends on the order in which vectors are added
            index.add(np.arange(start, start + len(block)), block, threads=1)
        index.save(str(file))
        return cls.open(file)

    @classmethod
    def open(cls, file: str | Path) -> NeighbourGraph:
        """Open a stored graph without reading it into memory.

        Args:
            file: The file that ``build`` wrote.

        Raises:
            ArgumentError: If usearch is not installed.
            DataError: If the file is missing or damaged.
        """
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
        """Return the numbers of vectors that have large products with a vector, at most ``count``.

        Args:
            vector: The question's vector [width], of length 1.
        """
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
