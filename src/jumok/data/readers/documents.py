"""Texts: plain files, one document each, and tables that have a document in each row; folders of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jumok.data.readers.columns import TABLES, rows
from jumok.data.readers.lines import DataError, Paths, Problems, ending, files, lines, listed
from jumok.data.tokenizers.tokenizer import Tokenizer

from . import hub_datasets

PIECE = 2**17  # characters of a large file that are held at once; a tokenizer takes a hundred bytes for each


class Piece(NamedTuple):
    """A document, or a part of one that ends at the end of a line."""

    text: str
    last: bool  # whether the document ends here


def documents(paths: Paths, problems: Problems | None = None, column: str = "text") -> Iterator[str]:
    """The texts of files and folders: a plain file is one; .jsonl, .csv and .tsv have one in each row's `column`.

    A plain file of more than 131,072 characters comes in pieces that end at the end of a line, so that memory stays
    constant. Folders are read with all that is in them, sorted by name.
    """
    for piece in pieces(paths, problems, column):
        yield piece.text


def pieces(
    paths: Paths, problems: Problems | None = None, column: str = "text", encoding: str = "utf-8"
) -> Iterator[Piece]:
    """The same, and of each text whether its document ends with it."""
    problems, given = problems or Problems(), listed(paths)
    nothing = True
    found: Iterator[Piece]
    for path in files(given):
        if hub_datasets.is_name(path) or ending(path) in TABLES:
            found = (Piece(fields[0], True) for _, fields in rows(path, [column], problems, encoding))
        else:
            found = _plain(path, problems, encoding)
        for piece in found:
            nothing = False
            yield piece
    if nothing:
        raise DataError(f"there is no text in {', '.join(map(str, given))[:200]}: {problems}")


def _plain(path: Path, problems: Problems, encoding: str) -> Iterator[Piece]:
    held: list[str] = []
    size, begun = 0, False
    for _, line in lines(path, problems, encoding):
        if size > PIECE:
            yield Piece("\n".join(held) + "\n", False)
            held, size, begun = [], 0, True
        held.append(line)
        size += len(line) + 1
    if begun or any(held):
        yield Piece("\n".join(held) + "\n", True)
    elif held:
        problems.bad(f"{path}:1", "all lines of the file are empty")


def tokens(found: Iterator[Piece], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """The ids of each piece, and behind each document the token that ends a text, where the tokenizer has one."""
    end = [] if tokenizer.end is None else [tokenizer.end]
    for piece in found:
        yield tokenizer.encode(piece.text, special=False) + (end if piece.last else [])
