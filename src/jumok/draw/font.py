"""Find fonts for images: the one that matplotlib ships, and an installed one with Hangul."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from jumok.errors import DrawError

if TYPE_CHECKING:
    from matplotlib.font_manager import FontEntry

HANGUL_FAMILIES = (
    "Noto Sans CJK KR",
    "Noto Sans KR",
    "NanumGothic",
    "Nanum Gothic",
    "NanumBarunGothic",
    "Malgun Gothic",
    "Apple SD Gothic Neo",
    "AppleGothic",
    "Pretendard",
    "Source Han Sans KR",
    "Source Han Sans K",
    "UnDotum",
    "Baekmuk Dotum",
    "Baekmuk Gulim",
    "Noto Sans CJK JP",  # every Noto Sans CJK face contains all Hangul syllables
    "Gulim",
    "Dotum",
)


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
            'Images need matplotlib, which is not installed; run: pip install "jumok[draw]" '
            "(a heat map in the terminal needs no extra)."
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
