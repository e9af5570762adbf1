"""The stored index of a folder: in the cache, incremental, safe against crashes, damage and several processes."""

from .folder_index import FolderIndex, open_index
from .index_status import FileChanges, IndexStatus

__all__ = ["FileChanges", "FolderIndex", "IndexStatus", "open_index"]
