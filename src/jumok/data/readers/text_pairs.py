"""Read pairs of texts, as for translation, from TSV, CSV, JSONL, Parquet and gettext .po files, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jumok.data.readers import hub_datasets, po_files
from jumok.data.readers.columns import TABLE_EXTENSIONS, read_rows
from jumok.data.readers.file_format import FileFormat
from jumok.data.readers.file_list import list_files, list_paths
from jumok.data.readers.lines import Paths, ProblemLog, get_extension, require_any
from jumok.data.readers.table_header import Column

PAIR_EXTENSIONS = (*TABLE_EXTENSIONS, ".po")


def read_pairs(
    paths: Paths,
    source: str | None = None,
    target: str | None = None,
    problems: ProblemLog | None = None,
    file_format: FileFormat | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield (source, target) of every pair in files and folders.

    A .po file gives (msgid, msgstr), or (msgstr, msgid) if `source` is "msgstr". Its fuzzy and untranslated messages
    are skipped, and each plural form is a separate pair.

    Args:
        source: Name or number of the source column; None = a well-known name such as "source", or the first language.
        target: Name or number of the target column; None = a well-known name such as "target", or the second language.
            A table of two columns without a header has the source first.
    """
    log = problems or ProblemLog()
    listed = list_paths(paths)
    columns = [Column("source", source), Column("target", target)]
    pairs = _read_all_pairs(listed, columns, log, file_format or FileFormat())
    yield from require_any(pairs, lambda: f"there are no pairs in {', '.join(map(str, listed))[:200]}: {log}")


def _read_all_pairs(
    paths: list[Path], columns: list[Column], problems: ProblemLog, file_format: FileFormat
) -> Iterator[tuple[str, str]]:
    is_reversed = columns[0].name == "msgstr"
    for path in list_files(paths, problems):
        if get_extension(path) == ".po":
            for original, translation in _read_po_pairs(path, problems, file_format.encoding):
                yield (translation, original) if is_reversed else (original, translation)
        elif hub_datasets.is_hub_name(path) or get_extension(path) in TABLE_EXTENSIONS:
            for _, (source_text, target_text) in read_rows(path, columns, problems, file_format):
                yield source_text, target_text
        else:
            problems.report(str(path), f"pairs are read from {', '.join(PAIR_EXTENSIONS)} files")


def _read_po_pairs(path: Path, problems: ProblemLog, encoding: str) -> Iterator[tuple[str, str]]:
    for message in po_files.read_messages(path, problems, encoding):
        if message.fuzzy:
            continue
        forms = [message.translations[index] for index in sorted(message.translations)]
        # the first form is the singular, the last the plural; Korean has a single form for both
        for original, translation in ((message.id, forms[0]), (message.plural, forms[-1])):
            if original.strip() and translation.strip():
                yield original, translation
