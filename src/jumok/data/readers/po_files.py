"""Gettext .po files: messages and their translations, with the line each begins at. https://www.gnu.org/software/gettext

Read as a stream, message by message: a file of any size takes the memory of one message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jumok.data.readers.lines import ProblemLog, read_lines, released

_LINE = re.compile(r'(?:(msgctxt|msgid_plural|msgid|msgstr)\s*(?:\[(\d{1,3})\])?\s*)?"((?:[^"\\]|\\.)*)"\s*')
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass
class Message:
    """One entry: what is translated, and its translations; several where there are plural forms."""

    line: int = 0
    id: str = ""
    plural: str = ""
    translations: dict[int, str] = field(default_factory=dict)
    fuzzy: bool = False  # a translator has yet to look at it


def read_messages(path: Path, problems: ProblemLog) -> Iterator[Message]:
    """Every message of a file, the header left out; obsolete ones (#~) are left out too."""
    with released(read_lines(path, problems)) as source:
        yield from _messages(path, source, problems)


def _messages(path: Path, source: Iterator[tuple[int, str]], problems: ProblemLog) -> Iterator[Message]:
    message: Message | None = Message()
    slot = ""  # where the next string belongs
    for number, line in source:
        line = line.strip()
        if not line:
            continue
        found = _LINE.fullmatch(line)
        word, place, text = found.groups() if found is not None else (None, None, "")
        comment = line.startswith("#")
        # what follows a translation and does not continue it begins the next message
        if message is None or message.translations:
            if comment or word in ("msgctxt", "msgid"):
                if message is not None and message.id:  # the message without an id is the header
                    yield message
                message, slot = Message(), ""
            elif message is None:
                continue  # the rest of a message that cannot be used
        if comment:
            message.fuzzy |= line.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", line)
        elif found is None or (word is None and not slot):
            problems.report(f"{path}:{number}", f"this is no line of a .po file: {line[:60]!r}")
            message = None
        elif word == "msgid" and slot == "msgid":
            problems.report(f"{path}:{message.line}", "a msgid without a msgstr")
            message = None
        else:
            message.line = message.line or number
            slot = slot if word is None else f"msgstr{int(place or 0)}" if word == "msgstr" else word
            _add(message, slot, _ESCAPE.sub(_letter, text))
    if message is not None and message.id:
        if message.translations:
            yield message
        else:
            problems.report(f"{path}:{message.line}", "a msgid without a msgstr")


def _add(message: Message, slot: str, text: str) -> None:
    if slot == "msgid":
        message.id += text
    elif slot == "msgid_plural":
        message.plural += text
    elif slot.startswith("msgstr"):
        place = int(slot.removeprefix("msgstr"))
        message.translations[place] = message.translations.get(place, "") + text


def _letter(found: re.Match[str]) -> str:
    said = found[1]
    if said[0] == "x" and len(said) > 1:
        return chr(int(said[1:], 16))
    return chr(int(said, 8)) if said[0] in "01234567" else _LETTERS.get(said, said)
