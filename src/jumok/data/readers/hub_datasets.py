"""Data sets by their Hugging Face name, "hf:owner/name" or "hf:owner/name@split": read by the `datasets` package.

Only what is named is ever looked for. A folder on this machine may stand in place of a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jumok.errors import DataError

_MARK = "hf:"


def is_hub_name(path: Path) -> bool:
    """Whether a path is not one, but the name of a data set."""
    return path.as_posix().startswith(_MARK)


def read_hub_rows(path: Path, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """(number, row) of a data set, with the columns of these names; a label that has a name is given by it."""
    try:
        import datasets
    except ImportError:
        raise DataError(f"{path} is read by one more package: pip install 'jumok[datasets]'") from None
    name, _, part = path.as_posix().removeprefix(_MARK).partition("@")
    try:
        # no code of the data set is run: `datasets` has refused that since its version 4
        found = datasets.load_dataset(name, split=part or "train")
    except Exception as error:  # whatever a network, a disk or a file that somebody uploaded makes it say
        words = " ".join(str(error).split())[:200]
        raise DataError(f"{path} cannot be read: {words} (is the name right, and is it here or reachable?)") from error
    present = list(found.column_names)
    wanted = [column for column in present if column in (*names, "translation")]
    if not wanted:
        raise DataError(f"{path} has no column {' or '.join(map(repr, names))}; there are {', '.join(present)}")
    written: dict[str, Callable[[int], str]] = {
        column: kind.int2str for column, kind in found.features.items() if isinstance(kind, datasets.ClassLabel)
    }
    for number, row in enumerate(found.select_columns(wanted), 1):  # pictures that nobody asked for stay closed
        yield number, {key: written[key](value) if key in written else value for key, value in row.items()}
