"""List images with a caption each, or with a class each. Only paths are read here; see images/ for the pixels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from jumok.data.images.image_files import IMAGE_EXTENSIONS
from jumok.data.readers.file_format import FileFormat
from jumok.data.readers.file_list import list_files
from jumok.data.readers.lines import ProblemLog, normalize_label, read_lines, require_any
from jumok.data.readers.listed_files import find_table, read_listed_files
from jumok.data.readers.table_header import Column
from jumok.errors import DataError

Folder = str | os.PathLike[str]
_TABLE_NAMES = ("captions", "metadata")  # ours, and that of Hugging Face's "imagefolder"


def read_captioned_images(
    folder: Folder,
    problems: ProblemLog | None = None,
    file: str | None = None,
    caption: str | None = None,
    file_format: FileFormat | None = None,
) -> Iterator[tuple[Path, str]]:
    """Yield (image file, caption) of a folder.

    The captions are in a table in the folder: captions.tsv, .csv or .jsonl, or metadata.*, with the columns file and
    caption, or others of the same meaning, such as file_name and text. Without a table, the caption of image.png is in
    image.txt.
    """
    root = _check_folder(folder)
    log = problems or ProblemLog()
    table = find_caption_table(root)
    file_format = file_format or FileFormat()
    if table is None:
        pairs = _read_text_files(root, log, file_format.encoding)
    else:
        columns = [Column("file", file, endings=IMAGE_EXTENSIONS), Column("caption", caption)]
        pairs = read_listed_files(root, table, columns, "image", log, file_format)
    yield from require_any(
        pairs,
        lambda: (
            f"{root} contains no images with captions ({log}); add a table captions.tsv with the columns file and "
            "caption, or a file image.txt for each image.png"
        ),
    )


def read_image_folder(folder: Folder, problems: ProblemLog | None = None) -> Iterator[tuple[Path, str]]:
    """Yield (image file, class) of a folder with one subfolder per class, sorted by name."""
    root = _check_folder(folder)
    log = problems or ProblemLog()
    yield from require_any(
        _read_classes(root, log),
        lambda: f"{root} contains no images ({log}); put them into one folder per class, such as {root / 'cat'}",
    )


def _read_classes(root: Path, problems: ProblemLog) -> Iterator[tuple[Path, str]]:
    for path in _list_images(root):
        class_name = path.relative_to(root).parts[0]
        if class_name == path.name:
            problems.report(str(path), f"the image has no class; put it into a subfolder of {root}")
        else:
            yield path, normalize_label(class_name, root, problems)


def _check_folder(folder: Folder) -> Path:
    if not Path(folder).is_dir():
        raise DataError(f"{folder} is not a folder of images")
    return Path(folder)


def _list_images(root: Path) -> Iterator[Path]:
    return (path for path in list_files(root) if path.suffix.lower() in IMAGE_EXTENSIONS)


def find_caption_table(root: Path) -> Path | None:
    """Return the table of captions of a folder, captions.* or metadata.*; None if there is none."""
    return find_table(root, _TABLE_NAMES)


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
