"""List the catalogue's entries and find one by name."""

from __future__ import annotations

import difflib
import functools
from importlib import resources

from jumok.data.catalogue.catalogue_file import parse_catalogue
from jumok.data.catalogue.entry import Entry
from jumok.errors import ArgumentError


@functools.cache
def list_entries() -> tuple[Entry, ...]:
    """Return all entries of the catalogue."""
    text = resources.files("jumok.data.catalogue").joinpath("catalogue.toml").read_text(encoding="utf-8")
    return parse_catalogue(text)


def find_entry(name: str) -> Entry:
    """Return the entry with this name.

    >>> find_entry("smollm2").licence
    'Apache-2.0'
    """
    entries = {entry.name: entry for entry in list_entries()}
    if name in entries:
        return entries[name]

    if name in ("tiny", "translator"):
        raise ArgumentError(f"{name} comes with the package: it needs no download and cannot be removed")
    similar = [other for other in entries if name and (name.lower() in other or other in name.lower())]
    similar = similar or difflib.get_close_matches(name.lower(), entries, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(similar)}?" if similar else f"choose one of {', '.join(entries)}"
    raise ArgumentError(f"unknown catalogue entry {name!r}; {hint}")
