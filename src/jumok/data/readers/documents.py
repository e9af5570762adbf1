"""Texts: plain files, one document each, and tables that have a document in each row; folders of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jumok.data.readers.columns import TABLE_EXTENSIONS, read_rows
from jumok.data.readers.lines import Paths, ProblemLog, get_extension, list_files, list_paths, read_lines
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError

from . import hub_datasets

PIECE = 2**17  # characters of a large file that are held at once; a tokenizer takes a hundred bytes for each


class TextPiece(NamedTuple):
    """A document, or a part of one that ends at the end of a line."""

    text: str
    ends_document: bool  # whether the document ends here


def read_documents(paths: Paths, problems: ProblemLog | None = None, column: str = "text") -> Iterator[str]:
    """The texts of files and folders: a plain file is one; .jsonl, .csv and .tsv have one in each row's `column`.

    A plain file of more than 131,072 characters comes in pieces that end at the end of a line, so that memory stays
    constant. Folders are read with all that is in them, sorted by name.
    """
    for piece in read_pieces(paths, problems, column):
        yield piece.text


def read_pieces(
    paths: Paths, problems: ProblemLog | None = None, column: str = "text", encoding: str = "utf-8"
) -> Iterator[TextPiece]:
    """The same, and of each text whether its document ends with it."""
    problems, given = problems or ProblemLog(), list_paths(paths)
    nothing = True
    found: Iterator[TextPiece]
    for path in list_files(given):
        if hub_datasets.is_hub_name(path) or get_extension(path) in TABLE_EXTENSIONS:
            found = (TextPiece(fields[0], True) for _, fields in read_rows(path, [column], problems, encoding))
        else:
            found = _plain(path, problems, encoding)
        for piece in found:
            nothing = False
            yield piece
    if nothing:
        raise DataError(f"there is no text in {', '.join(map(str, given))[:200]}: {problems}")


def _plain(path: Path, problems: ProblemLog, encoding: str) -> Iterator[TextPiece]:
    held: list[str] = []
    size, begun = 0, False
    for _, line in read_lines(path, problems, encoding):
        if size > PIECE:
            yield TextPiece("\n".join(held) + "\n", False)
            held, size, begun = [], 0, True
        held.append(line)
        size += len(line) + 1
    if begun or any(held):
        yield TextPiece("\n".join(held) + "\n", True)
    elif held:
        problems.report(f"{path}:1", "all lines of the file are empty")


def encode_pieces(found: Iterator[TextPiece], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """The ids of each piece, and behind each document the token that ends a text, where the tokenizer has one."""
    end = [] if tokenizer.end is None else [tokenizer.end]
    for piece in found:
        yield tokenizer.encode(piece.text, special=False) + (end if piece.ends_document else [])
