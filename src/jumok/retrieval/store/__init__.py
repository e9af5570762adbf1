"""The stored index of a folder: in the cache, incremental, safe against crashes, damage and several processes."""

from .folder_index import (
    FileChanges,
    FolderIndex,
    IndexStatus,
    StoredIndex,
    inspect_index,
    list_indexes,
    measure_folder,
    open_index,
    remove_index,
)

__all__ = [
    "FileChanges",
    "FolderIndex",
    "IndexStatus",
    "StoredIndex",
    "inspect_index",
    "list_indexes",
    "measure_folder",
    "open_index",
    "remove_index",
]
