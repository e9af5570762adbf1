"""Read .gitignore files as git does, and decide which names they ignore. https://git-scm.com/docs/gitignore

A pattern becomes a regular expression whose wildcards never go back: patterns come from untrusted folders, and an
ordinary translation of *a*a*a*a*b takes hours for a long name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_BYTES = 256 * 1024  # of a .gitignore file
MAX_PATTERNS = 2000  # of a .gitignore file
_CHARACTER_CLASSES = {
    b"alnum": b"0-9A-Za-z", b"alpha": b"A-Za-z", b"blank": b" \\t", b"cntrl": b"\\x00-\\x1f\\x7f", b"digit": b"0-9",
    b"graph": b"\\x21-\\x7e", b"lower": b"a-z", b"print": b"\\x20-\\x7e", b"punct": b"!-/:-@\\[-`{-~",
    b"space": b"\\t-\\r ", b"upper": b"A-Z", b"xdigit": b"0-9A-Fa-f",
}  # fmt: skip


class _InvalidPatternError(ValueError):
    """The pattern matches nothing."""


@dataclass(frozen=True)
class IgnorePattern:
    """One line of a .gitignore file.

    Args:
        expression: The regular expression that the name, or the path relative to the file's folder, must match fully.
        is_negated: Whether the line begins with "!": names that match it are not ignored.
        folders_only: Whether the line ends with "/".
        matches_path: Whether the line contains another "/": then the path is compared, else the name.
    """

    expression: re.Pattern[bytes]
    is_negated: bool
    folders_only: bool
    matches_path: bool


def parse_ignore_file(content: bytes) -> tuple[IgnorePattern, ...]:
    """Return the patterns of a .gitignore file."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    patterns = (_parse_line(line.removesuffix(b"\r")) for line in lines[:MAX_PATTERNS])
    return tuple(pattern for pattern in patterns if pattern is not None)


def is_ignored(path: bytes, is_folder: bool, levels: Sequence[tuple[int, tuple[IgnorePattern, ...]]]) -> bool:
    """Return True if the .gitignore files above a path ignore it. Its parent folders must not be ignored themselves.

    Args:
        path: The path relative to the indexed folder.
        levels: The .gitignore files from the indexed folder downwards: the length of the path of the file's folder,
            including its last "/", and the patterns.
    """
    name = path[path.rfind(b"/") + 1 :]
    for length, patterns in reversed(levels):  # the file that is closest to the path decides
        relative = path[length:]
        for pattern in reversed(patterns):  # of several lines, the last one decides
            if pattern.folders_only and not is_folder:
                continue
            if pattern.expression.fullmatch(relative if pattern.matches_path else name):
                return not pattern.is_negated
    return False


def _parse_line(line: bytes) -> IgnorePattern | None:
    if line.startswith(b"#"):
        return None
    line = _strip_spaces(line)
    is_negated = line.startswith(b"!")
    line = line[1:] if is_negated else line
    folders_only = line.endswith(b"/")
    line = line[:-1] if folders_only else line
    if not line:
        return None
    matches_path = b"/" in line
    try:
        expression = _translate_path(line.removeprefix(b"/")) if matches_path else _translate_name(line)
        return IgnorePattern(re.compile(expression, re.DOTALL), is_negated, folders_only, matches_path)
    except (_InvalidPatternError, re.error):
        return None


def _strip_spaces(line: bytes) -> bytes:
    """Remove spaces at the end, except one after a backslash."""
    stripped = line.rstrip(b" ")
    backslashes = len(stripped) - len(stripped.rstrip(b"\\"))
    return line[: len(stripped) + 1] if backslashes % 2 and len(stripped) < len(line) else stripped


