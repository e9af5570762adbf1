"""Texts with a label each: from TSV, CSV and JSONL files, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator

from jumok.data.readers.columns import TABLE_EXTENSIONS, read_rows
from jumok.data.readers.lines import Paths, ProblemLog, get_extension, list_files, list_paths
from jumok.errors import DataError

from . import hub_datasets


def read_labelled_texts(
    paths: Paths, problems: ProblemLog | None = None, text: str = "text", label: str = "label"
) -> Iterator[tuple[str, str]]:
    """(text, label) of every row; `text` and `label` name the columns, which otherwise stand in that order."""
    problems, given = problems or ProblemLog(), list_paths(paths)
    nothing = True
    for path in list_files(given):
        if not hub_datasets.is_hub_name(path) and get_extension(path) not in TABLE_EXTENSIONS:
            problems.report(str(path), f"labelled texts are read from {', '.join(TABLE_EXTENSIONS)} files")
            continue
        for _, (words, kind) in read_rows(path, [text, label], problems):
            nothing = False
            yield words, kind.strip()
    if nothing:
        raise DataError(f"there are no labelled texts in {', '.join(map(str, given))[:200]}: {problems}")
