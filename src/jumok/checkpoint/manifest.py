"""Write and verify a folder's manifest: the SHA-256 of every file, so that loading detects damaged files."""

from __future__ import annotations

import json
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
