"""Parse and validate catalogue.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jumok.data.catalogue.entry import Archive, Client, Entry, FileSet, Kind
from jumok.errors import DataError

KINDS: dict[str, Kind] = {"model": "model", "data": "data", "tokenizer": "tokenizer"}
CLIENTS: dict[str, Client] = {"pip": "pip", "npm": "npm", "apt": "apt"}
RESERVED_NAME = "manifest.json"  # written into every cached folder


def parse_catalogue(text: str) -> tuple[Entry, ...]:
    """Parse the catalogue."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"the catalogue is not valid TOML: {error}") from error

    root = _Table(document, "the catalogue")
    entries = tuple(_parse_entry(table) for table in root.read_tables("entry"))
    root.reject_unknown_fields()

    names = [entry.name for entry in entries]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise DataError(f"the catalogue contains two entries named {duplicates[0]!r}")
    return entries


@dataclass
class _Table:
    """A TOML table whose fields are read once, with the expected type."""

    fields: Mapping[str, Any]
    description: str
    read_fields: set[str] = field(default_factory=set)

    def read_text(self, key: str, default: str | None = None) -> str:
        text = self._read(key, default)
        if not isinstance(text, str):
            raise self.make_error(f"{key} must be a string")
        return text

    def read_count(self, key: str, default: int | None = None) -> int:
        count = self._read(key, default)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise self.make_error(f"{key} must be a positive integer")
        return count

    def read_flag(self, key: str) -> bool:
        flag = self._read(key, False)
        if not isinstance(flag, bool):
            raise self.make_error(f"{key} must be true or false")
        return flag

    def read_hash(self, key: str) -> str:
        sha256 = self.read_text(key)
        if not re.fullmatch("[0-9a-f]{64}", sha256):
            raise self.make_error(f"{key} must be 64 hexadecimal digits")
        return sha256

    def read_tables(self, key: str) -> list[_Table]:
        tables = self._read(key, None)
        if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
            raise self.make_error(f"{key} must be a list of tables with at least one table")
        return [_Table(table, f"{self.description}, {key} {number}") for number, table in enumerate(tables, 1)]

    def reject_unknown_fields(self) -> None:
        unknown = sorted(self.fields.keys() - self.read_fields)
        if unknown:
            raise self.make_error(f"unknown field {unknown[0]!r}")

    def make_error(self, message: str) -> DataError:
        return DataError(f"{self.description}: {message}")

    def _read(self, key: str, default: str | int | bool | None) -> Any:
        self.read_fields.add(key)
        if key not in self.fields and default is None:
            raise self.make_error(f"the field {key!r} is missing")
        return self.fields.get(key, default)


def _parse_entry(table: _Table) -> Entry:
    name = table.read_text("name")
    if not re.fullmatch("[a-z0-9][a-z0-9-]*", name):
        raise table.make_error(f"the name {name!r} must consist of lower-case letters, digits and hyphens")

    kind = table.read_text("kind")
    if kind not in KINDS:
        raise table.make_error(f"unknown kind {kind!r}; choose one of {', '.join(KINDS)}")

    entry = Entry(
        name=name,
        kind=KINDS[kind],
        licence=table.read_text("licence"),
        english=table.read_text("english"),
        korean=table.read_text("korean"),
        archives=tuple(_parse_archive(archive) for archive in table.read_tables("archive")),
    )
    table.reject_unknown_fields()
    _reject_overlapping_paths(entry, table)
    return entry


def _parse_archive(table: _Table) -> Archive:
    client = table.read_text("client")
    if client not in CLIENTS:
        raise table.make_error(f"unknown client {client!r}; choose one of {', '.join(CLIENTS)}")

    archive = Archive(
        client=CLIENTS[client],
        package=table.read_text("package"),
        version=table.read_text("version"),
        size=table.read_count("size"),
        sha256=table.read_hash("sha256"),
        file_sets=tuple(_parse_file_set(files) for files in table.read_tables("files")),
        sdist=table.read_flag("sdist"),
        python=table.read_text("python", ""),
    )
    table.reject_unknown_fields()
    if archive.client != "pip" and (archive.sdist or archive.python):
        raise table.make_error("sdist and python apply to pip only")
    return archive


def _parse_file_set(table: _Table) -> FileSet:
    file_set = FileSet(
        source=table.read_text("source"),
        local=table.read_text("local"),
        size=table.read_count("size"),
        sha256=table.read_hash("sha256"),
        count=table.read_count("count", 1),
        inner_archive=table.read_text("inner_archive", ""),
    )
    table.reject_unknown_fields()

    stars = file_set.source.count("*"), file_set.local.count("*")
    if stars not in ((0, 0), (1, 1)) or (file_set.count > 1) != (stars == (1, 1)):
        raise table.make_error("source and local must contain one * each if count is larger than 1, and none otherwise")
    if file_set.local.startswith(("/", ".")) or ".." in file_set.local or file_set.local == RESERVED_NAME:
        raise table.make_error(f"{file_set.local!r} is not allowed as a local path")
    return file_set


def _reject_overlapping_paths(entry: Entry, table: _Table) -> None:
    """Refuse two file sets that would write the same local file."""
    for index, first in enumerate(entry.file_sets):
        for second in entry.file_sets[index + 1 :]:
            if first.matches_local(second.local) or second.matches_local(first.local):
                raise table.make_error(f"{first.local!r} and {second.local!r} name the same files")
