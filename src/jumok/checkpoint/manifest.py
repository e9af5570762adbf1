"""SHA-256 of every file of a folder, written last: a flipped or missing byte is found on load and named."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jumok.errors import CheckpointError

from .tensor_files import read_json, safe_join

MANIFEST_FILE = "manifest.json"


def compute_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path) -> None:
    files = {one.name: {"sha256": compute_sha256(one), "bytes": one.stat().st_size} for one in sorted(folder.iterdir())}
    path = folder / MANIFEST_FILE
    path.write_text(json.dumps({"files": files}, indent=1), encoding="utf-8")
    _flush(path)


def verify_manifest(folder: Path) -> None:
    """Raise CheckpointError naming the first file that is not as it was written."""
    listed = read_json(folder, MANIFEST_FILE).get("files")
    if not isinstance(listed, dict) or not listed:
        raise CheckpointError(f"{MANIFEST_FILE} in {folder.name} lists no files; the checkpoint is damaged")
    for name, told in listed.items():
        path = safe_join(folder, name)
        if not path.is_file():
            raise CheckpointError(f"{name} is missing from {folder}")
        wanted = told if isinstance(told, dict) else {}
        if path.stat().st_size != wanted.get("bytes"):
            raise CheckpointError(f"{name} in {folder} has {path.stat().st_size:,} bytes, not {wanted.get('bytes')}")
        if compute_sha256(path) != wanted.get("sha256"):
            raise CheckpointError(f"{name} in {folder} is not as it was written (its SHA-256 differs); it is damaged")


@contextmanager
def create_folder_atomically(target: Path) -> Iterator[Path]:
    """A folder beside ``target`` to write into; renamed into its place when all went well, gone when not."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target} is there already; choose another folder, or remove it first")
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield made
        for path in made.iterdir():
            path.chmod(0o666 & ~_umask())  # safetensors leaves its files to their owner alone, whatever was asked for
            _flush(path)
        made.chmod(0o777 & ~_umask())
        os.replace(made, target)
        _flush(target.parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _umask() -> int:
    """What new files must not be open to; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _flush(path: Path) -> None:
    """Onto the disk, not only into the kernel's memory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
