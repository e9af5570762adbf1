"""Decide what separates the cells of a table, whether its first row is a header, and which columns hold the examples.

A first row is a header if columns are requested by name; if every cell is a well-known column name and the names differ
in meaning; if it names every column that is needed; or if its label occurs nowhere else while the other labels repeat.
Otherwise it is data.
"""

from __future__ import annotations

import csv
import difflib
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jumok.errors import DataError

_NAMES: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("column_names.toml").read_text(encoding="utf-8")
)
KNOWN_NAMES = _NAMES["known"]
LANGUAGE_NAMES = {name: language for language, names in _NAMES["languages"].items() for name in names}
_OTHER_NAMES = frozenset(_NAMES["other"]["names"])
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")
_MAX_NAME = 40  # characters of a column name
_PAIR_ROLES = ("source", "target")

COMMA, SEMICOLON = ",", ";"
PREVIEW_LINES = 200  # that are read to decide between them
MIN_SHARE = 0.5  # of the rows that have as many cells as the first


@dataclass(frozen=True)
class Column:
    """A column that a reader needs."""

    role: str  # what it holds: "text", "label", "source", "target", "file", "caption" or "transcript"
    # the requested name or number, from 1; None = a well-known name of this role, or by the order of the columns
    name: str | None = None
    endings: tuple[str, ...] = ()  # how every cell of the column ends, such as (".png", ".jpg"); empty = in any way

    @property
    def title(self) -> str:
        """The requested name, or the role."""
        return self.role if self.name is None else self.name

    def rank_name(self, name: str) -> int | None:
        """Return how usual a name is for this role: 0 for the most usual; None if it is not well-known."""
        names = KNOWN_NAMES[self.role]
        normalized = normalize_name(name)
        return names.index(normalized) if normalized in names else None

    def accepts(self, name: str) -> bool:
        """Return whether a column of this name may be the one: the requested name, or a well-known one."""
        if self.name is not None:
            return name == self.name
        is_language = self.role in _PAIR_ROLES and normalize_name(name) in LANGUAGE_NAMES
        return is_language or self.rank_name(name) is not None


class Layout(NamedTuple):
    """Where the columns of a table are."""

    has_header: bool
    indices: tuple[int, ...]


def normalize_name(name: str) -> str:
    """Return a column name in lower case, with underscores for spaces and hyphens.

    >>> normalize_name(" File Name ")
    'file_name'
    """
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def find_layout(columns: Sequence[Column], rows: Sequence[Sequence[str]], header: str = "auto") -> Layout:
    """Decide whether a table has a header, and find its columns.

    >>> find_layout([Column("text"), Column("label")], [["id", "review", "sentiment"], ["1", "fine", "good"]])
    Layout(has_header=True, indices=(1, 2))
    """
    first = [cell.strip() for cell in rows[0]]
    has_header = header == "yes" or (header == "auto" and _is_header(columns, first, rows[1:]))
    indices = _match_names(columns, first) if has_header else _match_numbers(columns, first)
    completed = _complete_in_order(columns, first, indices)
    if completed is None:
        indices = _match_numbers(columns, first) if header == "no" else _match_names(columns, first)
        missing = [column for column, index in zip(columns, indices, strict=True) if index is None]
        raise DataError(_describe_missing(len(columns), missing, first, () if header == "no" else first))
    _refuse_shared_column(columns, [f"column {index + 1}" for index in completed])
    return Layout(has_header, tuple(completed))


def find_keys(columns: Sequence[Column], names: Sequence[str]) -> list[str]:
    """Return the key of each column in JSON objects and Hugging Face datasets; unknown ones keep the role as key."""
    indices = _match_names(columns, names)
    keys = [column.title if index is None else names[index] for column, index in zip(columns, indices, strict=True)]
    _refuse_shared_column(columns, [repr(key) for key in keys])
    return keys


def _refuse_shared_column(columns: Sequence[Column], titles: Sequence[str]) -> None:
    """Raise DataError if two columns would be read from the same one."""
    for position, title in enumerate(titles):
        first = titles.index(title)
        if first < position:
            roles = columns[first].role, columns[position].role
            choices = " and ".join(f"{role}=NAME" for role in roles)
            raise DataError(f"{' and '.join(roles)} would both be {title}; choose different columns with {choices}")


def _is_header(columns: Sequence[Column], first: list[str], following: Sequence[Sequence[str]]) -> bool:
    requested = [column.name for column in columns if column.name is not None]
    if any(name in first or _parse_number(name, len(first)) is None for name in requested):
        return True
    indices = _match_names(columns, first)
    if _names_all_columns(columns, first) or (None not in indices and len(first) > len(columns) and not requested):
        return True
    completed = _complete_in_order(columns, first, indices)
    if completed is None:
        return False
    rows = [first, *(row for row in following if len(row) == len(first))]
    for column, index in zip(columns, completed, strict=True):
        cells = [row[index] for row in rows]
        ends = [cell.strip().lower().endswith(column.endings) for cell in cells]
        if column.endings and len(ends) > 1 and not ends[0] and all(ends[1:]):
            return True
        if column.role == "label" and _is_unique_label(cells) and all(map(_can_be_name, first)):
            return True
    return False


def _names_all_columns(columns: Sequence[Column], first: list[str]) -> bool:
    """Return whether every cell is a well-known name, the needed ones are among them, and no meaning occurs twice."""
    roles = [column.role for column in columns]
    is_pair = "source" in roles
    meanings: list[str] = []
    for cell in first:
        name = normalize_name(cell)
        role = next((role for role in roles if name in KNOWN_NAMES[role]), None)
        if role is not None and is_pair:
            meanings.append(role)
        elif is_pair and name in LANGUAGE_NAMES:
            meanings.append(LANGUAGE_NAMES[name])
        elif name in _OTHER_NAMES or (not is_pair and any(name in names for names in KNOWN_NAMES.values())):
            meanings.append(f"name {name}")
        else:
            return False
    # a word list may begin with "english, 영어": two words for one language are not names of two columns
    if len(set(meanings)) < len(meanings):
        return False
    matches = [any(column.accepts(cell) for cell in first) for column in columns]
    return all(matches) if is_pair else any(matches)


