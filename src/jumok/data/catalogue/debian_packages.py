"""Debian packages: the commands that download one without root, and a reader for the files inside it."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from jumok.data.catalogue.entry import Archive
from jumok.errors import FetchError

MAGIC = b"!<arch>\n"
HEADER_SIZE = 60  # of each member: name (16), time (12), owner (6), group (6), mode (8), size (10), end (2)
FILES_MEMBER = "data.tar.xz"


class PackageError(Exception):
    """A .deb file cannot be read."""


def build_apt_commands(archive: Archive, scratch: Path) -> list[list[str]]:
    """Return the commands that download a Debian package into the folder that they run in.

    apt-get uses the mirrors that the system is configured for, and verifies signatures. Nothing outside ``scratch`` is
    written, so root is not needed. If the system's package lists do not contain the version, because they are old or
    were removed, as in many container images, new lists are downloaded into ``scratch`` first.
    """
    client = shutil.which("apt-get")
    if client is None:
        raise FetchError(
            f"apt-get is needed to download {archive.requirement}, which is a Debian package; "
            "use Debian, or a container with it"
        )
    settings = [f"-oDir::Cache={scratch / 'apt'}", "-qq"]
    (scratch / "apt").mkdir()
    commands = []
    if not _is_listed(archive, settings):
        lists = scratch / "lists"
        (lists / "partial").mkdir(parents=True)
        settings.append(f"-oDir::State::lists={lists}")
        commands.append([client, *settings, "update"])
    return [*commands, [client, *settings, "download", archive.requirement]]


def _is_listed(archive: Archive, settings: list[str]) -> bool:
    """Return whether the system's package lists contain the version."""
    client = shutil.which("apt-cache")
    if client is None:
        return False
    command = [client, *settings, "show", archive.requirement]
    completed = subprocess.run(command, capture_output=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    return f"Version: {archive.version}\n".encode() in completed.stdout


@contextlib.contextmanager
def open_package_files(path: Path) -> Iterator[tarfile.TarFile]:
    """Open the archive of the files in a .deb file for reading from its start to its end."""
    with path.open("rb") as file:
        _seek_files_member(file, path.stat().st_size)
        with tarfile.open(fileobj=file, mode="r|xz") as tar:
            yield tar


def _seek_files_member(file: io.BufferedReader, file_size: int) -> None:
    """Set the position of a .deb file to the start of the archive of files."""
    if file.read(len(MAGIC)) != MAGIC:
        raise PackageError("it is not a Debian package")
    position = len(MAGIC)
    while position < file_size:
        file.seek(position)
        header = file.read(HEADER_SIZE)
        name, size = header[:16].decode("latin-1").strip().rstrip("/"), header[48:58].strip()
        if header[58:] != b"`\n" or not size.isdigit():
            raise PackageError(f"the header at byte {position:,} of the Debian package is damaged")
        if name == FILES_MEMBER:
            return
        position += HEADER_SIZE + int(size) + int(size) % 2
    raise PackageError(f"the Debian package has no {FILES_MEMBER}")
