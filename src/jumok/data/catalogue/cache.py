"""Keep catalogue entries in the cache folder: locate, verify, download and remove them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from jumok.data.catalogue import fetch, unpack
from jumok.data.catalogue.entries import Entry, find_entry, format_megabytes
from jumok.errors import ArgumentError, FetchError
from jumok.files import compute_sha256, read_limited, write_atomically
from jumok.reporting import Report

MANIFEST = "manifest.json"
VERIFIED = "verified.json"  # the sizes and times of the files that were hashed
MAX_MANIFEST_BYTES = 64 * 2**20


def get_cache_folder() -> Path:
    """Return the cache folder: $JUMOK_CACHE, else $XDG_CACHE_HOME/jumok, else ~/.cache/jumok. It may not exist yet."""
    jumok_cache = os.environ.get("JUMOK_CACHE")
    xdg_cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        if jumok_cache:
            return Path(jumok_cache).expanduser().absolute()
        # the XDG specification says to ignore a path that is not absolute
        return (Path(xdg_cache) if os.path.isabs(xdg_cache) else Path.home() / ".cache") / "jumok"
    except RuntimeError as error:
        raise ArgumentError("the cache needs a home folder, and there is none; set JUMOK_CACHE to a folder") from error


def locate_entry(name: str, *, verify: bool = False) -> Path | None:
    """Return the folder of a complete cached entry. Changed files are hashed; with ``verify``, all are."""
    return get_cache_folder() / name if find_damage(name, verify=verify) is None else None


def find_damage(name: str, *, verify: bool = True) -> str | None:
    """Check a cached entry."""
    entry = find_entry(name)
    folder = get_cache_folder() / name

    try:
        manifest = json.loads(read_limited(folder / MANIFEST, MAX_MANIFEST_BYTES))
        same_version = manifest["pins"] == entry.pins
        sizes = {path: int(size) for path, size in manifest["files"].items()}
    except FileNotFoundError:
        return f"{name} is not in the cache"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"the manifest of {name} in the cache cannot be read"
    if not same_version:
        return f"{name} is in the cache, but in a different version"

    stamps: dict[str, list[int]] = {}
    for path, size in sizes.items():
        try:
            facts = (folder / path).stat()
        except OSError:
            return f"{name} is damaged: {path} is missing"
        if facts.st_size != size:
            return f"{name} is damaged: {path} has {facts.st_size:,} bytes instead of {size:,}"
        stamps[path] = [facts.st_size, facts.st_mtime_ns]

    if verify or not _was_verified(folder, stamps):
        hashes = {path: compute_sha256(folder / path) for path in sizes}
        for file_set in entry.file_sets:
            fault = file_set.find_fault(hashes)
            if fault is not None:
                return f"{name} is damaged: {fault}"
        with contextlib.suppress(OSError):  # a cache that cannot be written is hashed at every use
            write_atomically(folder / VERIFIED, json.dumps(stamps))
    return None


def _was_verified(folder: Path, stamps: dict[str, list[int]]) -> bool:
    """Return True if the files were hashed since their sizes and times last changed."""
    try:
        return bool(json.loads(read_limited(folder / VERIFIED, MAX_MANIFEST_BYTES)) == stamps)
    except (OSError, ValueError, RecursionError):
        return False


def download_entry(name: str, report: Report = lambda line: None) -> Path:
    """Return the folder of an entry; download and verify it first if it is not in the cache.

    A download that fails, is interrupted or has unexpected bytes leaves no files behind.
    """
    entry = find_entry(name)
    folder = locate_entry(name)
    if folder is not None:
        return folder

    cache = get_cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _lock_folder(cache, report) as locked:
            for leftover in cache.glob(".*.part") if locked else ():  # of processes that were killed
                shutil.rmtree(leftover, ignore_errors=True)
            folder = locate_entry(name)  # another process may have downloaded it while this one waited
            return folder if folder is not None else _download(entry, cache, report)
    except OSError as error:
        raise FetchError(f"{name} cannot be stored in {cache}: {error.strerror or error}") from error


def remove_entry(name: str) -> bool:
    """Remove an entry from the cache."""
    find_entry(name)
    cache = get_cache_folder()
    folder = cache / name
    if not (folder.exists() or folder.is_symlink()):
        return False

    with _lock_folder(cache, lambda line: None):
        removed = _make_temporary_path(cache, name)
        folder.rename(removed)  # atomic: an interrupted removal leaves no half-empty entry
        if removed.is_symlink():
            removed.unlink()
        else:
            shutil.rmtree(removed)
    return True


def _download(entry: Entry, cache: Path, report: Report) -> Path:
    """Download, verify and unpack all archives of an entry, then move its folder into the cache."""
    free = shutil.disk_usage(cache).free
    # the client may keep a second copy of the archive while it downloads
    required = 2 * max(archive.size for archive in entry.archives) + entry.size
    if free < required:
        raise FetchError(
            f"{entry.name} needs {format_megabytes(required)} in {cache}, but only {format_megabytes(free)} are free"
        )
    folder = cache / entry.name
    if entry.terms:
        report(f"{entry.name}: downloading it accepts its terms of use, {entry.terms}; they are kept beside it")
    work = _make_temporary_path(cache, entry.name)
    try:
        unpacked = work / "unpacked"
        unpacked.mkdir(parents=True)
        sizes: dict[str, int] = {}
        for archive in entry.archives:
            path = fetch.download_archive(entry.name, archive, work, report)
            sizes |= unpack.unpack_archive(entry.name, archive, path, unpacked)
        for joined in entry.joined:
            parts = sorted(path.relative_to(unpacked).as_posix() for path in unpacked.glob(joined.parts))
            sizes[joined.local] = sum(sizes.pop(part) for part in parts)
            unpack.join_parts(entry.name, joined, [unpacked / part for part in parts], unpacked / joined.local)

        # written last: a folder without a manifest is not an entry
        facts = {"name": entry.name, "packages": entry.packages, "licence": entry.licence, "pins": entry.pins}
        manifest = json.dumps(facts | {"files": dict(sorted(sizes.items()))}, indent=1, ensure_ascii=False) + "\n"
        (unpacked / MANIFEST).write_text(manifest, encoding="utf-8")
        if folder.exists() or folder.is_symlink():  # damaged, or of another version
            folder.rename(work / "old")
        unpacked.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)

    report(f"{entry.name}: verified, {format_megabytes(entry.size)} in {folder}")
    return folder


def _make_temporary_path(cache: Path, name: str) -> Path:
    return cache / f".{name}-{uuid.uuid4().hex[:12]}.part"


@contextlib.contextmanager
def _lock_folder(cache: Path, report: Report) -> Iterator[bool]:
    """Let one process at a time change the cache folder; others wait.

    Yields False if folders cannot be locked. This is safe, because each process works in its own temporary folder.
    """
    if sys.platform == "win32":  # folders cannot be locked
        yield False
        return
    import fcntl

    handle = os.open(cache, os.O_RDONLY)
    locked = True
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is downloading into this cache; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # the file system does not support locks
            locked = False
        yield locked
    finally:
        os.close(handle)
