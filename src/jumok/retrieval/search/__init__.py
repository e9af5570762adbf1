"""Search texts by their words (BM25), by their meaning (vectors), or by both. This package does not know folders."""
