"""List the text files of an untrusted folder, and cut them into passages."""

from .read_passages import PASSAGES_VERSION, read_open_file, read_passages
from .safe_folder import (
    TEXT_ENDINGS,
    SafeFolder,
    SkipLog,
    SkippedFile,
    TextFile,
    UnusableFileError,
    make_printable,
    resolve_folder,
)

__all__ = [
    "PASSAGES_VERSION",
    "TEXT_ENDINGS",
    "SafeFolder",
    "SkipLog",
    "SkippedFile",
    "TextFile",
    "UnusableFileError",
    "make_printable",
    "read_open_file",
    "read_passages",
    "resolve_folder",
]
