"""Read named columns of TSV, CSV and JSONL files: one reader for texts, pairs, labels and captions."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from jumok.data.readers import hub_datasets
from jumok.data.readers.lines import MAX_LINE, ProblemLog, close_after, get_extension, read_lines
from jumok.errors import DataError

TABLE_EXTENSIONS = (".tsv", ".csv", ".jsonl")
Row = tuple[int, list[str]]  # line number, cells
Line = tuple[int, str]  # line number, line
Record = tuple[int, Mapping[str, Any]]  # line number, JSON object
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_rows(path: Path, names: Sequence[str], problems: ProblemLog, encoding: str = "utf-8") -> Iterator[Row]:
    """Yield (line number, cells of the named columns) of each row of a table. Rows with an empty cell are reported.

    TSV and CSV: the first row names the columns. If it contains none of the names and has as many cells as there are
    names, it is a row of data, and the columns are taken in that order. A TSV has no quotes: a tab always ends a cell.
    JSONL: names are keys, also inside "translation", as is usual for pairs.

    Args:
        path: A file, or a dataset name that begins with "hf:".
        names: Names of the columns.
        problems: Receives unusable rows.
        encoding: Encoding of the file.
    """
    if hub_datasets.is_hub_name(path):
        rows = _select_columns_of_records(path, names, hub_datasets.read_hub_rows(path, names), problems)
    else:
        rows = _read_file_rows(path, names, problems, encoding)

    with close_after(rows):
        for number, cells in rows:
            empty = [name for name, cell in zip(names, cells, strict=True) if not cell.strip()]
            if empty:
                problems.report(f"{path}:{number}", f"{' and '.join(empty)} is empty")
            else:
                yield number, cells


def _read_file_rows(path: Path, names: Sequence[str], problems: ProblemLog, encoding: str) -> Iterator[Row]:
    with close_after(read_lines(path, problems, encoding)) as lines:
        extension = get_extension(path)
        if extension == ".jsonl":
            yield from _select_columns_of_records(path, names, _parse_json_lines(path, lines, problems), problems)
        elif extension == ".csv":
            yield from _select_columns(path, names, _split_csv(path, lines, problems), problems)
        else:
            yield from _select_columns(path, names, _split_tsv(lines), problems)


def _split_tsv(lines: Iterator[Line]) -> Iterator[Row]:
    return ((number, line.split("\t")) for number, line in lines if line)


def _split_csv(path: Path, lines: Iterator[Line], problems: ProblemLog) -> Iterator[Row]:
    # the csv module's default limit of 131,072 characters per cell is too small for long texts; the limit is global
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    last_read = 0  # counted here, because unusable lines are not passed to the csv reader

    def feed_lines() -> Iterator[str]:
        nonlocal last_read
        for number, line in lines:
            last_read = number
            yield line + "\n"

    reader = csv.reader(feed_lines(), strict=True)
    previous = 0
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            lost = last_read - previous - 1
            consequence = f"; the {lost:,} lines after it cannot be read either" if lost > 0 else ""
            problems.report(f"{path}:{previous + 1}", f"the quotes do not match ({error}){consequence}")
        else:
            if cells:
                # a cell can span several lines; report the line where the row begins
                yield last_read - sum(cell.count("\n") for cell in cells), cells
        previous = last_read


def _select_columns(path: Path, names: Sequence[str], rows: Iterator[Row], problems: ProblemLog) -> Iterator[Row]:
    """Find the named columns by the first row, and yield their cells."""
    first = next(rows, None)
    if first is None:
        return
    number, first_cells = first
    header = [cell.strip() for cell in first_cells]
    present = [name for name in names if name in header]
    if len(present) == len(names):
        indices = [header.index(name) for name in names]
    elif present or len(first_cells) != len(names):
        missing = " and ".join(repr(name) for name in names if name not in present)
        message = f"there is no column {missing}; the first row is {_abbreviate(first_cells)}"
        problems.report(f"{path}:{number}", message)
        return
    else:
        indices = list(range(len(names)))
        rows = chain([first], rows)

    is_empty = True
    previous_problems = problems.count
    for number, cells in rows:
        is_empty = False
        if len(cells) != len(first_cells):
            problems.report(f"{path}:{number}", f"expected {len(first_cells)} columns, got {len(cells)}")
        else:
            yield number, [cells[index] for index in indices]
    if is_empty and problems.count == previous_problems:
        problems.report(f"{path}:{number}", "the table has column names but no rows")


def _abbreviate(cells: Sequence[str]) -> str:
    return ", ".join(repr(cell[:40]) for cell in cells[:8]) + (", ..." if len(cells) > 8 else "")


def _parse_json_lines(path: Path, lines: Iterator[Line], problems: ProblemLog) -> Iterator[Record]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:  # RecursionError: deep nesting
            problems.report(f"{path}:{number}", f"the line is not JSON ({str(error)[:100]})")
            continue
        if isinstance(record, Mapping):
            yield number, record
        else:
            problems.report(f"{path}:{number}", f"the line is a JSON {type(record).__name__}, not an object")


def _select_columns_of_records(
    path: Path, names: Sequence[str], records: Iterator[Record], problems: ProblemLog
) -> Iterator[Row]:
    for number, record in records:
        try:
            cells = _select_texts(record, names)
        except DataError as error:
            problems.report(f"{path}:{number}", str(error))
        else:
            yield number, cells


def _select_texts(record: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the named fields as texts. Integers and booleans are converted, because labels often have these types."""
    translation = record.get("translation")
    fields = record
    if isinstance(translation, Mapping) and not set(names) <= record.keys():
        fields = translation

    texts: list[str] = []
    for name in names:
        if name not in fields:
            raise DataError(f"there is no {name!r}; the fields are {_abbreviate([str(key) for key in fields])}")
        text = fields[name]
        if isinstance(text, bool | int):
            text = json.dumps(text)
        if not isinstance(text, str):
            raise DataError(f"{name!r} is a {type(text).__name__}, not text")
        if not text.isascii() and _SURROGATE.search(text):
            raise DataError(f"{name!r} contains a lone surrogate, which is not a character")
        texts.append(text)
    return texts
