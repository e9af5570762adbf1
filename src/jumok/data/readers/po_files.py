"""Read gettext .po files: messages and their translations. https://www.gnu.org/software/gettext

A file is read message by message, so that memory does not grow with its size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jumok.data.readers.lines import ProblemLog

_STRING_LINE = re.compile(r'(?:(msgctxt|msgid_plural|msgid|msgstr)\s*(?:\[(\d{1,3})\])?\s*)?"((?:[^"\\]|\\.)*)"\s*')
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)")
_ESCAPED_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass
class Message:
    """One message and its translations."""

    line: int = 0
    id: str = ""
    plural: str = ""
    translations: dict[int, str] = field(default_factory=dict)
    fuzzy: bool = False


def parse_messages(path: Path, lines: Iterator[tuple[int, str]], problems: ProblemLog) -> Iterator[Message]:
    """Yield every message of the lines of a file, without the header and obsolete messages (#~)."""
    message: Message | None = Message()  # None: skip the remaining lines of an unusable message
    keyword = ""  # the part of the message that the next string belongs to
    for number, line in lines:
        line = line.strip()
        if not line:
            continue
        match = _STRING_LINE.fullmatch(line)
        new_keyword, form, text = match.groups() if match is not None else (None, None, "")
        is_comment = line.startswith("#")

        # after a translation, a comment, msgctxt or msgid begins the next message
        if message is None or message.translations:
            if is_comment or new_keyword in ("msgctxt", "msgid"):
                if message is not None and message.id:  # the message without an id is the header
                    yield message
                message, keyword = Message(), ""
            elif message is None:
                continue

        if is_comment:
            message.fuzzy |= line.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", line)
        elif match is None or (new_keyword is None and not keyword):
            problems.report(f"{path}:{number}", f"not a valid line of a .po file: {line[:60]!r}")
            message = None
        elif new_keyword == "msgid" and keyword == "msgid":
            problems.report(f"{path}:{message.line}", "a msgid without a msgstr")
            message = None
        else:
            message.line = message.line or number
            if new_keyword is not None:
                keyword = f"msgstr{int(form or 0)}" if new_keyword == "msgstr" else new_keyword
            text = _ESCAPE.sub(_unescape, text)
            if keyword == "msgid":
                message.id += text
            elif keyword == "msgid_plural":
                message.plural += text
            elif keyword.startswith("msgstr"):
                index = int(keyword.removeprefix("msgstr"))
                message.translations[index] = message.translations.get(index, "") + text

    if message is not None and message.id:
        if message.translations:
            yield message
        else:
            problems.report(f"{path}:{message.line}", "a msgid without a msgstr")


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED_LETTERS.get(code, code)