def _translate_path(pattern: bytes) -> bytes:
    """Return the expression of a pattern that is compared with a path: "**" stands for any number of folders."""
    segments = _split_path(pattern)
    expression = b""
    rest_is_atomic = 0  # open atomic groups
    for index, segment in enumerate(segments):
        is_last = index == len(segments) - 1
        if segment == b"**" and is_last and index > 0:
            expression += b".+"
        elif segment == b"**" and not is_last:
            # the first folder that fits is taken and not changed later: any later one would leave less of the path
            expression += b")" * rest_is_atomic + b"(?>(?:[^/]+/)*?"
            rest_is_atomic = 1
        else:
            expression += _translate_name(segment) + (b"" if is_last else b"/")
    if rest_is_atomic:  # the last group must reach the end of the path, so it may go back
        position = expression.rfind(b"(?>(?:[^/]+/)*?")
        expression = expression[:position] + b"(?:" + expression[position + 3 :] + b")"
    return expression


def _split_path(pattern: bytes) -> list[bytes]:
    """Split a pattern at each "/" outside of groups such as [a/]; two or more stars alone become "**"."""
    segments, start, index = [], 0, 0
    while index < len(pattern):
        letter = pattern[index : index + 1]
        if letter == b"[":
            _, index = _translate_bracket(pattern, index + 1)
            continue
        if letter == b"/":
            segments.append(pattern[start:index])
            start = index + 1
        index += 2 if letter == b"\\" and pattern[index + 1 : index + 2] != b"/" else 1
    segments.append(pattern[start:])
    return [b"**" if len(segment) > 1 and not segment.strip(b"*") else segment for segment in segments]


def _translate_name(pattern: bytes) -> bytes:
    """Return the expression of a pattern without "/". After each "*", the first fit of what follows is taken."""
    parts: list[bytes] = [b""]  # between the stars
    index = 0
    while index < len(pattern):
        letter = pattern[index : index + 1]
        index += 1
        if letter == b"*":
            parts.append(b"")
        elif letter == b"?":
            parts[-1] += b"[^/]"
        elif letter == b"[":
            group, index = _translate_bracket(pattern, index)
            parts[-1] += group
        elif letter == b"\\":
            if index == len(pattern):
                raise _InvalidPatternError
            parts[-1] += re.escape(pattern[index : index + 1])
            index += 1
        else:
            parts[-1] += re.escape(letter)
    if len(parts) == 1:
        return parts[0]
    middle = b"".join(b"(?>[^/]*?" + part + b")" for part in parts[1:-1] if part)
    return parts[0] + middle + b"[^/]*" + parts[-1]


def _translate_bracket(pattern: bytes, index: int) -> tuple[bytes, int]:
    """Return the expression of a group such as [a-z], which begins before ``index``, and the index after its end."""
    is_negated = pattern[index : index + 1] in (b"!", b"^")
    index += is_negated
    start = index
    members = b""
    while True:
        letter = pattern[index : index + 1]
        if not letter:
            raise _InvalidPatternError  # the group does not end
        if letter == b"]" and index > start:
            break
        if pattern[index : index + 2] == b"[:":
            end = pattern.find(b":]", index + 2)
            name = pattern[index + 2 : end]
            if end >= 0 and b"]" not in name:
                if name not in _CHARACTER_CLASSES:
                    raise _InvalidPatternError
                members += _CHARACTER_CLASSES[name]
                index = end + 2
                continue
        first, index = _read_member(pattern, index)
        if pattern[index : index + 1] == b"-" and pattern[index + 1 : index + 2] not in (b"]", b""):
            last, index = _read_member(pattern, index + 1)
            if first <= last:
                members += re.escape(first) + b"-" + re.escape(last)
        else:
            members += re.escape(first)
    index += 1
    if is_negated:
        return b"[^/" + members + b"]", index
    return (b"(?!/)[" + members + b"]" if members else b"(?!)"), index


def _read_member(pattern: bytes, index: int) -> tuple[bytes, int]:
    if pattern[index : index + 1] == b"\\":
        index += 1
    member = pattern[index : index + 1]
    if not member:
        raise _InvalidPatternError
    return member, index + 1
