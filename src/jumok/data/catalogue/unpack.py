"""Extract the expected files from a downloaded archive, verify each, and write nothing else."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jumok.data.catalogue.entries import Archive, FileSet, Joined
from jumok.errors import FetchError

MAX_ARCHIVE_BYTES = 1 << 30  # every catalogue archive is smaller when unpacked
DEBIAN_MAGIC = b"!<arch>\n"
DEBIAN_HEADER = 60  # bytes of each member: name (16), time (12), owner (6), group (6), mode (8), size (10), end (2)
DEBIAN_FILES = "data.tar.xz"


class _PackageError(Exception):
    """A .deb file cannot be read."""


_READ_ERRORS = (
    zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, _PackageError, EOFError,
    RuntimeError,
)  # fmt: skip


class _UnsafeArchiveError(Exception):
    """The archive contains unsafe members or unexpected files."""


def unpack_archive(name: str, archive: Archive, path: Path, target: Path) -> dict[str, int]:
    """Extract the files of a verified archive and verify each."""
    sizes: dict[str, int] = {}
    hashes: dict[str, str] = {}
    try:
        for inner_archive in sorted({file_set.inner_archive for file_set in archive.file_sets}):
            file_sets = [file_set for file_set in archive.file_sets if file_set.inner_archive == inner_archive]
            container = path
            if inner_archive:
                container = path.with_name("inner.tar.gz")
                for source, open_member in _iterate_members(path):
                    if source == inner_archive:
                        with open_member() as file:
                            _copy_file(file, container, MAX_ARCHIVE_BYTES, source)
                        break
                else:
                    raise _UnsafeArchiveError(f"the archive does not contain {inner_archive}")
            for local, size, sha256 in _extract_file_sets(container, file_sets, target):
                sizes[local] = size
                hashes[local] = sha256
    except _READ_ERRORS as error:
        raise FetchError(f"{name} was rejected: its archive cannot be read ({error})") from error
    except _UnsafeArchiveError as error:
        raise FetchError(f"{name} was rejected: {error}; nothing was kept") from error

    for file_set in archive.file_sets:
        fault = file_set.find_fault(hashes)
        if fault is not None:
            raise FetchError(f"{name} was rejected: {fault}; nothing was kept")
    return sizes


def join_parts(name: str, joined: Joined, parts: Sequence[Path], target: Path) -> None:
    """Join verified parts to one file, verify it, and delete the parts."""
    digest = hashlib.sha256()
    with target.open("xb") as output:
        for part in parts:
            with part.open("rb") as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
                    output.write(chunk)
            part.unlink()
    if digest.hexdigest() != joined.sha256:
        raise FetchError(f"{name} was rejected: {joined.local} does not have the expected SHA-256; nothing was kept")


def _extract_file_sets(path: Path, file_sets: Sequence[FileSet], target: Path) -> Iterator[tuple[str, int, str]]:
    """Extract all files of the sets; yield the local path, size and SHA-256 of each."""
    extracted: set[str] = set()
    remaining = {file_set: file_set.size for file_set in file_sets}

    for source, open_member in _iterate_members(path):
        for file_set in file_sets:
            local = file_set.get_local_path(source)
            if local is None:
                continue
            if local in extracted:
                raise _UnsafeArchiveError(f"the archive contains {source} twice")

            with open_member() as file:
                size, sha256 = _copy_file(file, target / local, remaining[file_set], source)
            extracted.add(local)
            remaining[file_set] -= size
            yield local, size, sha256


def _copy_file(file: io.BufferedIOBase, target: Path, limit: int, source: str) -> tuple[int, str]:
    """Copy at most `limit` bytes, because an archive can understate a file's size; return size and hash."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    size = 0
    with target.open("xb") as output:
        while chunk := file.read(1 << 20):
            size += len(chunk)
            if size > limit:
                raise _UnsafeArchiveError(f"{source} is larger than the expected {limit:,} bytes")
            digest.update(chunk)
            output.write(chunk)
    return size, digest.hexdigest()


def _iterate_members(path: Path) -> Iterator[tuple[str, Callable[[], io.BufferedIOBase]]]:
    """Yield the path of each file in an archive and a function that opens it; refuse unsafe members."""
    total = 0
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                total += info.file_size
                _check_member(info.filename, stat.S_ISLNK(info.external_attr >> 16), total)
                if not info.is_dir():
                    yield info.filename, lambda info=info: archive.open(info)  # type: ignore[misc]
    else:
        is_package = path.suffix == ".deb"
        with _open_package_files(path) if is_package else tarfile.open(path, "r:gz") as tar:
            for member in tar:
                total += member.size
                is_plain = member.isreg() or member.isdir() or (is_package and (member.issym() or member.islnk()))
                _check_member(member.name, not is_plain, total)
                if member.isreg():  # links are common in Debian packages; they are not followed
                    name = member.name.removeprefix("./")
                    yield name, lambda member=member: tar.extractfile(member)  # type: ignore[misc]


def _check_member(name: str, is_special: bool, total: int) -> None:
    """Refuse a path outside the folder, a link or device, and an archive that is too large."""
    path = name.replace("\\", "/")
    if path.startswith("/") or re.match("[A-Za-z]:", path) or ".." in path.split("/"):
        raise _UnsafeArchiveError(f"the archive contains the path {name!r}, which is outside the folder")
    if is_special:
        raise _UnsafeArchiveError(f"the archive contains {name!r}, which is a link or a device, not a file")
    if total > MAX_ARCHIVE_BYTES:
        raise _UnsafeArchiveError(f"the archive unpacks to more than {MAX_ARCHIVE_BYTES >> 30} GB")


@contextlib.contextmanager
def _open_package_files(path: Path) -> Iterator[tarfile.TarFile]:
    """Open the archive of the files in a .deb file for reading from its start to its end."""
    with path.open("rb") as file:
        if file.read(len(DEBIAN_MAGIC)) != DEBIAN_MAGIC:
            raise _PackageError("it is not a Debian package")
        name, position = "", len(DEBIAN_MAGIC)
        while name != DEBIAN_FILES:
            if position >= path.stat().st_size:
                raise _PackageError(f"the Debian package has no {DEBIAN_FILES}")
            file.seek(position)
            header = file.read(DEBIAN_HEADER)
            name, size = header[:16].decode("latin-1").strip().rstrip("/"), header[48:58].strip()
            if header[58:] != b"`\n" or not size.isdigit():
                raise _PackageError(f"the header at byte {position:,} of the Debian package is damaged")
            position += DEBIAN_HEADER + int(size) + int(size) % 2
        with tarfile.open(fileobj=file, mode="r|xz") as tar:
            yield tar
