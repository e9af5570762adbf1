"""Read the edits that the page sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jumok.errors import ArgumentError
from jumok.lens import Edit


def read_page_edits(edits: Sequence[dict[str, Any]]) -> tuple[Edit, ...]:
    """Return edits from their JSON objects, which are not trusted.

    Args:
        edits: The objects.

    Raises:
        ArgumentError: If one is not an edit; the message says which.
    """
    converted = []
    for number, edit in enumerate(edits, 1):
        try:
            converted.append(Edit.from_json(edit))
        except ArgumentError as error:
            raise ArgumentError(f"edit {number}: {error}") from None
    return tuple(converted)
