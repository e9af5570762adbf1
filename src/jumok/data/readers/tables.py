"""Read tables (TSV, CSV, JSONL, Parquet) and Hugging Face datasets, for texts, pairs and labels.

A Hugging Face dataset has the name "hf:owner/name" or "hf:owner/name@split", where a local folder can stand for
owner/name. Only the named dataset is downloaded, by the package `datasets`.
"""

from __future__ import annotations

import csv
import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jumok.data.readers.file_format import UTF_8, FileFormat
from jumok.data.readers.lines import MAX_LINE, Notice, ProblemLog, close_after, get_extension, read_lines
from jumok.data.readers.table_header import (
    PREVIEW_LINES,
    SEMICOLON,
    Column,
    abbreviate,
    find_keys,
    find_layout,
    find_separator,
)
from jumok.errors import DataError, describe_type

HUB_PREFIX = "hf:"
TABLE_EXTENSIONS = (".tsv", ".csv", ".jsonl", ".parquet")
MAX_CELL = 1_000_000  # characters; learning tokens from a longer word takes minutes
PREVIEW_ROWS = 1000  # rows after the first that are read before deciding whether it is a header
PREVIEW_SIZE = 2**20  # characters of these rows
Item = TypeVar("Item")
Row = tuple[int, list[str]]  # line number, cells
Line = tuple[int, str]  # line number, line
Record = tuple[int, Mapping[str, Any]]  # line number, JSON object
_SURROGATE = re.compile("[\ud800-\udfff]")


class TakenColumn(NamedTuple):
    """A column that is read."""

    name: str | None  # None without a header
    number: int | None  # from 1; None if the format names every field (JSONL)

    def __str__(self) -> str:
        if self.name is None:
            return f"column {self.number}"
        return repr(self.name[:40]) if self.number is None else f"{self.name[:40]!r} (column {self.number})"


