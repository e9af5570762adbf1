"""Search texts by their words (BM25), by their meaning (vectors), or by both. This package does not know folders."""

from .bm25 import BM25Index
from .embedding import check_embedder, embed_passages, embed_question
from .fusion import fuse
from .neighbour_graph import NeighbourGraph, is_usearch_installed
from .search import METHODS, SearchResult, search
from .tokenize import TERMS_VERSION, split_terms
from .vectors import EXACT_LIMIT, VectorIndex

__all__ = [
    "EXACT_LIMIT",
    "METHODS",
    "TERMS_VERSION",
    "BM25Index",
    "NeighbourGraph",
    "SearchResult",
    "VectorIndex",
    "check_embedder",
    "embed_passages",
    "embed_question",
    "fuse",
    "is_usearch_installed",
    "search",
    "split_terms",
]
