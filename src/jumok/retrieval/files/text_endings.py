"""Decide by its name whether a file may contain text that people read."""

from __future__ import annotations

MARKDOWN_ENDINGS = (".md", ".markdown")
RST_ENDINGS = (".rst",)
PO_ENDINGS = (".po",)
JSON_LINES_ENDINGS = (".jsonl", ".ndjson")
PDF_ENDINGS = (".pdf",)
# one line is one entry: the line breaks are kept
LINE_ENDINGS = (".csv", ".tsv", ".log", ".srt", ".vtt")
PLAIN_ENDINGS = (".txt", ".text", ".adoc", ".asciidoc", ".org", ".tex")
TEXT_ENDINGS = (
    *(*PLAIN_ENDINGS, *MARKDOWN_ENDINGS, *RST_ENDINGS),
    *(*PO_ENDINGS, *JSON_LINES_ENDINGS, *PDF_ENDINGS, *LINE_ENDINGS),
)


def get_ending(name: str) -> str:
    """Return the ending of a file name in lower case, such as ".txt"; "" if it has none.

    Args:
        name: The name, or a path.

    >>> get_ending("notes/READ.ME/Notes.TXT"), get_ending("notes.d/README")
    ('.txt', '')
    """
    name = name.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return f".{ending.lower()}" if dot and stem else ""


def is_text_name(name: str) -> bool:
    """Return True if a file of this name may contain text: it has a known ending, or none.

    >>> is_text_name("README"), is_text_name("a.md"), is_text_name("a.png")
    (True, True, False)
    """
    ending = get_ending(name)
    return not ending or ending in TEXT_ENDINGS
