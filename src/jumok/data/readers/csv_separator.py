"""Decide whether the cells of a CSV file are separated by commas or, as many spreadsheets write them, by semicolons."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from jumok.data.readers.table_header import Column

COMMA, SEMICOLON = ",", ";"
PREVIEW_LINES = 200
MIN_SHARE = 0.5  # of the rows that have as many cells as the first


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
