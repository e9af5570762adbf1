"""Read texts: plain files with one document each, tables with one document per row, and folders of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jumok.data.readers import hub_datasets
from jumok.data.readers.columns import TABLE_EXTENSIONS, read_rows
from jumok.data.readers.file_format import FileFormat
from jumok.data.readers.file_list import list_files, list_paths
from jumok.data.readers.lines import MAX_LINE, Paths, ProblemLog, get_extension, read_lines, require_any
from jumok.data.readers.table_header import Column
from jumok.data.tokenizers.tokenizer import Tokenizer

PIECE_SIZE = 2**17  # characters; a tokenizer needs about 100 bytes of memory per character


class TextPiece(NamedTuple):
    """A document, or a part of one that ends with a line."""

    text: str
    ends_document: bool


def read_documents(
    paths: Paths,
    problems: ProblemLog | None = None,
    column: str | None = None,
    file_format: FileFormat | None = None,
) -> Iterator[str]:
    """Yield the texts of files and folders.

    A plain file is one document; a table (.jsonl, .csv, .tsv, .parquet) has one per row. A document of more than
    PIECE_SIZE characters is yielded in pieces that end with a line or a word, so that memory stays constant.

    Args:
        column: The name or number of the column of tables that contains the text; None = a well-known name, or the
            only column.
    """
    for piece in read_pieces(paths, problems, column, file_format):
        yield piece.text


def read_pieces(
    paths: Paths,
    problems: ProblemLog | None = None,
    column: str | None = None,
    file_format: FileFormat | None = None,
) -> Iterator[TextPiece]:
    """Yield the texts of files and folders like `read_documents`, and whether each ends its document."""
    log = problems or ProblemLog()
    listed = list_paths(paths)
    pieces = _read_all_pieces(listed, log, Column("text", column), file_format or FileFormat())
    yield from require_any(pieces, lambda: f"there is no text in {', '.join(map(str, listed))[:200]}: {log}")


def _read_all_pieces(
    paths: list[Path], problems: ProblemLog, column: Column, file_format: FileFormat
) -> Iterator[TextPiece]:
    for path in list_files(paths, problems):
        if hub_datasets.is_hub_name(path) or get_extension(path) in TABLE_EXTENSIONS:
            for _, (text,) in read_rows(path, [column], problems, file_format, MAX_LINE):
                *pieces, end = _cut_text(text)
                yield from (TextPiece(piece, False) for piece in pieces)
                yield TextPiece(end, True)
        else:
            yield from _read_plain_file(path, problems, file_format.encoding)


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
