"""Read untrusted files with a limit, write files and folders atomically, and print to streams that may be closed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jumok.errors import ArgumentError, CheckpointError


def read_limited(path: Path, limit: int) -> bytes:
    """Return the content of a regular file. A pipe would block, and a device such as /dev/zero never ends."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise ArgumentError(f"{path} is not a regular file; it is not read")
        content = file.read(limit + 1)
    if len(content) > limit:
        size = max(facts.st_size, len(content))
        raise ArgumentError(f"{path} has {size:,} bytes; the limit for this file is {limit:,}")
    return content


def compute_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush_to_disk(path: Path) -> None:
    """Write a file or folder to the disk, not only into the kernel's buffers."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside a file; what is written there replaces the file, and an error leaves the old one.
    A device or a pipe cannot be replaced, and is yielded itself."""
    if path.exists() and not path.is_file():
        yield path
        return
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        yield temporary
        flush_to_disk(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file: readers see the old content or the new content, and a full disk leaves the old."""
    with replace_file(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
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


class LossyStream:
    """A text stream that drops what cannot be written, because the reader of a pipe has ended or the disk is full."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, if that is possible."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts, if that is possible."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Flush the stream, if that is possible."""
        with contextlib.suppress(OSError):
            self._stream.flush()