@dataclass(frozen=True)
class TableNotice(Notice):
    """How a table is read: its separator, its header, the columns that are taken, and its first example."""

    path: Path
    has_header: bool | None  # None if the format names every field (JSONL)
    columns: Mapping[str, TakenColumn]
    example: Mapping[str, str]
    separator: str | None = None  # None if the format names every field
    is_header_given: bool = False  # whether the user said if there is a header

    def __str__(self) -> str:
        hint = "" if self.is_header_given else " (if not, set header=yes)"
        headers = {True: "the first row is a header; ", False: f"no header, the first row is data{hint}; ", None: ""}
        separator = "the cells are separated by semicolons; " if self.separator == SEMICOLON else ""
        columns = ", ".join(f"{role} = {name}" for role, name in self.columns.items())
        texts = {role: repr(text[:60]) + ("..." if len(text) > 60 else "") for role, text in self.example.items()}
        example = ", ".join(f"{role} {text}" for role, text in texts.items())
        return f"{self.path}: {separator}{headers[self.has_header]}{columns}; first example: {example}"

    @property
    def topic(self) -> object:
        # without the file: a folder may hold many files of one layout
        return self.separator, self.has_header, tuple(self.columns.items())

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as a JSON object."""
        return {
            "file": str(self.path),
            "separator": self.separator,
            "header": self.has_header,
            "columns": {role: column._asdict() for role, column in self.columns.items()},
            "example": dict(self.example),
        }


def is_table(path: Path) -> bool:
    """Return True for a table file and for the name of a Hugging Face dataset."""
    return path.as_posix().startswith(HUB_PREFIX) or get_extension(path) in TABLE_EXTENSIONS


def read_rows(
    path: Path,
    columns: Sequence[Column],
    problems: ProblemLog,
    file_format: FileFormat = UTF_8,
    max_cell: int = MAX_CELL,
) -> Iterator[Row]:
    """Yield (line number, cells of the columns) of each row of a table. Rows with an empty or a very long cell are
    reported.

    TSV and CSV: `table_header.find_layout` decides whether the first row is a header, and finds the columns. A TSV has
    no quotes: a tab always ends a cell. In a CSV, `table_header.find_separator` decides between commas and semicolons.
    JSONL and Parquet: names are keys, also inside "translation", as is usual for pairs.
    """
    if path.as_posix().startswith(HUB_PREFIX):
        rows = _select_columns_of_records(path, columns, _read_hub_rows(path, columns), problems)
    else:
        rows = _read_file_rows(path, columns, problems, file_format)

    with close_after(rows):
        for number, cells in rows:
            empty = [column.title for column, cell in zip(columns, cells, strict=True) if not cell.strip()]
            longest = max(map(len, cells))
            if longest > max_cell:
                problems.report(f"{path}:{number}", f"a cell has {longest:,} characters; the limit is {max_cell:,}")
            elif empty:
                problems.report(f"{path}:{number}", f"{' and '.join(empty)} is empty")
            else:
                yield number, cells


def _read_file_rows(
    path: Path, columns: Sequence[Column], problems: ProblemLog, file_format: FileFormat
) -> Iterator[Row]:
    extension = get_extension(path)
    if extension == ".parquet":
        yield from _select_columns_of_records(path, columns, _read_parquet(path, columns), problems)
        return
    with close_after(read_lines(path, problems, file_format.encoding)) as lines:
        if extension == ".jsonl":
            yield from _select_columns_of_records(path, columns, _parse_json_lines(path, lines, problems), problems)
            return
        separator = "\t"
        if extension == ".csv":
            # the csv module's default limit of 131,072 characters per cell is too small for long texts; it is global
            csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
            first_lines = _take_preview(lines, PREVIEW_LINES, lambda line: len(line[1]))
            separator = find_separator(columns, [line for _, line in first_lines])
            rows = _split_csv(path, chain(first_lines, lines), problems, separator)
        else:
            rows = ((number, line.split("\t")) for number, line in lines if line)
        yield from _select_columns(path, columns, rows, problems, file_format.header, separator)


def _read_hub_rows(path: Path, columns: Sequence[Column]) -> Iterator[Record]:
    """Yield (row number, row) of a Hugging Face dataset. Class labels are returned as names, not numbers."""
    try:
        import datasets
    except ImportError:
        raise DataError(f'{path} needs the package datasets; install it with: pip install "jumok[datasets]"') from None

    name, _, split = path.as_posix().removeprefix(HUB_PREFIX).partition("@")
    try:
        # no code of the dataset is executed: `datasets` does not support that since version 4
        dataset = datasets.load_dataset(name, split=split or "train")
    except Exception as error:  # network, disk, and damaged files raise many kinds of errors
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{path} cannot be read: {reason} (check the name, and that it is cached or reachable)"
        ) from error

    present = list(dataset.column_names)
    selected = [name for name in present if name == "translation" or any(column.accepts(name) for column in columns)]
    if not selected:
        titles = " or ".join(repr(column.title) for column in columns)
        raise DataError(f"{path} has no column {titles}; its columns are {', '.join(present)}")

    label_features = {
        column: feature for column, feature in dataset.features.items() if isinstance(feature, datasets.ClassLabel)
    }
    # select columns first, so that images in other columns are not decoded
    for number, row in enumerate(dataset.select_columns(selected), 1):
        labels = {column: feature.int2str(row[column]) for column, feature in label_features.items() if column in row}
        yield number, {**row, **labels}


def _read_parquet(path: Path, columns: Sequence[Column]) -> Iterator[Record]:
    """Yield (row number, fields) of a Parquet file; only the columns that may be selected are decoded."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DataError(f'{path} needs pyarrow; install it with: pip install "jumok[parquet]"') from None
    if not path.is_file():
        raise DataError(f"{path} is not a file; give the path of a file or a folder")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
            selected = [name for name in names if any(column.accepts(name) for column in columns)]
            if not all(any(map(column.accepts, selected)) for column in columns):
                selected = names  # inside "translation", or not there at all; then the message lists all
            for batch in file.iter_batches(PREVIEW_ROWS, columns=selected):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
    except (ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path} cannot be read as a Parquet file: {reason}") from error


def _take_preview(items: Iterator[Item], count: int, measure: Callable[[Item], int]) -> list[Item]:
    """Return the first lines or rows: at most ``count`` of them, and about PREVIEW_SIZE characters."""
    preview: list[Item] = []
    size = 0
    for item in items:
        preview.append(item)
        size += measure(item)
        if len(preview) == count or size > PREVIEW_SIZE:
            break
    return preview


