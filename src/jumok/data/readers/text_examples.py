"""Read texts, pairs of texts and labelled texts from plain files, tables, gettext .po files, and folders of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from jumok.data.readers.file_format import UTF_8, FileFormat
from jumok.data.readers.file_list import list_files, list_paths
from jumok.data.readers.lines import (
    MAX_LINE,
    Example,
    Paths,
    ProblemLog,
    close_after,
    get_extension,
    normalize_label,
    read_lines,
    require_any,
)
from jumok.data.readers.po_files import parse_messages
from jumok.data.readers.table_header import Column
from jumok.data.readers.tables import TABLE_EXTENSIONS, is_table, read_rows
from jumok.data.tokenizers.tokenizer import Tokenizer

PIECE_SIZE = 2**17  # characters; a tokenizer needs about 100 bytes of memory per character
PAIR_EXTENSIONS = (*TABLE_EXTENSIONS, ".po")


class TextPiece(NamedTuple):
    """A document, or a part of one that ends with a line."""

    text: str
    ends_document: bool


def _read_files(
    paths: Paths, problems: ProblemLog, content: str, read_file: Callable[[Path], Iterator[Example]]
) -> Iterator[Example]:
    """Yield the examples of all files; raise DataError if there are none."""
    listed = list_paths(paths)
    examples = (example for path in list_files(listed, problems) for example in read_file(path))
    yield from require_any(examples, lambda: f"there {content} in {', '.join(map(str, listed))[:200]}: {problems}")


def read_documents(
    paths: Paths, problems: ProblemLog | None = None, column: str | None = None, file_format: FileFormat = UTF_8
) -> Iterator[str]:
    """Yield the texts of files and folders.

    A plain file is one document; a table (.jsonl, .csv, .tsv, .parquet) has one per row. A document of more than
    PIECE_SIZE characters is yielded in pieces that end with a line or a word, so that memory stays constant. ``column``
    is the name or number of the column with the texts; None = a well-known name, or the only column.
    """
    for piece in read_pieces(paths, problems, column, file_format):
        yield piece.text


def read_pieces(
    paths: Paths, problems: ProblemLog | None = None, column: str | None = None, file_format: FileFormat = UTF_8
) -> Iterator[TextPiece]:
    """Yield the texts of files and folders like `read_documents`, and whether each ends its document."""
    log = problems or ProblemLog()

    def read_file(path: Path) -> Iterator[TextPiece]:
        if not is_table(path):
            yield from _read_plain_file(path, log, file_format.encoding)
            return
        for _, (text,) in read_rows(path, [Column("text", column)], log, file_format, MAX_LINE):
            *pieces, end = _cut_text(text)
            yield from (TextPiece(piece, False) for piece in pieces)
            yield TextPiece(end, True)

    return _read_files(paths, log, "is no text", read_file)


def _read_plain_file(path: Path, problems: ProblemLog, encoding: str) -> Iterator[TextPiece]:
    lines: list[str] = []
    size = 0
    has_pieces = False
    for _, line in read_lines(path, problems, encoding):
        if size > PIECE_SIZE:
            yield TextPiece("\n".join(lines) + "\n", False)
            lines, size, has_pieces = [], 0, True
        *pieces, line = _cut_text(line)
        for piece in pieces:  # of a very long line
            yield TextPiece("\n".join([*lines, piece]), False)
            lines, size, has_pieces = [], 0, True
        lines.append(line)
        size += len(line) + 1

    if has_pieces or any(lines):
        yield TextPiece("\n".join(lines) + "\n", True)
    elif lines:
        problems.report(f"{path}:1", "all lines of the file are empty")


def _cut_text(text: str) -> list[str]:
    """Cut a text of more than PIECE_SIZE characters, after a line break or a space where there is one."""
    pieces, start = [], 0
    while len(text) - start > PIECE_SIZE:
        stop = start + PIECE_SIZE
        cut = max(text.rfind("\n", start + 1, stop), text.rfind(" ", start + 1, stop))
        cut = stop if cut < 0 else cut + (text[cut] == "\n")  # byte-level tokens begin with their space
        pieces.append(text[start:cut])
        start = cut
    return [*pieces, text[start:]]


def encode_pieces(pieces: Iterator[TextPiece], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yield the token ids of each piece, with the tokenizer's end token, if it has one, after each document."""
    end = [] if tokenizer.end is None else [tokenizer.end]
    for piece in pieces:
        yield tokenizer.encode(piece.text, special=False) + (end if piece.ends_document else [])


def read_pairs(
    paths: Paths,
    source: str | None = None,
    target: str | None = None,
    problems: ProblemLog | None = None,
    file_format: FileFormat = UTF_8,
) -> Iterator[tuple[str, str]]:
    """Yield (source, target) of every pair in files and folders.

    A .po file gives (msgid, msgstr), or (msgstr, msgid) if `source` is "msgstr". Its fuzzy and untranslated messages
    are skipped, and each plural form is a separate pair. The columns of a table are given by name or number; None = a
    well-known name, or the first and the second language. A table of two columns without a header has the source first.
    """
    log = problems or ProblemLog()
    columns = [Column("source", source), Column("target", target)]

    def read_file(path: Path) -> Iterator[tuple[str, str]]:
        if get_extension(path) == ".po":
            for original, translation in _read_po_pairs(path, log, file_format.encoding):
                yield (translation, original) if source == "msgstr" else (original, translation)
        elif is_table(path):
            for _, (source_text, target_text) in read_rows(path, columns, log, file_format):
                yield source_text, target_text
        else:
            log.report(str(path), f"pairs are read from {', '.join(PAIR_EXTENSIONS)} files")

    return _read_files(paths, log, "are no pairs", read_file)


def _read_po_pairs(path: Path, problems: ProblemLog, encoding: str) -> Iterator[tuple[str, str]]:
    with close_after(read_lines(path, problems, encoding)) as lines:
        for message in parse_messages(path, lines, problems):
            if message.fuzzy:
                continue
            forms = [message.translations[index] for index in sorted(message.translations)]
            # the first form is the singular, the last the plural; Korean has a single form for both
            for original, translation in ((message.id, forms[0]), (message.plural, forms[-1])):
                if original.strip() and translation.strip():
                    yield original, translation


def read_labelled_texts(
    paths: Paths,
    problems: ProblemLog | None = None,
    text: str | None = None,
    label: str | None = None,
    file_format: FileFormat = UTF_8,
) -> Iterator[tuple[str, str]]:
    """Yield (text, label) of every row, whose columns are given by name or number; None = a well-known name, such as
    "review" or "sentiment". A table of two columns without a header has the text first.
    """
    log = problems or ProblemLog()
    columns = [Column("text", text), Column("label", label)]

    def read_file(path: Path) -> Iterator[tuple[str, str]]:
        if not is_table(path):
            return log.report(str(path), f"labelled texts are read from {', '.join(TABLE_EXTENSIONS)} files")
        for _, (words, class_name) in read_rows(path, columns, log, file_format):
            yield words, normalize_label(class_name.strip(), path, log)
        return None

    return _read_files(paths, log, "are no labelled texts", read_file)
