"""Read text and JSON files from untrusted folders, with a limit on their size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jumok.errors import ArgumentError, describe_type
from jumok.files import read_limited

VOCABULARY_LIMIT = 50_000_000  # bytes
SETTINGS_LIMIT = 10_000_000  # bytes
MAX_CONTAINERS = 2_000_000  # lists and objects in a vocabulary file; the largest real files have 600,000
MAX_ELEMENTS = 6_000_000  # elements of them; the largest real files have 2 million


def read_text(path: Path, limit: int) -> str:
    """Read a UTF-8 file."""
    content = read_limited(path, limit)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} is not UTF-8 text: byte {error.start} is {content[error.start]:#04x}") from error


def check_density(path: Path, text: str) -> None:
    """Raise an error if a JSON text would need far more memory than its length, such as millions of empty lists."""
    containers, elements = text.count("[") + text.count("{"), text.count(",")
    if containers > MAX_CONTAINERS or elements > MAX_ELEMENTS:
        raise ArgumentError(
            f"{path} contains {containers:,} lists and {elements:,} elements; the limits are {MAX_CONTAINERS:,} and "
            f"{MAX_ELEMENTS:,}"
        )


def parse_json_object(path: Path, text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is not JSON: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise ArgumentError(f"{path} contains {describe_type(document)}; expected an object")
    return document


def read_settings(path: Path) -> dict[str, Any]:
    """Read a JSON settings file."""
    return parse_json_object(path, read_text(path, SETTINGS_LIMIT)) if path.is_file() else {}