def _split_csv(path: Path, lines: Iterator[Line], problems: ProblemLog, separator: str) -> Iterator[Row]:
    # counted here, because a row can have several lines, and unusable lines are not passed to the csv reader
    first_number, line_count = 0, 0

    def feed_lines() -> Iterator[str]:
        nonlocal first_number, line_count
        for number, line in lines:
            first_number = first_number if line_count else number
            line_count += 1
            yield line + "\n"

    reader = csv.reader(feed_lines(), delimiter=separator, strict=True)
    while True:
        line_count = 0
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            lost = line_count - 1
            consequence = f"; {lost:,} more line{'s' * (lost > 1)} cannot be read because of it" if lost else ""
            message = f"the quotes do not match ({error}){consequence}"
            problems.report(f"{path}:{first_number}", message, count=line_count)
        else:
            if cells:
                yield first_number, cells


def _select_columns(
    path: Path, columns: Sequence[Column], rows: Iterator[Row], problems: ProblemLog, header: str, separator: str
) -> Iterator[Row]:
    """Find the columns by the first rows, and yield their cells."""
    previous_problems = problems.count
    preview = _take_preview(rows, PREVIEW_ROWS + 1, lambda row: sum(map(len, row[1])))
    if not preview:
        return
    first_number, first_cells = preview[0]
    try:
        layout = find_layout(columns, [cells for _, cells in preview], header)
    except DataError as error:
        problems.report(f"{path}:{first_number}", str(error), "files", advice="")
        return
    names = [cell.strip() if layout.has_header else None for cell in first_cells]
    taken = {
        column.role: TakenColumn(names[index], index + 1) for column, index in zip(columns, layout.indices, strict=True)
    }

    is_empty = True
    for number, cells in chain(preview[1:] if layout.has_header else preview, rows):
        if len(cells) != len(first_cells):
            problems.report(f"{path}:{number}", f"expected {len(first_cells)} columns, got {len(cells)}")
            continue
        selected = [cells[index] for index in layout.indices]
        if is_empty:
            example = dict(zip(taken, selected, strict=True))
            problems.notify(TableNotice(path, layout.has_header, taken, example, separator, header != "auto"))
        is_empty = False
        yield number, selected
    if is_empty and problems.count == previous_problems:
        problems.report(f"{path}:{first_number}", "the table has column names but no rows")


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
    path: Path, columns: Sequence[Column], records: Iterator[Record], problems: ProblemLog
) -> Iterator[Row]:
    """Find the keys of the columns in the first record, and yield their values in all records."""
    keys: list[str] = []
    is_first = True
    for number, record in records:
        try:
            keys = keys or find_keys(columns, list(_select_fields(record, find_keys(columns, list(record)))))
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        try:
            cells = _select_texts(record, columns, keys)
        except DataError as error:
            problems.report(f"{path}:{number}", str(error))
            continue
        if is_first:
            taken = {column.role: TakenColumn(key, None) for column, key in zip(columns, keys, strict=True)}
            problems.notify(TableNotice(path, None, taken, dict(zip(taken, cells, strict=True))))
        is_first = False
        yield number, cells


def _select_fields(record: Mapping[str, Any], keys: Sequence[str]) -> Mapping[str, Any]:
    """Return the fields of a record; those of its "translation" if the record itself does not have the keys."""
    translation = record.get("translation")
    has_keys = set(keys) <= record.keys()
    return translation if isinstance(translation, Mapping) and not has_keys else record


def _select_texts(record: Mapping[str, Any], columns: Sequence[Column], keys: Sequence[str]) -> list[str]:
    """Return the fields as texts. Integers and booleans are converted, because labels often have these types."""
    fields = _select_fields(record, keys)
    texts: list[str] = []
    for column, key in zip(columns, keys, strict=True):
        if key not in fields:
            names = [str(name) for name in fields]
            near = difflib.get_close_matches(key, names, 1)
            hint = f"did you mean {column.role}={near[0]}?" if near else f"choose it by its name, {column.role}=..."
            raise DataError(f"there is no {key!r}; the fields are {abbreviate(names)}; {hint}")
        text = fields[key]
        if isinstance(text, bool | int):
            text = json.dumps(text)
        if not isinstance(text, str):
            raise DataError(f"{key!r} is {describe_type(text)}, not text")
        if not text.isascii() and _SURROGATE.search(text):
            raise DataError(f"{key!r} contains a lone surrogate, which is not a character")
        texts.append(text)
    return texts
