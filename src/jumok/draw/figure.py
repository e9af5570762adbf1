"""A figure: fonts for its texts, also in Hangul, reproducible settings, positions in inches, and how it is saved."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jumok.errors import DrawError
from jumok.files import write_atomically

from .cell_text import escape, make_visible, truncate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontEntry

DOTS_PER_INCH = 150
WIDEST_LABEL = 32  # terminal cells
CAPTION_INK = "#595959"
# Conjoining letters (jamo), compatibility letters, and syllables.
HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7a3\ud7b0-\ud7ff]")
# in the order of preference; every Noto Sans CJK face contains all Hangul syllables
HANGUL_FAMILIES = (
    "Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Nanum Gothic", "NanumBarunGothic", "Malgun Gothic",
    "Apple SD Gothic Neo", "AppleGothic", "Pretendard", "Source Han Sans KR", "Source Han Sans K", "UnDotum",
    "Baekmuk Dotum", "Baekmuk Gulim", "Noto Sans CJK JP", "Gulim", "Dotum",
)  # fmt: skip
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

    ``texts`` are all texts that will be drawn; they decide which fonts are needed.
    """
    target = Path(path)
    if target.suffix.lower() not in (".png", ".svg"):
        raise DrawError(f"the image {target.name!r} must end in .png or .svg; rename it to one of these")
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
            "the labels have Hangul and no font with Hangul was found; install the Debian package "
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
            f"the image could not be written to {str(target)!r} ({error.strerror}); "
            "create the folder first, or choose another path"
        ) from error


def find_hangul_font() -> Path | None:
    """Find a font file with Hangul: an installed one, or the one inside ``koreanize_matplotlib``; None without any.

    >>> find_hangul_font()  # doctest: +SKIP
    PosixPath('/usr/share/fonts/truetype/nanum/NanumGothic.ttf')
    """
    installed = import_font_manager().fontManager.ttflist
    for family in HANGUL_FAMILIES:
        for entry in sorted((entry for entry in installed if entry.name == family), key=_rank_plainness):
            if _has_hangul(Path(entry.fname)):
                return Path(entry.fname)

    # The package is located without importing it: importing it changes matplotlib's settings globally.
    try:
        package = importlib.util.find_spec("koreanize_matplotlib")
    except (ImportError, ValueError):
        package = None
    for folder in (package and package.submodule_search_locations) or []:
        for file in sorted(Path(folder).rglob("NanumGothic.ttf")):
            if _has_hangul(file):
                return file
    return None


def find_default_font() -> Path:
    """Return the DejaVu Sans file that matplotlib ships, so that images do not depend on installed fonts."""
    fonts = import_font_manager()  # before the next import: it explains how to install matplotlib
    import matplotlib

    file = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    if file.is_file():
        return file
    # Linux distributions may move the file to the system's fonts. str(): newer versions return a str subclass.
    return Path(str(fonts.findfont("DejaVu Sans:style=normal:weight=normal")))


def read_characters(file: Path) -> frozenset[int]:
    """Return the code points for which a TrueType or OpenType font has a glyph."""
    return frozenset(int(code) for code in import_font_manager().get_font(str(file)).get_charmap())


def register_font(file: Path) -> str:
    """Register a font file with matplotlib under a private family name, and return that name.

    FontProperties(fname=...) uses a single file without fallback, but a label such as "▁나는" needs two fonts; a
    list of families does fall back. Registering under a private name cannot change other figures of this process.
    """
    fonts = import_font_manager()
    name = f"jumok:{file}"
    if not any(entry.name == name for entry in fonts.fontManager.ttflist):
        entry = fonts.FontEntry(
            fname=str(file), name=name, style="normal", variant="normal", weight=400, stretch="normal", size="scalable"
        )
        fonts.fontManager.ttflist.append(entry)
    return name


def import_font_manager() -> ModuleType:
    """Return ``matplotlib.font_manager``, or raise a DrawError that says how to install matplotlib."""
    try:
        from matplotlib import font_manager
    except ImportError as error:
        raise DrawError(
            'images need matplotlib, which is not installed; run: pip install "jumok[draw]" '
            "(a heat map in the terminal needs no extra)"
        ) from error
    return font_manager


def _rank_plainness(entry: FontEntry) -> tuple[bool, float, str]:
    """Sort key: upright and regular fonts first."""
    weight = {"regular": 400, "normal": 400, "light": 300, "bold": 700}.get(str(entry.weight), entry.weight)
    distance = abs(float(weight) - 400) if isinstance(weight, int | float) else 500.0
    return entry.style != "normal", distance, str(entry.fname)


def _has_hangul(file: Path) -> bool:
    """Return whether a font file exists, can be read, and contains Hangul syllables."""
    try:
        return file.is_file() and {ord("가"), ord("힣")} <= read_characters(file)
    except (OSError, RuntimeError):
        # matplotlib's list of fonts is cached, so a file may have disappeared or changed.
        return False
