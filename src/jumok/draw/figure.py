"""Set up a matplotlib figure: fonts for its texts, reproducible settings, and writing it to a file."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jumok.errors import DrawError
from jumok.files import write_atomically

from .cell_text import escape, make_visible, truncate
from .font import find_default_font, find_hangul_font, read_characters, register_font

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150
WIDEST_LABEL = 32  # terminal cells

# Conjoining letters (jamo), compatibility letters, and syllables.
HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7a3\ud7b0-\ud7ff]")

# Drawing changes matplotlib's global settings temporarily, which two threads must not do at once.
_DRAWING = threading.Lock()


class FigureFonts(NamedTuple):
    """The font families of one figure, and the code points for which they have glyphs."""

    families: list[str]
    characters: frozenset[int]

    def replace_missing(self, text: str) -> str:
        """Return the text with an escape in place of each character that the fonts lack.

        Args:
            text: Any text; control characters become visible escapes too.
        """
        return "".join(
            character if ord(character) in self.characters else escape(character) for character in make_visible(text)
        )

    def format_labels(self, labels: Iterable[str]) -> list[str]:
        """Return labels that the fonts can draw, shortened to at most 32 cells."""
        return [truncate(self.replace_missing(label), WIDEST_LABEL) for label in labels]


@contextmanager
def open_figure_style(texts: Iterable[str]) -> Iterator[FigureFonts]:
    """Apply the matplotlib settings of Jumok's images inside a ``with`` block.

    Args:
        texts: All texts that will be drawn; they decide which fonts are needed.

    Yields:
        The fonts of the figure.

    Raises:
        DrawError: If matplotlib is missing, or if the texts contain Hangul and no font with Hangul is installed.
    """
    fonts = _select_fonts("".join(make_visible(text) for text in texts))
    import matplotlib.style

    settings = {
        "font.family": fonts.families,
        "text.parse_math": False,  # a token such as "$x_1$" is not a formula
        "axes.unicode_minus": False,  # the same sign as in the cells
        "svg.fonttype": "path",  # paths display without an installed Hangul font
        "svg.hashsalt": "jumok",
    }
    # matplotlib's defaults instead of the caller's settings: equal input gives equal bytes.
    with _DRAWING, matplotlib.style.context(["default", settings]):
        yield fonts


def _select_fonts(text: str) -> FigureFonts:
    """Return matplotlib's own font, with a Hangul font as fallback where the text needs more characters."""
    default = find_default_font()
    fonts = FigureFonts([register_font(default)], read_characters(default))
    if all(ord(character) in fonts.characters for character in text):
        return fonts

    hangul = find_hangul_font()
    if hangul is not None:
        return FigureFonts([*fonts.families, register_font(hangul)], fonts.characters | read_characters(hangul))
    if HANGUL.search(text):
        raise DrawError(
            "The labels have Hangul and no font with Hangul was found; install the Debian package "
            "fonts-nanum, or run: pip install koreanize-matplotlib"
        )
    return fonts


def create_figure(width: float, height: float) -> Figure:
    """Create an empty figure."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH)


def save_figure(figure: Figure, target: Path) -> Path:
    """Write a figure without date or program name, so that equal figures give equal files.

    Args:
        target: The path of the image; its suffix selects the format.

    Returns:
        ``target``.

    Raises:
        DrawError: If the file cannot be written.
    """
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
    return target
