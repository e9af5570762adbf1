"""Retrieval: index the text files of a folder, and find the passages that fit a question."""

from .passage import Hit, Passage

__all__ = ["Hit", "Passage"]
