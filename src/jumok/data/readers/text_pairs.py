"""Pairs of texts, as for translation: from TSV, CSV, JSONL and gettext .po files, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jumok.data.readers.columns import TABLE_EXTENSIONS, read_rows
from jumok.data.readers.lines import Paths, ProblemLog, get_extension, list_files, list_paths
from jumok.errors import DataError

from . import hub_datasets, po_files

ENDINGS = (*TABLE_EXTENSIONS, ".po")


def read_pairs(
    paths: Paths, source: str = "source", target: str = "target", problems: ProblemLog | None = None
) -> Iterator[tuple[str, str]]:
    """(source, target) of every pair in files and folders.

    `source` and `target` are the names of columns or keys; a TSV or CSV of two columns may do without names. A .po file
    gives msgid -> msgstr, and the other way round when `source` is "msgstr"; what is fuzzy or has no translation is
    left out, and plural forms are pairs of their own.
    """
    problems, given = problems or ProblemLog(), list_paths(paths)
    nothing = True
    for path in list_files(given):
        if get_extension(path) == ".po":
            found = _translated(path, problems)
            found = ((there, here) for here, there in found) if source == "msgstr" else found
        elif hub_datasets.is_hub_name(path) or get_extension(path) in TABLE_EXTENSIONS:
            found = ((here, there) for _, (here, there) in read_rows(path, [source, target], problems))
        else:
            problems.report(str(path), f"pairs are read from {', '.join(ENDINGS)} files")
            continue
        for pair in found:
            nothing = False
            yield pair
    if nothing:
        raise DataError(f"there are no pairs in {', '.join(map(str, given))[:200]}: {problems}")


def _translated(path: Path, problems: ProblemLog) -> Iterator[tuple[str, str]]:
    for message in po_files.read_messages(path, problems):
        if message.fuzzy:
            continue
        forms = [message.translations[place] for place in sorted(message.translations)]
        # the first form is said of one thing, the last of many; Korean has a single form for both
        for here, there in ((message.id, forms[0]), (message.plural, forms[-1])):
            if here.strip() and there.strip():
                yield here, there
