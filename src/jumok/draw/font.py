"""Fonts for pictures: matplotlib's own, and one with Hangul where there is one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from jumok.errors import DrawError

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
    "Noto Sans CJK JP",  # every Noto Sans CJK face holds all Hangul syllables
    "Gulim",
    "Dotum",
)


def hangul_font() -> Path | None:
    """Find a font file with Hangul: an installed one, or the one inside ``koreanize_matplotlib``.

    >>> hangul_font()  # doctest: +SKIP
    PosixPath('/usr/share/fonts/truetype/nanum/NanumGothic.ttf')
    """
    installed = font_manager().fontManager.ttflist
    for family in HANGUL_FAMILIES:
        for entry in sorted((entry for entry in installed if entry.name == family), key=_plainness):
            if _has_hangul(Path(entry.fname)):
                return Path(entry.fname)
    # The package is looked up but not imported: importing it changes matplotlib's settings for everyone.
    try:
        found = importlib.util.find_spec("koreanize_matplotlib")
    except (ImportError, ValueError):
        found = None
    for folder in (found and found.submodule_search_locations) or []:
        for file in sorted(Path(folder).rglob("NanumGothic.ttf")):
            if _has_hangul(file):
                return file
    return None


def plain_font() -> Path:
    """The font file that comes inside matplotlib, whatever else is installed, so that pictures are the same."""
    fonts = font_manager()  # first, for its error
    import matplotlib

    file = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    if file.is_file():
        return file
    # A Linux distribution may keep it with the other fonts of the system.
    found = fonts.findfont("DejaVu Sans:style=normal:weight=normal")
    return Path(getattr(found, "path", found))


def characters(file: Path) -> frozenset[int]:
    """The code points for which a font file has a glyph."""
    return frozenset(int(code) for code in font_manager().get_font(str(file)).get_charmap())


def family(file: Path) -> str:
    """Let matplotlib know a font file under a family name of our own, and return the name.

    FontProperties(fname=...) takes one file and allows no fallback, yet a label such as "▁나는" needs two
    fonts. A list of families does fall back. A name that nobody else asks for cannot change what the other
    drawings of this process look like, as registering the file under its own name could.
    """
    fonts = font_manager()
    name = f"jumok:{file}"
    if not any(entry.name == name for entry in fonts.fontManager.ttflist):
        entry = fonts.FontEntry(
            fname=str(file), name=name, style="normal", variant="normal", weight=400, stretch="normal", size="scalable"
        )
        fonts.fontManager.ttflist.append(entry)
    return name


def font_manager() -> Any:
    """matplotlib's module of fonts, or a DrawError that says how to install matplotlib."""
    try:
        from matplotlib import font_manager
    except ImportError as error:
        raise DrawError(
            'Pictures need matplotlib, which is not installed; run: pip install "jumok[draw]" '
            "(a map in the terminal needs no extra)."
        ) from error
    return font_manager


def _plainness(entry: Any) -> tuple[bool, float, str]:
    """How far a font is from upright and regular, for sorting."""
    weight = {"regular": 400, "normal": 400, "light": 300, "bold": 700}.get(entry.weight, entry.weight)
    distance = abs(float(weight) - 400) if isinstance(weight, int | float) else 500.0
    return entry.style != "normal", distance, str(entry.fname)


def _has_hangul(file: Path) -> bool:
    """Whether a font file is there, can be read, and has Hangul syllables."""
    try:
        return file.is_file() and {ord("가"), ord("힣")} <= characters(file)
    except (OSError, RuntimeError):
        # matplotlib's list of fonts is a cache, so a file may have gone or changed since.
        return False
