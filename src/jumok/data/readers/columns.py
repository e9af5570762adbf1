"""Named columns of TSV, CSV and JSONL files: one reader for texts, pairs, labels and captions."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from jumok.data.readers.lines import LONGEST, ProblemLog, get_extension, read_lines, released
from jumok.errors import DataError

from . import hub_datasets

TABLE_EXTENSIONS = (".tsv", ".csv", ".jsonl")
Row = tuple[int, list[str]]
Lines = Iterator[tuple[int, str]]
_HALF = re.compile("[\ud800-\udfff]")


def read_rows(path: Path, names: Sequence[str], problems: ProblemLog, encoding: str = "utf-8") -> Iterator[Row]:
    """(line number, the fields of these names) of each row of a table.

    TSV and CSV: the first row names the columns; if it names none of them and there are as many columns as names, there
    is no such row, and they stand in that order. TSV knows no quotes: a tab always ends a field. JSONL: the keys; what
    stands under "translation", as pairs often do, is found too. No field may be empty.
    """
    source = (
        hub_datasets.read_hub_rows(path, names)
        if hub_datasets.is_hub_name(path)
        else read_lines(path, problems, encoding)
    )
    with released(source):
        if hub_datasets.is_hub_name(path):
            found = _objects(path, names, source, problems)
        elif get_extension(path) == ".jsonl":
            found = _objects(path, names, _parsed(path, source, problems), problems)
        else:
            cells = _cells_of_csv if get_extension(path) == ".csv" else _cells_of_tsv
            found = _columns(path, names, cells(path, source, problems), problems)
        for number, fields in found:
            empty = [name for name, field in zip(names, fields, strict=True) if not field.strip()]
            if empty:
                problems.report(f"{path}:{number}", f"{' and '.join(empty)} is empty")
            else:
                yield number, fields


def _cells_of_tsv(path: Path, source: Lines, problems: ProblemLog) -> Iterator[Row]:
    return ((number, line.split("\t")) for number, line in source if line)


def _cells_of_csv(path: Path, source: Lines, problems: ProblemLog) -> Iterator[Row]:
    # the module's own limit, for the whole process, is 131,072 characters a field: a long text has more
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    seen = 0  # lines that could not be used are not handed to the reader, so it cannot count for us

    def fed() -> Iterator[str]:
        nonlocal seen
        for number, line in source:
            seen = number
            yield line + "\n"

    reader, before = csv.reader(fed(), strict=True), 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            lost = seen - before - 1
            more = f"; the {lost:,} lines after it are lost with it" if lost > 0 else ""
            problems.report(f"{path}:{before + 1}", f"the quotes do not match ({error}){more}")
        else:
            if row:
                # a field may go over several lines: the row is where it begins
                yield seen - sum(field.count("\n") for field in row), row
        before = seen


def _columns(path: Path, names: Sequence[str], cells: Iterator[Row], problems: ProblemLog) -> Iterator[Row]:
    first = next(cells, None)
    if first is None:
        return
    number, row = first
    heads = [cell.strip() for cell in row]
    known = [name for name in names if name in heads]
    if len(known) == len(names):
        places = [heads.index(name) for name in names]
    elif known or len(row) != len(names):
        missing = " and ".join(repr(name) for name in names if name not in known)
        return problems.report(f"{path}:{number}", f"there is no column {missing}; the first row is {_short(row)}")
    else:
        places, cells = list(range(len(names))), chain([first], cells)
    alone, before = True, problems.count
    for number, cell in cells:
        alone = False
        if len(cell) != len(row):
            problems.report(f"{path}:{number}", f"{_columns_of(len(cell))} where {len(row)} are expected")
        else:
            yield number, [cell[place] for place in places]
    if alone and problems.count == before:
        problems.report(f"{path}:{number}", "the columns have names, and there is nothing below them")
    return None


def _columns_of(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _short(row: Sequence[str]) -> str:
    return ", ".join(repr(cell[:40]) for cell in row[:8]) + (", ..." if len(row) > 8 else "")


def _parsed(path: Path, source: Lines, problems: ProblemLog) -> Iterator[tuple[int, Any]]:
    for number, line in source:
        if not line.strip():
            continue
        try:
            told = json.loads(line)
        except (ValueError, RecursionError) as error:  # RecursionError: ten thousand brackets
            problems.report(f"{path}:{number}", f"the line is not JSON ({str(error)[:100]})")
        else:
            yield number, told


def _objects(
    path: Path, names: Sequence[str], objects: Iterator[tuple[int, Any]], problems: ProblemLog
) -> Iterator[Row]:
    for number, told in objects:
        try:
            fields = chosen(told, names)
        except DataError as error:
            problems.report(f"{path}:{number}", str(error))
        else:
            yield number, fields


def chosen(told: Any, names: Sequence[str]) -> list[str]:
    """The fields of these names as texts; whole numbers and truths are texts too, because labels are often such."""
    if not isinstance(told, Mapping):
        raise DataError(f"the line is JSON, but a {type(told).__name__}, not an object")
    inner = told.get("translation")
    fields = inner if isinstance(inner, Mapping) and not set(names) <= told.keys() else told
    texts = []
    for name in names:
        if name not in fields:
            raise DataError(f"there is no {name!r}; there are {_short([str(key) for key in fields])}")
        field = fields[name]
        if isinstance(field, bool | int):
            field = json.dumps(field)
        if not isinstance(field, str):
            raise DataError(f"{name!r} is a {type(field).__name__}, not a text")
        if not field.isascii() and _HALF.search(field):
            raise DataError(f"{name!r} holds half a character (a lone surrogate)")
        texts.append(field)
    return texts
