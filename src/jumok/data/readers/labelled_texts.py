"""Read texts with a label each from TSV, CSV, JSONL and Parquet files, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jumok.data.readers import hub_datasets
from jumok.data.readers.columns import TABLE_EXTENSIONS, read_rows
from jumok.data.readers.file_format import FileFormat
from jumok.data.readers.file_list import list_files, list_paths
from jumok.data.readers.lines import Paths, ProblemLog, get_extension, normalize_label, require_any
from jumok.data.readers.table_header import Column


def read_labelled_texts(
    paths: Paths,
    problems: ProblemLog | None = None,
    text: str | None = None,
    label: str | None = None,
    file_format: FileFormat | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield (text, label) of every row.

    Args:
        label: Name or number of the column with the label; None = a well-known name such as "label" or "sentiment". A
            table of two columns without a header has the text first.
    """
    log = problems or ProblemLog()
    listed = list_paths(paths)
    columns = [Column("text", text), Column("label", label)]
    examples = _read_all_rows(listed, log, columns, file_format)
    yield from require_any(
        examples, lambda: f"there are no labelled texts in {', '.join(map(str, listed))[:200]}: {log}"
    )


def _read_all_rows(
    paths: list[Path], problems: ProblemLog, columns: list[Column], file_format: FileFormat | None
) -> Iterator[tuple[str, str]]:
    for path in list_files(paths, problems):
        if not hub_datasets.is_hub_name(path) and get_extension(path) not in TABLE_EXTENSIONS:
            problems.report(str(path), f"labelled texts are read from {', '.join(TABLE_EXTENSIONS)} files")
            continue
        for _, (words, class_name) in read_rows(path, columns, problems, file_format):
            yield words, normalize_label(class_name.strip(), path, problems)
