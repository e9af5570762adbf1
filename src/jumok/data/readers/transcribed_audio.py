"""List recordings with a transcript each. Only paths are read here; see audio/ for the sound."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from jumok.data.audio.audio_files import AUDIO_EXTENSIONS
from jumok.data.readers.file_format import FileFormat
from jumok.data.readers.lines import ProblemLog, require_any
from jumok.data.readers.listed_files import find_table, read_listed_files
from jumok.data.readers.table_header import Column
from jumok.errors import DataError

_TABLE_NAMES = ("transcripts", "metadata")  # ours, and that of Hugging Face's "audiofolder"


def read_transcribed_audio(
    folder: str | os.PathLike[str],
    problems: ProblemLog | None = None,
    file: str | None = None,
    transcript: str | None = None,
    file_format: FileFormat | None = None,
) -> Iterator[tuple[Path, str]]:
    """Yield (audio file, transcript) of a folder.

    The transcripts are in a table in the folder: transcripts.tsv, .csv or .jsonl, or metadata.*, with the columns file
    and transcript, or others of the same meaning, such as file_name and text.
    """
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"{folder} is not a folder of recordings")
    table = find_table(root, _TABLE_NAMES)
    hint = "add a table transcripts.tsv with the columns file and transcript"
    if table is None:
        raise DataError(f"{root} contains no table of transcripts; {hint}")
    log = problems or ProblemLog()
    columns = [Column("file", file, endings=AUDIO_EXTENSIONS), Column("transcript", transcript)]
    pairs = read_listed_files(root, table, columns, "recording", log, file_format or FileFormat())
    yield from require_any(pairs, lambda: f"{root} contains no recordings with transcripts ({log}); {hint}")
