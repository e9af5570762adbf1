"""Retrieval: index the text files of a folder, and find the passages that fit a question."""

from .passage import Hit, Passage
from .store.folder_index import FolderIndex, open_index

__all__ = ["FolderIndex", "Hit", "Passage", "open_index"]
