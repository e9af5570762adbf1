"""Describe the user's data files, so that a resumed run notices when they have changed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from jumok.data.readers.file_list import list_files

MAX_HASHED_BYTES = 16 * 2**30  # the content of more data is not hashed; then names, sizes and times decide


def describe_files(data: str | None) -> dict[str, Any] | None:
    """Return the number, size and hashes of data files; None if the data is not a file or folder on this machine."""
    if data is None or not Path(data).exists():
        return None
    files = _list_regular_files(data)
    size = sum(path.stat().st_size for path in files)
    return {
        "files": len(files),
        "bytes": size,
        "stamps": _hash_stamps(Path(data), files),
        "sha256": _hash_content(Path(data), files) if size <= MAX_HASHED_BYTES else None,
    }


def describe_change(recorded: dict[str, Any] | None, data: str | None) -> str | None:
    """Return how data files differ from their recorded description; None if they are equal or were not recorded.

    Args:
        recorded: What ``describe_files`` returned when the run started.
    """
    if recorded is None or data is None:
        return None
    path = Path(data)
    if not path.exists():
        return f"{data} no longer exists"
    files = _list_regular_files(data)
    if _hash_stamps(path, files) == recorded.get("stamps"):
        return None
    current = describe_files(data)
    assert current is not None
    if current["sha256"] is not None and current["sha256"] == recorded.get("sha256"):
        return None  # the files were copied or touched, but have the same content
    before, now = (f"files: {facts.get('files')}, bytes: {facts.get('bytes')}" for facts in (recorded, current))
    return f"{data} has changed" + (f" ({before}; now {now})" if before != now else "")


def _list_regular_files(path: str) -> list[Path]:
    """List the files that can be hashed: a pipe would block, and be empty when the recipe reads it."""
    return [file for file in list_files(path) if file.is_file()]


def _hash_stamps(root: Path, files: list[Path]) -> str:
    """Return a hash of names, sizes and times, which is computed without reading the files."""
    digest = hashlib.sha256()
    for path in files:
        stat = path.stat()
        digest.update(
            f"{path.relative_to(root)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode(errors="surrogateescape")
        )
    return digest.hexdigest()


def _hash_content(root: Path, files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(root)}\0".encode(errors="surrogateescape"))
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
