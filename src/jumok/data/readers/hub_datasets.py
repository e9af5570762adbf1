"""Read Hugging Face datasets by name, "hf:owner/name" or "hf:owner/name@split", with the `datasets` package.

A local folder can be used instead of owner/name. Only the named dataset is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jumok.data.readers.table_header import Column
from jumok.errors import DataError

HUB_PREFIX = "hf:"


def is_hub_name(path: Path) -> bool:
    """Return whether a path is the name of a Hugging Face dataset."""
    return path.as_posix().startswith(HUB_PREFIX)


def read_hub_rows(path: Path, columns: Sequence[Column]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (row number, row) of a dataset. Class labels are returned as names, not numbers."""
    try:
        import datasets
    except ImportError:
        raise DataError(f'{path} needs the package datasets; install it with: pip install "jumok[datasets]"') from None

    name, _, split = path.as_posix().removeprefix(HUB_PREFIX).partition("@")
    try:
        # no code of the dataset is executed: `datasets` does not support that since version 4
        dataset = datasets.load_dataset(name, split=split or "train")
    except Exception as error:  # network, disk, and damaged files raise many kinds of errors
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{path} cannot be read: {reason} (check the name, and that it is cached or reachable)"
        ) from error

    present = list(dataset.column_names)
    selected = [name for name in present if name == "translation" or any(column.accepts(name) for column in columns)]
    if not selected:
        titles = " or ".join(repr(column.title) for column in columns)
        raise DataError(f"{path} has no column {titles}; its columns are {', '.join(present)}")

    label_features = {
        column: feature for column, feature in dataset.features.items() if isinstance(feature, datasets.ClassLabel)
    }
    # select columns first, so that images in other columns are not decoded
    for number, row in enumerate(dataset.select_columns(selected), 1):
        labels = {column: feature.int2str(row[column]) for column, feature in label_features.items() if column in row}
        yield number, {**row, **labels}
