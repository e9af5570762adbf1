"""Read pairs of texts, as for translation, from TSV, CSV, JSONL and gettext .po files, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jumok.data.readers import hub_datasets, po_files
from jumok.data.readers.columns import TABLE_EXTENSIONS, read_rows
from jumok.data.readers.lines import Paths, ProblemLog, get_extension, list_files, list_paths, require_any

PAIR_EXTENSIONS = (*TABLE_EXTENSIONS, ".po")


def read_pairs(
    paths: Paths, source: str = "source", target: str = "target", problems: ProblemLog | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (source, target) of every pair in files and folders.

    A .po file gives (msgid, msgstr), or (msgstr, msgid) if `source` is "msgstr". Its fuzzy and untranslated messages
    are skipped, and each plural form is a separate pair.

    Args:
        paths: Files, folders, or dataset names that begin with "hf:".
        source: Name of the source column or key. A table with two columns may omit the header.
        target: Name of the target column or key.
        problems: Receives unusable rows; by default they raise DataError.

    Raises:
        DataError: If a row cannot be used, or if there are no pairs at all.
    """
    log = problems or ProblemLog()
    listed = list_paths(paths)
    pairs = _read_all_pairs(listed, source, target, log)
    yield from require_any(pairs, lambda: f"there are no pairs in {', '.join(map(str, listed))[:200]}: {log}")


def _read_all_pairs(paths: list[Path], source: str, target: str, problems: ProblemLog) -> Iterator[tuple[str, str]]:
    for path in list_files(paths):
        if get_extension(path) == ".po":
            for original, translation in _read_po_pairs(path, problems):
                yield (translation, original) if source == "msgstr" else (original, translation)
        elif hub_datasets.is_hub_name(path) or get_extension(path) in TABLE_EXTENSIONS:
            for _, (source_text, target_text) in read_rows(path, [source, target], problems):
                yield source_text, target_text
        else:
            problems.report(str(path), f"pairs are read from {', '.join(PAIR_EXTENSIONS)} files")


def _read_po_pairs(path: Path, problems: ProblemLog) -> Iterator[tuple[str, str]]:
    for message in po_files.read_messages(path, problems):
        if message.fuzzy:
            continue
        forms = [message.translations[index] for index in sorted(message.translations)]
        # the first form is the singular, the last the plural; Korean has a single form for both
        for original, translation in ((message.id, forms[0]), (message.plural, forms[-1])):
            if original.strip() and translation.strip():
                yield original, translation
