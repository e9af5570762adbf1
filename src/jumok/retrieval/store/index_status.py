"""What is known about the index of a folder."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from jumok.retrieval.files import SkippedFile


@dataclass(frozen=True)
class FileChanges:
    """How the files of a folder differ from its index.

    Args:
        changed: Files that have other content, or may have.
    """

    new: int = 0
    changed: int = 0
    removed: int = 0

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.removed)

    def __str__(self) -> str:
        parts = [f"{count:,} {name}" for name, count in dataclasses.asdict(self).items() if count]
        return ", ".join(parts) or "no changes"


@dataclass(frozen=True)
class IndexStatus:
    """What an index contains, and what opening it has done.

    Args:
        bytes: The size of these files.
        skipped_counts: How many files are not indexed, by reason.
        embedder: The model that computed the vectors; None if there are none.
        unreadable: Passages without a vector because they are in Korean, Chinese or Japanese, which the model cannot
            read.
        built_at: When the index was written, as ISO 8601.
        seconds: How long writing it took.
        passages_per_second: How many passages were read or embedded in each of these seconds.
        action: What opening the index did: "built", "updated", or "opened" if nothing had changed.
        changes: Which files had changed since the index was written the last time; when nothing is written, since then.
        notices: Sentences that the person should read, such as that a damaged index was built again.
    """

    folder: str
    location: str
    files: int
    passages: int
    bytes: int
    skipped: tuple[SkippedFile, ...]
    skipped_counts: dict[str, int]
    embedder: str | None
    vectors: int
    unreadable: int
    built_at: str
    seconds: float
    passages_per_second: float
    action: str
    changes: FileChanges
    notices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the status as a JSON object."""
        return dataclasses.asdict(self)
