"""Write and verify a folder's manifest: the SHA-256 of every file, so that loading detects damaged files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jumok.errors import CheckpointError
from jumok.files import compute_sha256, flush_to_disk

from .tensor_files import read_json, safe_join

MANIFEST_FILE = "manifest.json"


def write_manifest(folder: Path) -> None:
    """Write the size and the SHA-256 of every file in a folder into its manifest."""
    files = {
        path.name: {"sha256": compute_sha256(path), "bytes": path.stat().st_size} for path in sorted(folder.iterdir())
    }
    path = folder / MANIFEST_FILE
    path.write_text(json.dumps({"files": files}, indent=1), encoding="utf-8")
    flush_to_disk(path)


def verify_manifest(folder: Path) -> None:
    """Compare every file with the manifest."""
    files = read_json(folder, MANIFEST_FILE).get("files")
    if not isinstance(files, dict) or not files:
        raise CheckpointError(f"{MANIFEST_FILE} in {folder.name} lists no files; the checkpoint is damaged")
    for name, entry in files.items():
        path = safe_join(folder, name)
        if not path.is_file():
            raise CheckpointError(f"{name} is missing from {folder}")
        expected = entry if isinstance(entry, dict) else {}
        size = path.stat().st_size
        if size != expected.get("bytes"):
            raise CheckpointError(f"{name} in {folder} has {size:,} bytes instead of {expected.get('bytes')}")
        if compute_sha256(path) != expected.get("sha256"):
            raise CheckpointError(f"{name} in {folder} is damaged: its SHA-256 is not the one in {MANIFEST_FILE}")


@contextmanager
def create_folder_atomically(target: Path) -> Iterator[Path]:
    """Yield a temporary folder to write into. It is renamed to ``target`` on success and removed on failure."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target} already exists; choose another folder, or remove it first")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield temporary
        for path in temporary.iterdir():
            path.chmod(0o666 & ~_read_umask())  # safetensors writes files that only their owner can read
            flush_to_disk(path)
        temporary.chmod(0o777 & ~_read_umask())
        os.replace(temporary, target)
        flush_to_disk(target.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _read_umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