def _is_unique_label(cells: Sequence[str]) -> bool:
    """Return whether the first cell is a word that occurs nowhere else, while the other labels repeat."""
    first = cells[0]
    labels = Counter(cell.strip() for cell in cells[1:])
    count = labels.total()
    if _NUMBER.fullmatch(first) or first in labels:
        return False
    if count >= 2 and all(map(_NUMBER.fullmatch, labels)):
        return True
    singles = sum(1 for occurrences in labels.values() if occurrences == 1)
    return count >= 4 and singles <= count // 50  # a large table may have a few rare labels


def _can_be_name(cell: str) -> bool:
    return 0 < len(cell) <= _MAX_NAME and len(cell.split()) <= 4 and cell[-1] not in ".!?…。"


def _parse_number(name: str, count: int) -> int | None:
    """Return the index of a column that is requested by its number, from 1; None if it is no such number."""
    is_number = name.isascii() and name.isdigit() and len(name) < 10
    return int(name) - 1 if is_number and 1 <= int(name) <= count else None


def _match_numbers(columns: Sequence[Column], first: list[str]) -> list[int | None]:
    return [None if column.name is None else _parse_number(column.name, len(first)) for column in columns]


def _match_names(columns: Sequence[Column], names: Sequence[str]) -> list[int | None]:
    """Return the index of each column by its requested or well-known name; None if there is no such name.

    Names of languages are taken in their order: the first is the source.
    """
    indices: list[int | None] = []
    for column in columns:
        if column.name is not None:
            number = _parse_number(column.name, len(names))
            indices.append(names.index(column.name) if column.name in names else number)
            continue
        ranks = {rank: index for index, name in enumerate(names) if (rank := column.rank_name(name)) is not None}
        free = {rank: index for rank, index in ranks.items() if index not in indices}
        indices.append(free[min(free)] if free else None)
    languages = [index for index, name in enumerate(names) if normalize_name(name) in LANGUAGE_NAMES]
    languages = [index for index in languages if index not in indices]
    for position, column in enumerate(columns):
        if indices[position] is None and column.name is None and column.role in _PAIR_ROLES and languages:
            indices[position] = languages.pop(0)
    return indices


def _complete_in_order(columns: Sequence[Column], first: list[str], indices: Sequence[int | None]) -> list[int] | None:
    """Give the columns without an index the cells that are left, in order; None if their numbers differ."""
    missing = [column for column, index in zip(columns, indices, strict=True) if index is None]
    free = [index for index in range(len(first)) if index not in indices]
    if missing and (len(free) != len(missing) or any(column.name is not None for column in missing)):
        return None
    return [free.pop(0) if index is None else index for index in indices]


def _describe_missing(needed: int, missing: Sequence[Column], first: list[str], names: Sequence[str]) -> str:
    titles = " and ".join(repr(column.title) for column in missing)
    message = f"there is no column {titles}; the first row is {abbreviate(first)}"
    if len(first) < needed:
        separator = next((mark for mark in ("\t", ";", ",", "|") if mark in first[0]), None)
        hint = f"its cells seem to be separated by {separator!r}" if separator else f"{needed} columns are needed"
        return f"{message}; {hint} (.csv: commas or semicolons, .tsv: tabs)"
    column = missing[0]
    near = difflib.get_close_matches(column.title, names, 1)
    if near:
        return f"{message}; did you mean {column.role}={near[0]}?"
    choices = " and ".join(f"{column.role}=NAME" for column in missing)
    return f"{message}; say which it is with {choices}, or with the number of the column"


def abbreviate(cells: Sequence[str]) -> str:
    """Return cells for a message: quoted, shortened, and at most eight."""
    return ", ".join(repr(cell[:40]) for cell in cells[:8]) + (", ..." if len(cells) > 8 else "")


def find_separator(columns: Sequence[Column], lines: Sequence[str]) -> str:
    """Return "," or ";": the separator that gives more rows the number of cells of the first row; if equal, the comma.

    If a single column is needed, semicolons must also give a cell that names it: a text may contain semicolons.

    >>> columns = [Column("text"), Column("label")]
    >>> find_separator(columns, ["text;label", "good, really;1"]), find_separator(columns, ["text,label", "a;b,1"])
    (';', ',')
    """
    rows = _split_rows(lines, SEMICOLON)
    share = _compute_share(rows)
    if share < MIN_SHARE or share <= _compute_share(_split_rows(lines, COMMA)):
        return COMMA
    if len(columns) == 1 and columns[0].name is None and not any(columns[0].accepts(cell.strip()) for cell in rows[0]):
        return COMMA
    return SEMICOLON


def _split_rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Return the cells of each row; none for a row whose quotes do not match."""
    rows: list[list[str]] = []
    reader = csv.reader((line + "\n" for line in lines), delimiter=separator, strict=True)
    while True:
        try:
            rows.append(next(reader))
        except StopIteration:
            return [row for row in rows if row != []]
        except csv.Error:
            rows.append([""])


def _compute_share(rows: Sequence[Sequence[str]]) -> float:
    """Return the share of rows with as many cells as the first; 0 if that has only one."""
    if not rows or len(rows[0]) < 2:
        return 0.0
    return sum(len(row) == len(rows[0]) for row in rows) / len(rows)
