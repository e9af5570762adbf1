"""What one picture is drawn on: fonts that have its labels, matplotlib's own defaults around it, a file at the end."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jumok.errors import DrawError

from .cell_text import cut, escaped, visible
from .font import characters, family, hangul_font, plain_font

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150
WIDEST_LABEL = 32

# Letters that join, letters that stand alone, and syllables.
HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7a3\ud7b0-\ud7ff]")

# Drawing needs some of matplotlib's global settings for a moment, which is not safe from two threads at once.
_DRAWING = threading.Lock()


class Sheet(NamedTuple):
    """The fonts of one picture, and what they can write."""

    families: list[str]
    characters: frozenset[int]

    def text(self, text: str) -> str:
        """The text with an escape in place of each character that the fonts lack."""
        return "".join(
            character if ord(character) in self.characters else escaped(character) for character in visible(text)
        )

    def labels(self, labels: Iterable[str]) -> list[str]:
        """Labels as they are drawn, cut if one is so long that it would push the map aside."""
        return [cut(self.text(label), WIDEST_LABEL) for label in labels]


@contextmanager
def sheet_for(texts: Iterable[str]) -> Iterator[Sheet]:
    """A sheet that can write these texts; inside, matplotlib has the settings of our pictures."""
    sheet = _sheet_for("".join(visible(text) for text in texts))
    import matplotlib.style

    settings = {
        "font.family": sheet.families,
        "text.parse_math": False,  # a token such as "$x_1$" is not a formula
        "svg.fonttype": "path",  # a viewer without a Hangul font shows it all the same
        "svg.hashsalt": "jumok",
    }
    # The defaults and not the caller's settings, so that equal input gives equal bytes.
    with _DRAWING, matplotlib.style.context(["default", settings]):
        yield sheet


def _sheet_for(text: str) -> Sheet:
    plain = plain_font()
    sheet = Sheet([family(plain)], characters(plain))
    if all(ord(character) in sheet.characters for character in text):
        return sheet
    hangul = hangul_font()
    if hangul is not None:
        return Sheet([*sheet.families, family(hangul)], sheet.characters | characters(hangul))
    if HANGUL.search(text):
        raise DrawError(
            "The labels have Hangul and no font with Hangul was found; install the Debian package "
            "fonts-nanum, or run: pip install koreanize-matplotlib"
        )
    return sheet


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH)


def write(figure: Figure, target: Path) -> Path:
    """Write the figure, without a date or a program's name in it."""
    kind = target.suffix.lower().removeprefix(".")
    picture = io.BytesIO()
    figure.savefig(
        picture,
        format=kind,
        dpi=DOTS_PER_INCH,
        bbox_inches="tight",
        pad_inches=0.15,
        metadata={"Date": None} if kind == "svg" else {"Software": None},
    )
    try:
        target.write_bytes(picture.getvalue())
    except OSError as error:
        raise DrawError(
            f"The picture could not be written to {str(target)!r} ({error.strerror}); "
            "make the folder first, or choose another path."
        ) from error
    return target
