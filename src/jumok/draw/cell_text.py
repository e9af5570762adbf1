"""What is written into a map, in a terminal and in a picture: labels of a known width, and weights."""

from __future__ import annotations

import unicodedata

# Shown for a weight of exactly zero, so that a causal mask is seen at once beside a small weight's "0.00".
ZERO_MARK = "·"


def value(weight: float) -> str:
    """A weight as it stands in its cell."""
    return ZERO_MARK if weight == 0 else f"{weight:.2f}"


def is_dark(red: float, green: float, blue: float) -> bool:
    """Whether white text is easier to read than black on this colour (sRGB, each part from 0 to 1)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    # The contrast formula of WCAG 2 would say 0.18, but on a middle blue black looks worse than it computes.
    return bool(luminance < 0.22)  # matplotlib's colours are numpy's floats, and compare to numpy's bool


def visible(label: str) -> str:
    r"""A label in which every character can be seen, on one line and without control codes.

    >>> visible("a\n"), visible(" ")
    ('a\\n', '␣')
    """
    # Decomposed Hangul (macOS writes file names so) looks the same composed, and is then of a known width.
    label = unicodedata.normalize("NFC", str(label))
    if label and not label.strip(" "):
        return "␣" * len(label)
    return "".join(character if character.isprintable() else escaped(character) for character in label)


def escaped(character: str) -> str:
    """The escape for a character that cannot be drawn."""
    return character.encode("unicode_escape").decode("ascii")


def cells(text: str) -> int:
    """How many terminal cells a text takes; Hangul takes two a syllable."""
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """The text, cut with an ellipsis if it is wider than ``width`` cells.

    >>> cut("attention", 6), cut("주목하다", 6)
    ('atten…', '주목…')
    """
    from rich.cells import set_cell_size

    if cells(text) <= width:
        return text
    # set_cell_size leaves a space where half of a wide character would be.
    return set_cell_size(text, width - 1).rstrip(" ") + "…"


def padded(text: str, width: int) -> str:
    """The text with spaces after it up to ``width`` cells."""
    return text + " " * (width - cells(text))


def centered(text: str, width: int) -> str:
    """The text in the middle of ``width`` cells."""
    # An odd space goes to the left, which puts "am" over the decimals of "0.47" as in a table of numbers.
    return padded(" " * ((width - cells(text) + 1) // 2) + text, width)
