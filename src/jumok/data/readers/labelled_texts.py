"""Read texts with a label each from TSV, CSV and JSONL files, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jumok.data.readers import hub_datasets
from jumok.data.readers.columns import TABLE_EXTENSIONS, read_rows
from jumok.data.readers.lines import Paths, ProblemLog, get_extension, list_files, list_paths, require_any


def read_labelled_texts(
    paths: Paths, problems: ProblemLog | None = None, text: str = "text", label: str = "label"
) -> Iterator[tuple[str, str]]:
    """Yield (text, label) of every row.

    Args:
        paths: Files, folders, or dataset names that begin with "hf:".
        problems: Receives unusable rows; by default they raise DataError.
        text: Name of the column with the text.
        label: Name of the column with the label. A table without column names has the text first.

    Raises:
        DataError: If a row cannot be used, or if there are no rows at all.
    """
    log = problems or ProblemLog()
    listed = list_paths(paths)
    examples = _read_all_rows(listed, log, text, label)
    yield from require_any(
        examples, lambda: f"there are no labelled texts in {', '.join(map(str, listed))[:200]}: {log}"
    )


def _read_all_rows(paths: list[Path], problems: ProblemLog, text: str, label: str) -> Iterator[tuple[str, str]]:
    for path in list_files(paths):
        if not hub_datasets.is_hub_name(path) and get_extension(path) not in TABLE_EXTENSIONS:
            problems.report(str(path), f"labelled texts are read from {', '.join(TABLE_EXTENSIONS)} files")
            continue
        for _, (words, class_name) in read_rows(path, [text, label], problems):
            yield words, class_name.strip()
