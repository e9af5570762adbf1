"""Read tables that list the files of a folder, such as images or recordings, with a text each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from jumok.data.readers.columns import TABLE_EXTENSIONS, Row, read_rows
from jumok.data.readers.file_format import FileFormat
from jumok.data.readers.lines import ProblemLog, close_after
from jumok.data.readers.table_header import Column


def find_table(root: Path, names: Sequence[str]) -> Path | None:
    """Return the first table of a folder that has one of these names; None if there is none."""
    paths = (root / (name + extension) for name in names for extension in TABLE_EXTENSIONS)
    return next((path for path in paths if path.is_file()), None)


def read_listed_files(
    root: Path, table: Path, columns: list[Column], kind: str, problems: ProblemLog, file_format: FileFormat
) -> Iterator[tuple[Path, str]]:
    """Yield (file, text) of each row."""
    with close_after(read_rows(table, columns, problems, file_format)) as rows:
        yield from _check_files(root, table, rows, columns[0].endings, kind, problems)


def _check_files(
    root: Path, table: Path, rows: Iterator[Row], extensions: tuple[str, ...], kind: str, problems: ProblemLog
) -> Iterator[tuple[Path, str]]:
    resolved_root = root.resolve()
    article = "an" if kind[0] in "aeiou" else "a"
    for number, (name, text) in rows:
        path = root / name
        location = f"{table}:{number}"
        if not path.resolve().is_relative_to(resolved_root):
            problems.report(location, f"{name!r} is outside the folder")
        elif path.suffix.lower() not in extensions:
            problems.report(location, f"{name!r} is not {article} {kind} ({', '.join(extensions)})")
        elif not path.is_file():
            problems.report(location, f"there is no {kind} {name!r} in the folder")
        else:
            yield path, text.strip()
