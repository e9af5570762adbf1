"""Format the text of a heat map, in a terminal and in an image: labels and weights, measured in terminal cells."""

from __future__ import annotations

import unicodedata

# Shown for a weight of exactly zero, so that masked cells differ from small weights, which print as "0.00".
ZERO_MARK = "·"


def format_weight(weight: float) -> str:
    """Return the text of a weight's cell: two decimals, or a dot for exactly zero."""
    return ZERO_MARK if weight == 0 else f"{weight:.2f}"


def is_dark(red: float, green: float, blue: float) -> bool:
    """Return whether white text is easier to read than black text on an sRGB colour with parts from 0 to 1."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    # The WCAG 2 contrast formula gives 0.18, but black on medium blue is harder to read than the formula predicts.
    return bool(luminance < 0.22)  # bool(): matplotlib's colours are numpy floats, which compare to numpy.bool


def make_visible(label: str) -> str:
    r"""Return a label on one line with every character printable; control characters become escapes.

    >>> make_visible("a\n"), make_visible(" ")
    ('a\\n', '␣')
    """
    # macOS writes decomposed Hangul; composed, it looks the same and its width in cells is known.
    label = unicodedata.normalize("NFC", str(label))
    if label and not label.strip(" "):
        return "␣" * len(label)
    return "".join(character if character.isprintable() else escape(character) for character in label)


def escape(character: str) -> str:
    """Return the backslash escape of a character that cannot be drawn."""
    return character.encode("unicode_escape").decode("ascii")


def count_cells(text: str) -> int:
    """Return how many terminal cells a text occupies; a Hangul syllable occupies two."""
    from rich.cells import cell_len

    return cell_len(text)


def truncate(text: str, width: int) -> str:
    """Return the text, shortened with an ellipsis if it is wider than ``width`` terminal cells.

    >>> truncate("attention", 6), truncate("주목하다", 6)
    ('atten…', '주목…')
    """
    from rich.cells import set_cell_size

    if count_cells(text) <= width:
        return text
    # set_cell_size leaves a space where it cuts a wide character in half.
    return set_cell_size(text, width - 1).rstrip(" ") + "…"


def pad(text: str, width: int) -> str:
    """Append spaces to a text until it is ``width`` cells wide."""
    return text + " " * (width - count_cells(text))


def center(text: str, width: int) -> str:
    """Center a text in ``width`` cells."""
    # An odd space goes to the left, which puts "am" above the decimals of "0.47", as in a table of numbers.
    return pad(" " * ((width - count_cells(text) + 1) // 2) + text, width)
