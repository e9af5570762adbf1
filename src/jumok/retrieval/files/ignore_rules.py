"""Read .gitignore files as git does, and decide which names they ignore. https://git-scm.com/docs/gitignore

A pattern becomes a regular expression whose wildcards never go back: patterns come from untrusted folders, and an
ordinary translation, such as that of the library pathspec, needs 10 seconds for *a*a*a*a*b and one name of 255 letters.
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
# a group such as [!a-z], an escaped character or another one; what fits none of them makes the pattern invalid
_TOKEN = re.compile(
    rb"\[(?P<negation>[!^]?+)(?P<members>\]?+(?>\[:[^\]]*?:\]|\\.|[^\]\\])*)\]|\\(?P<escaped>.)|(?P<letter>[^\[\\])",
    re.DOTALL,
)
_MEMBER = re.compile(rb"\[:(?P<name>[^\]]*?):\]|\\?(?P<first>.)(?:-\\?(?P<last>.))?", re.DOTALL)
_ANY_FOLDERS = b"(?:[^/]+/)*?"


@dataclass(frozen=True)
class IgnorePattern:
    """One line of a .gitignore file."""

    expression: re.Pattern[bytes]  # must match the name, or the path relative to the file's folder, fully
    is_negated: bool  # the line begins with "!": names that match it are not ignored
    folders_only: bool  # the line ends with "/"
    matches_path: bool  # the line contains another "/": the path is compared, not the name


def parse_ignore_file(content: bytes) -> tuple[IgnorePattern, ...]:
    """Return the patterns of a .gitignore file."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    patterns = (_parse_line(line.removesuffix(b"\r")) for line in lines[:MAX_PATTERNS])
    return tuple(pattern for pattern in patterns if pattern is not None)


def is_ignored(path: bytes, is_folder: bool, levels: Sequence[tuple[int, tuple[IgnorePattern, ...]]]) -> bool:
    """Return True if the .gitignore files above a path ignore it. Its parent folders must not be ignored themselves.

    ``levels`` are the files from the indexed folder downwards: the length of the path of the file's folder, including
    its last "/", and the patterns.
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
    """Return the pattern of a line; None if it has none, or one that matches nothing."""
    if line.startswith(b"#"):
        return None
    stripped = line.rstrip(b" ")
    backslashes = len(stripped) - len(stripped.rstrip(b"\\"))
    line = line[: len(stripped) + backslashes % 2]  # an escaped space stays
    is_negated = line.startswith(b"!")
    line = line.removeprefix(b"!")
    folders_only = line.endswith(b"/")
    line = line.removesuffix(b"/")
    matches_path = b"/" in line
    try:
        expression = _translate(line.removeprefix(b"/") if matches_path else line)
        return IgnorePattern(re.compile(expression, re.DOTALL), is_negated, folders_only, matches_path)
    except ValueError:
        return None


def _translate(pattern: bytes) -> bytes:
    """Return the expression of a pattern: "**" as a whole segment of a path stands for any number of folders."""
    if not pattern:
        raise ValueError("the pattern is empty")
    *folders, last = _split_segments(pattern)
    expression = b""
    fixed = b""  # what follows the last "**"
    for segment in folders:
        if _is_double_star(segment):
            # the first folder that fits is taken and not changed later: any later one would leave less of the path
            expression += b"(?>" + fixed + b")"
            fixed = _ANY_FOLDERS
        else:
            fixed += _translate_segment(segment) + b"/"
    # what reaches the end of the path may go back
    return expression + fixed + (b".+" if folders and _is_double_star(last) else _translate_segment(last))


def _is_double_star(segment: list[re.Match[bytes]]) -> bool:
    return len(segment) > 1 and all(token["letter"] == b"*" for token in segment)


def _split_segments(pattern: bytes) -> list[list[re.Match[bytes]]]:
    """Return the tokens of a pattern, split at each "/" outside of groups such as [a/]."""
    segments: list[list[re.Match[bytes]]] = [[]]
    position = 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            raise ValueError("a group or an escape does not end")
        if b"/" in (token["letter"], token["escaped"]):
            segments.append([])
        else:
            segments[-1].append(token)
        position = token.end()
    return segments


def _translate_segment(tokens: list[re.Match[bytes]]) -> bytes:
    """Return the expression of a segment. After each "*", the first fit of what follows is taken."""
    parts = [b""]  # between the stars
    for token in tokens:
        if token["letter"] == b"*":
            parts.append(b"")
        elif token["letter"] == b"?":
            parts[-1] += b"[^/]"
        elif token["members"] is not None:
            parts[-1] += _translate_group(token["members"], bool(token["negation"]))
        else:
            parts[-1] += re.escape(token["letter"] or token["escaped"])
    if len(parts) == 1:
        return parts[0]
    middle = b"".join(b"(?>[^/]*?" + part + b")" for part in parts[1:-1] if part)
    return parts[0] + middle + b"[^/]*" + parts[-1]


def _translate_group(members: bytes, is_negated: bool) -> bytes:
    """Return the expression of a group such as [a-z], without its brackets."""
    expression = b""
    for member in _MEMBER.finditer(members):
        name, first, last = member["name"], member["first"], member["last"]
        if name is not None and name not in _CHARACTER_CLASSES:
            raise ValueError("unknown class of characters")
        if name is not None:
            expression += _CHARACTER_CLASSES[name]
        elif last is None:
            expression += re.escape(first)
        elif first <= last:
            expression += re.escape(first) + b"-" + re.escape(last)
    if is_negated:
        return b"[^/" + expression + b"]"
    return b"(?!/)[" + expression + b"]" if expression else b"(?!)"
