"""Describe heads: which kind they are, whether their weights are valid, and tables of them for printing."""
