"""List images with captions or classes, and recordings with transcripts. Only paths and texts are read here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from jumok.data.readers.file_format import UTF_8, FileFormat
from jumok.data.readers.file_list import list_files
from jumok.data.readers.lines import ProblemLog, close_after, normalize_label, read_lines, require_any
from jumok.data.readers.table_header import Column
from jumok.data.readers.tables import TABLE_EXTENSIONS, read_rows
from jumok.defaults import AUDIO_EXTENSIONS, IMAGE_EXTENSIONS
from jumok.errors import DataError

Folder = str | os.PathLike[str]
# our names of tables, and that of Hugging Face's "imagefolder" and "audiofolder"
CAPTION_TABLES = ("captions", "metadata")
_TRANSCRIPT_TABLES = ("transcripts", "metadata")


def read_captioned_images(
    folder: Folder,
    problems: ProblemLog | None = None,
    file: str | None = None,
    caption: str | None = None,
    file_format: FileFormat = UTF_8,
) -> Iterator[tuple[Path, str]]:
    """Yield (image file, caption) of a folder.

    The captions are in a table in the folder: captions.tsv, .csv or .jsonl, or metadata.*, with the columns file and
    caption, or others of the same meaning, such as file_name and text. Without a table, the caption of image.png is in
    image.txt.
    """
    root = _require_folder(folder, "images")
    log = problems or ProblemLog()
    table = find_table(root, CAPTION_TABLES)
    if table is None:
        pairs = _read_text_files(root, log, file_format.encoding)
    else:
        columns = [Column("file", file, endings=IMAGE_EXTENSIONS), Column("caption", caption)]
        pairs = _read_listed_files(root, table, columns, "image", log, file_format)
    yield from require_any(
        pairs,
        lambda: (
            f"{root} contains no images with captions ({log}); add a table captions.tsv with the columns file and "
            "caption, or a file image.txt for each image.png"
        ),
    )


def read_image_folder(folder: Folder, problems: ProblemLog | None = None) -> Iterator[tuple[Path, str]]:
    """Yield (image file, class) of a folder with one subfolder per class, sorted by name."""
    root = _require_folder(folder, "images")
    log = problems or ProblemLog()
    is_empty = True
    for path in _list_images(root):
        class_name = path.relative_to(root).parts[0]
        if class_name == path.name:
            log.report(str(path), f"the image has no class; put it into a subfolder of {root}")
        else:
            is_empty = False
            yield path, normalize_label(class_name, root, log)
    if is_empty:
        raise DataError(
            f"{root} contains no images ({log}); put them into one folder per class, such as {root / 'cat'}"
        )


def _list_images(root: Path) -> Iterator[Path]:
    return (path for path in list_files(root) if path.suffix.lower() in IMAGE_EXTENSIONS)


def _read_text_files(root: Path, problems: ProblemLog, encoding: str) -> Iterator[tuple[Path, str]]:
    """Yield images with the captions in the text files beside them."""
    for path in _list_images(root):
        text_file = path.with_suffix(".txt")
        if not text_file.is_file():
            problems.report(str(path), f"the image has no caption; write one into {text_file.name} beside it")
            continue
        text = " ".join(line for _, line in read_lines(text_file, problems, encoding))
        caption = " ".join(text.split())
        if caption:
            yield path, caption


def read_transcribed_audio(
    folder: Folder,
    problems: ProblemLog | None = None,
    file: str | None = None,
    transcript: str | None = None,
    file_format: FileFormat = UTF_8,
) -> Iterator[tuple[Path, str]]:
    """Yield (audio file, transcript) of a folder.

    The transcripts are in a table in the folder: transcripts.tsv, .csv or .jsonl, or metadata.*, with the columns file
    and transcript, or others of the same meaning, such as file_name and text.
    """
    root = _require_folder(folder, "recordings")
    table = find_table(root, _TRANSCRIPT_TABLES)
    hint = "add a table transcripts.tsv with the columns file and transcript"
    if table is None:
        raise DataError(f"{root} contains no table of transcripts; {hint}")
    log = problems or ProblemLog()
    columns = [Column("file", file, endings=AUDIO_EXTENSIONS), Column("transcript", transcript)]
    pairs = _read_listed_files(root, table, columns, "recording", log, file_format)
    yield from require_any(pairs, lambda: f"{root} contains no recordings with transcripts ({log}); {hint}")


def _require_folder(folder: Folder, content: str) -> Path:
    if not Path(folder).is_dir():
        raise DataError(f"{folder} is not a folder of {content}")
    return Path(folder)


def find_table(root: Path, names: Sequence[str]) -> Path | None:
    """Return the first table of a folder that has one of these names; None if there is none."""
    paths = (root / (name + extension) for name in names for extension in TABLE_EXTENSIONS)
    return next((path for path in paths if path.is_file()), None)


def _read_listed_files(
    root: Path, table: Path, columns: list[Column], kind: str, problems: ProblemLog, file_format: FileFormat
) -> Iterator[tuple[Path, str]]:
    """Yield (file, text) of each row of a table; a row may not name a file outside the folder."""
    extensions = columns[0].endings
    resolved_root = root.resolve()
    article = "an" if kind[0] in "aeiou" else "a"
    with close_after(read_rows(table, columns, problems, file_format)) as rows:
        for number, (name, text) in rows:
            path = root / name
            location = f"{table}:{number}"
            if not path.resolve().is_relative_to(resolved_root):
                problems.report(location, f"{name!r} is outside the folder")
            elif path.suffix.lower() not in extensions:
                problems.report(location, f"{name!r} is not {article} {kind} ({', '.join(extensions)})")
            elif not path.is_file():
                problems.report(location, f"there is no {kind} {name!r} in the folder")
            else:
                yield path, text.strip()
