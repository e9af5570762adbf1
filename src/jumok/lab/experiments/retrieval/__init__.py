"""Experiment ``retrieval``: sparse attention, linear attention and retrieval, three ways past long contexts."""
