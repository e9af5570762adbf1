"""Texts with a label each: from TSV, CSV and JSONL files, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator

from jumok.data.readers.columns import TABLES, rows
from jumok.data.readers.lines import DataError, Paths, Problems, ending, files, listed

from . import hub_datasets


def labelled(
    paths: Paths, problems: Problems | None = None, text: str = "text", label: str = "label"
) -> Iterator[tuple[str, str]]:
    """(text, label) of every row; `text` and `label` name the columns, which otherwise stand in that order."""
    problems, given = problems or Problems(), listed(paths)
    nothing = True
    for path in files(given):
        if not hub_datasets.is_name(path) and ending(path) not in TABLES:
            problems.bad(str(path), f"labelled texts are read from {', '.join(TABLES)} files")
            continue
        for _, (words, kind) in rows(path, [text, label], problems):
            nothing = False
            yield words, kind.strip()
    if nothing:
        raise DataError(f"there are no labelled texts in {', '.join(map(str, given))[:200]}: {problems}")
