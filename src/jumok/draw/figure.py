"""A figure: fonts for its texts, reproducible settings, positions in inches, and the one function that saves it."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.errors import DrawError
from jumok.files import write_atomically

from .cell_text import escape, make_visible, truncate
from .font import find_default_font, find_hangul_font, read_characters, register_font

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150
WIDEST_LABEL = 32  # terminal cells
CAPTION_INK = "#595959"

# Conjoining letters (jamo), compatibility letters, and syllables.
HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7a3\ud7b0-\ud7ff]")

# Drawing changes matplotlib's global settings temporarily, which two threads must not do at once.
_DRAWING = threading.Lock()


class Canvas:
    """A figure whose positions are inches from its upper left corner, and the code points that its fonts can draw."""

    def __init__(self, path: Path, characters: frozenset[int]) -> None:
        from matplotlib.figure import Figure

        self.path = path
        self.figure = Figure(dpi=DOTS_PER_INCH)
        self.width = self.height = 1.0
        self._characters = characters

    def resize(self, width: float, height: float) -> None:
        """Set the size in inches; what is drawn outside of it is in the image too."""
        self.width, self.height = width, height
        self.figure.set_size_inches(width, height)

    def replace_missing(self, text: str) -> str:
        """Return a text with an escape in place of each control character, and of each that the fonts lack."""
        return "".join(
            character if ord(character) in self._characters else escape(character) for character in make_visible(text)
        )

    def format_labels(self, labels: Iterable[str]) -> list[str]:
        """Return labels that the fonts can draw, shortened to at most 32 cells."""
        return [truncate(self.replace_missing(label), WIDEST_LABEL) for label in labels]

    def add_axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Add axes of a size at a position."""
        bottom = 1 - (top + height) / self.height
        return self.figure.add_axes((left / self.width, bottom, width / self.width, height / self.height))

    def write(self, left: float, top: float, text: str, **style: Any) -> None:
        """Write a text; ``style`` are keywords of matplotlib."""
        self.figure.text(left / self.width, 1 - top / self.height, self.replace_missing(text), **style)

    def write_heading(self, title: str, caption: str) -> None:
        """Write a title and a smaller caption above maps that have titles of their own; both may be empty."""
        top = 0.32  # inches above the maps
        if caption:
            self.write(0.0, -top, caption, ha="left", va="bottom", fontsize=8, color=CAPTION_INK)
            top += 0.22
        if title:
            self.write(self.width / 2, -top, title, ha="center", va="bottom", fontsize=12)


@contextmanager
def open_canvas(path: str | os.PathLike[str], texts: Iterable[str]) -> Iterator[Canvas]:
    """Draw with the settings of Jumok's images, and write the image when the block ends.

    Args:
        path: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
        texts: All texts that will be drawn; they decide which fonts are needed.

    Raises:
        DrawError: If the suffix is unknown, matplotlib or a font with Hangul is missing, or the file cannot be written.
    """
    target = Path(path)
    if target.suffix.lower() not in (".png", ".svg"):
        raise DrawError(f"The image {target.name!r} must end in .png or .svg; rename it to one of these.")
    families, characters = _select_fonts("".join(make_visible(text) for text in texts))
    import matplotlib.style

    settings = {
        "font.family": families,
        "text.parse_math": False,  # a token such as "$x_1$" is not a formula
        "axes.unicode_minus": False,  # the same sign as in the cells
        "svg.fonttype": "path",  # paths display without an installed Hangul font
        "svg.hashsalt": "jumok",
    }
    # matplotlib's defaults instead of the caller's settings: equal input gives equal bytes.
    with _DRAWING, matplotlib.style.context(["default", settings]):
        canvas = Canvas(target, characters)
        yield canvas
        save_figure(canvas.figure, target)


def _select_fonts(text: str) -> tuple[list[str], frozenset[int]]:
    """Return font families and their code points: matplotlib's own, with Hangul where the text needs more."""
    default = find_default_font()
    families, characters = [register_font(default)], read_characters(default)
    if all(ord(character) in characters for character in text):
        return families, characters

    hangul = find_hangul_font()
    if hangul is not None:
        return [*families, register_font(hangul)], characters | read_characters(hangul)
    if HANGUL.search(text):
        raise DrawError(
            "The labels have Hangul and no font with Hangul was found; install the Debian package "
            "fonts-nanum, or run: pip install koreanize-matplotlib"
        )
    return families, characters


def save_figure(figure: Figure, target: Path) -> None:
    """Write a figure without date or program name, so that equal figures give equal files."""
    image_format = target.suffix.lower().removeprefix(".")
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format=image_format,
        dpi=DOTS_PER_INCH,
        bbox_inches="tight",
        pad_inches=0.15,
        metadata={"Date": None} if image_format == "svg" else {"Software": None},
    )
    try:
        write_atomically(target, buffer.getvalue())
    except OSError as error:
        raise DrawError(
            f"The image could not be written to {str(target)!r} ({error.strerror}); "
            "create the folder first, or choose another path."
        ) from error
