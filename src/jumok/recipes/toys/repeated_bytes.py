"""Generate byte sequences that contain repeated pieces, also of the user's text; a row is a function of its name."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from jumok.data.datasets import text_corpora
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_examples import read_documents
from jumok.errors import ArgumentError
from jumok.recipes.recipe import Options, column_field, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.data_source import require_files, select_dataset

MAX_TEXT_BYTES = 2_000_000  # of the user's own text
PIECE_BYTES = 64  # length of the repeated piece in a test sequence
BYTE_VALUES = 256
LETTERS = "abcdefghijklmnopqrstuvwxyz"
GAPS = (" ",) * 27 + (", ", ". ", "\n")  # between words
KIND_WEIGHTS = {"bytes": 6, "words": 3, "hangul": 3, "text": 6}  # relative frequency of each kind of piece
Row = tuple[list[int], int]  # the bytes, and the index of the first byte that is a training target


def generate_rows(name: str, count: int, size: int, periodic: bool, text: bytes = b"") -> Iterator[Row]:
    """Yield rows of repeated bytes.

    Args:
        periodic: True: random bytes with one period, with targets from the first repetition on. False: pieces of any
            kind, each repeated two to four times, some with other bytes in between; every byte is a target.
    """
    rng = random.Random(f"repeats {name}")
    for _ in range(count):
        yield _generate_periodic_row(rng, size) if periodic else (_generate_mixed_row(rng, size, text), 0)


def generate_piece(name: str, kind: str, size: int, text: bytes = b"") -> list[int]:
    """Return one piece without repetition."""
    return _generate_piece(random.Random(f"piece {name}"), kind, size, text)


def _generate_periodic_row(rng: random.Random, size: int) -> Row:
    period = rng.randint(max(2, size // 8), size // 2)
    piece = rng.choices(range(BYTE_VALUES), k=period)
    return (piece * (size // period + 1))[:size], period


def _generate_mixed_row(rng: random.Random, size: int, text: bytes) -> list[int]:
    row: list[int] = []
    while len(row) < size:
        # uniform in the logarithm of the length, so that short pieces are as frequent as long ones
        length = max(3, int(2 ** rng.uniform(2, (size // 2).bit_length())))
        piece = _generate_any_piece(rng, min(length, size // 2), text)
        gap = rng.randint(1, 12) if rng.random() < 0.4 else 0
        for _ in range(rng.randint(2, 4)):
            row += piece
            if gap:
                row += _generate_any_piece(rng, gap, text)
    return row[:size]


def _generate_any_piece(rng: random.Random, size: int, text: bytes) -> list[int]:
    kinds = [kind for kind in KIND_WEIGHTS if kind != "text" or len(text) > size]
    kind = rng.choices(kinds, [KIND_WEIGHTS[kind] for kind in kinds])[0]
    return _generate_piece(rng, kind, size, text)


def _generate_piece(rng: random.Random, kind: str, size: int, text: bytes) -> list[int]:
    if kind == "bytes":
        # half of the pieces use few byte values, so that bytes also recur by chance and one matching byte is not enough
        values = BYTE_VALUES if rng.random() < 0.5 else int(2 ** rng.uniform(3, 8))
        return rng.choices(rng.sample(range(BYTE_VALUES), values), k=size)
    if kind == "text":
        first = rng.randrange(len(text) - size + 1)
        return list(text[first : first + size])
    piece = b""
    while len(piece) < size:
        piece += (_generate_word(rng, kind) + rng.choice(GAPS)).encode()
    return list(piece[:size])


def _generate_word(rng: random.Random, kind: str) -> str:
    if kind == "hangul":
        return "".join(chr(rng.randrange(0xAC00, 0xD7A4)) for _ in range(rng.randint(1, 4)))
    word = "".join(rng.choices(LETTERS, k=rng.randint(2, 9)))
    return word.capitalize() if rng.random() < 0.2 else word


@dataclass(frozen=True)
class InductionOptions(Options):
    """Fields of the induction recipe."""

    with_data = ("text", "header")

    text: str | None = column_field("column of your table that has the texts")
    header: str = header_field()


def read_own_text(request: TrainingRequest) -> bytes:
    """Return the text of ``--data``, or b"" without it."""
    if request.data is None:
        return b""
    problems = request.create_problem_log()
    documents, size = [], 0
    for document in _read_documents(request, problems):
        documents.append(document.encode())
        size += len(documents[-1])
        if size > MAX_TEXT_BYTES:
            request.report(f"only the first {MAX_TEXT_BYTES / 1e6:.0f} MB of the text are read")
            break
    if problems.count:
        request.report(str(problems))
    if size < 40 * PIECE_BYTES:
        raise ArgumentError(f"the text has {size:,} bytes; give at least {40 * PIECE_BYTES:,}")
    return b"".join(documents)[:MAX_TEXT_BYTES]


def _read_documents(request: TrainingRequest, problems: ProblemLog) -> Iterator[str]:
    name = select_dataset(request, None, text_corpora.TEXTS)
    if name is not None:
        return text_corpora.TEXTS[name]("train", request.download_report)
    options = request.take_options(InductionOptions)
    file_format = request.create_file_format(options.header)
    return read_documents(require_files(request), problems, options.text, file_format)
