"""Pictures with a sentence each, or with a class each: the paths; data/images.py reads the pixels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from jumok.data.images.image_files import ENDINGS
from jumok.data.readers.columns import TABLE_EXTENSIONS, Row, read_rows
from jumok.data.readers.lines import ProblemLog, list_files, read_lines, released
from jumok.errors import DataError

Folder = str | os.PathLike[str]
# ours, and the way Hugging Face's "imagefolder" writes it
_LISTS = {"captions": ["file", "caption"], "metadata": ["file_name", "text"]}


def read_captioned_images(folder: Folder, problems: ProblemLog | None = None) -> Iterator[tuple[Path, str]]:
    """(picture, caption) of a folder.

    Either a table beside the pictures names them: captions.tsv, .csv or .jsonl with the columns file and caption (or
    metadata.* with file_name and text). Or beside each picture.png stands a picture.txt.
    """
    place, problems = _folder(folder), problems or ProblemLog()
    tables = [
        (place / (name + kind), names)
        for name, names in _LISTS.items()
        for kind in TABLE_EXTENSIONS
        if (place / (name + kind)).is_file()
    ]
    found = _listed(place, *tables[0], problems) if tables else _beside(place, problems)
    nothing = True
    for pair in found:
        nothing = False
        yield pair
    if nothing:
        raise DataError(
            f"{place} has no pictures with captions ({problems}); put a captions.tsv into it, with the columns "
            "file and caption, or a picture.txt beside each picture.png"
        )


def read_image_folder(folder: Folder, problems: ProblemLog | None = None) -> Iterator[tuple[Path, str]]:
    """(picture, class) of a folder that has one folder a class, in the order of their names."""
    place, problems = _folder(folder), problems or ProblemLog()
    nothing = True
    for path in _pictures(place):
        kind = path.relative_to(place).parts[0]
        if kind == path.name:
            problems.report(str(path), f"the picture stands in no class; put it into a folder of {place}")
            continue
        nothing = False
        yield path, kind
    if nothing:
        raise DataError(f"{place} has no pictures ({problems}); put them into one folder a class: {place / 'cat'}")


def _folder(folder: Folder) -> Path:
    if not Path(folder).is_dir():
        raise DataError(f"{folder} is not a folder of pictures")
    return Path(folder)


def _pictures(place: Path) -> Iterator[Path]:
    return (path for path in list_files(place) if path.suffix.lower() in ENDINGS)


def _listed(place: Path, table: Path, names: list[str], problems: ProblemLog) -> Iterator[tuple[Path, str]]:
    with released(read_rows(table, names, problems)) as told:
        yield from _checked(place, table, told, problems)


def _checked(place: Path, table: Path, told: Iterator[Row], problems: ProblemLog) -> Iterator[tuple[Path, str]]:
    root = place.resolve()
    for number, (name, caption) in told:
        path = place / name
        if not path.resolve().is_relative_to(root):  # a table that came with a folder may point anywhere
            problems.report(f"{table}:{number}", f"{name!r} leads out of the folder")
        elif path.suffix.lower() not in ENDINGS:
            problems.report(f"{table}:{number}", f"{name!r} is no picture ({', '.join(ENDINGS)})")
        elif not path.is_file():
            problems.report(f"{table}:{number}", f"there is no picture {name!r} in the folder")
        else:
            yield path, caption.strip()


def _beside(place: Path, problems: ProblemLog) -> Iterator[tuple[Path, str]]:
    for path in _pictures(place):
        told = path.with_suffix(".txt")
        if not told.is_file():
            problems.report(str(path), f"the picture has no caption; write one into {told.name} beside it")
            continue
        caption = " ".join(" ".join(line for _, line in read_lines(told, problems)).split())
        if caption:
            yield path, caption
