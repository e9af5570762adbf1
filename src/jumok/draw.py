"""Draw attention patterns: as text for a terminal, or as a PNG or SVG picture.

A pattern is one head's weights as drawn: rows are queries, columns are keys, and every weight is between
0 and 1. Anything `numpy.asarray` takes will do, so a torch tensor on the CPU works as it is.

    >>> text = terminal_heat_map([[1, 0], [0.25, 0.75]], ["I", "am"], ["I", "am"], color=False)
    >>> print(text)  # doctest: +NORMALIZE_WHITESPACE
         I    am
    I   1.00   ·
    am  0.25 0.75

The pictures need matplotlib, which is an extra: `pip install "jumok[draw]"`.
"""

from __future__ import annotations

import importlib.util
import io
import math
import os
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    from typing import Any

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

__all__ = ["DrawError", "hangul_font", "head_grid", "heat_map", "terminal_heat_map"]

# Softmax in half precision overshoots 1 a little; anything further out is not a weight.
TOLERANCE = 1e-4

# Shown for a weight of exactly zero, so that a causal mask is seen at once beside a small weight's "0.00".
ZERO_MARK = "·"

# Terminal shades from a small weight to a large one. The 256-colour palette is used and not 24-bit colour
# because macOS's Terminal did not know the latter for years, and the number is in the cell anyway.
TERMINAL_SHADES = (189, 153, 117, 111, 75, 69, 33, 27, 26, 25, 18)

TERMINAL_WIDTH = 80
NARROWEST_COLUMN = 4  # as wide as "0.47"
WIDEST_COLUMN = 12
WIDEST_ROW_LABEL = 16
WIDEST_PICTURE_LABEL = 32

COLOR_MAP = "Blues"
DOTS_PER_INCH = 150
MAP_VALUES_LIMIT = 24
GRID_VALUES_LIMIT = 8
# A map with values cannot shrink below readable cells, so past this many it would be metres wide.
VALUES_LIMIT = 200

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

# Drawing needs some of matplotlib's global settings for a moment, which is not safe from two threads at once.
_DRAWING = threading.Lock()


class DrawError(Exception):
    """A sentence for a person: what was wrong with a drawing, and what to do.

    >>> try:
    ...     heat_map("map.gif", [[1.0]], ["a"], ["a"])
    ... except DrawError as error:
    ...     print(error)
    The picture 'map.gif' must end in .png or .svg; rename it to one of these.
    """


def terminal_heat_map(
    pattern: ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str = "",
    color: bool = True,
    width: int | None = None,
) -> str:
    """Draw a pattern as text: a row for each query, a column for each key, the weight in each cell.

    A weight of exactly zero is shown as a faint dot. With `color` each cell has a background shade in ANSI
    codes. A map wider than `width` columns loses its last keys, and a note under it says how many.

    >>> text = terminal_heat_map([[1, 0], [0.25, 0.75]], ["I", "am"], ["I", "am"], color=False)
    >>> print(text)  # doctest: +NORMALIZE_WHITESPACE
         I    am
    I   1.00   ·
    am  0.25 0.75
    """
    from rich.cells import cell_len

    weights = _one_pattern(pattern)
    query_labels = [_visible(label) for label in queries]
    key_labels = [_visible(label) for label in keys]
    _check_counts(weights, query_labels, key_labels)

    row_width = min(max(cell_len(label) for label in query_labels), WIDEST_ROW_LABEL)
    left = row_width + 1  # a plain space, so that the first shade does not touch the label
    room = (TERMINAL_WIDTH if width is None else width) - left
    # Without a width nothing is cut, and a column keeps enough cells for a few letters of its label.
    narrowest = 6 if width is None else NARROWEST_COLUMN
    widest = min(max(room // len(key_labels) - 1, narrowest), WIDEST_COLUMN)
    column = max(NARROWEST_COLUMN, min(max(cell_len(label) for label in key_labels), widest))
    shown = len(key_labels)
    if width is not None:
        shown = min(shown, room // (column + 1))
        if shown < 1:
            raise DrawError(
                f"A width of {width} columns is too narrow for even one key of this map; "
                f"give a width of at least {left + column + 1}."
            )

    lines = []
    if title:
        title = _visible(title)
        lines.append(_cut(title, width) if width is not None else title)
    header = "".join(" " + _centered(_cut(label, column), column) for label in key_labels[:shown])
    lines.append(" " * left + header)
    for label, row in zip(query_labels, weights, strict=True):
        cells = "".join(_terminal_cell(float(weight), column, color=color) for weight in row[:shown])
        lines.append(_padded(_cut(label, row_width), left) + cells)
    if shown < len(key_labels):
        hidden = len(key_labels) - shown
        lines.append(f"… {hidden} more {'key' if hidden == 1 else 'keys'} not shown")
    return "\n".join(lines)


def heat_map(
    path: str | os.PathLike[str],
    pattern: ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str = "",
    values: bool | None = None,
) -> Path:
    """Write a pattern as a PNG or SVG picture, by the path's suffix, and return the path.

    `values` puts the weight into each cell; left out, it is on for maps of at most 24 by 24. Equal input
    gives equal bytes.

    >>> heat_map("map.png", [[1, 0], [0.25, 0.75]], ["나는", "간다"], ["나는", "간다"])  # doctest: +SKIP
    PosixPath('map.png')
    """
    target = _picture_path(path)
    weights = _one_pattern(pattern)
    _check_counts(weights, queries, keys)
    larger = max(weights.shape)
    if values is None:
        values = larger <= MAP_VALUES_LIMIT
    if values and larger > VALUES_LIMIT:
        raise DrawError(
            f"A map of {_size(weights)} is too large for a value in each cell (at most {VALUES_LIMIT} by "
            f"{VALUES_LIMIT}); leave values off or draw a slice of it."
        )
    # Inches: roomy for a sentence, then shrinking so that the whole stays on a screen.
    cell = min(0.6, max(10 / larger, 0.34)) if values else min(0.6, 8 / larger)

    with _Sheet([*queries, *keys, title]) as sheet:
        query_labels, key_labels = sheet.labels(queries), sheet.labels(keys)
        map_width, map_height = cell * len(key_labels), cell * len(query_labels)
        figure = sheet.figure(map_width, map_height)
        axes = figure.add_axes((0, 0, 1, 1))
        label_size = min(10.0, max(6.0, cell * 72 * 0.5))
        _draw_map(
            axes,
            weights,
            query_labels,
            key_labels,
            cell=cell,
            label_size=label_size,
            value_size=min(9.0, cell * 72 * 0.33) if values else None,
            keys_on_top=True,
        )
        axes.set_xlabel("key", fontsize=10, labelpad=6)
        axes.set_ylabel("query", fontsize=10, labelpad=6)
        if title:
            axes.set_title(sheet.text(title), fontsize=12, pad=10)
        _color_bar(figure, map_width, map_height, gap=0.2)
        return sheet.write(figure, target)


def head_grid(
    path: str | os.PathLike[str],
    patterns: ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    titles: Sequence[str] | None = None,
    title: str = "",
) -> Path:
    """Write one map for each head, side by side in a PNG or SVG picture, and return the path.

    The maps are titled "head 0", "head 1" and so on unless `titles` says otherwise. They share their labels
    and one colour bar. Equal input gives equal bytes.

    >>> head_grid("heads.png", numpy.full((8, 2, 2), 0.5), ["I", "am"], ["I", "am"])  # doctest: +SKIP
    PosixPath('heads.png')
    """
    target = _picture_path(path)
    weights = _weights(patterns)
    if weights.ndim == 2:
        weights = weights[numpy.newaxis]
    heads = len(weights)
    _check_counts(weights[0], queries, keys)
    if titles is None:
        titles = [f"head {head}" for head in range(heads)]
    if len(titles) != heads:
        raise DrawError(
            f"There are {len(titles)} titles but {heads} heads; give one title for each head, or none at all."
        )

    larger = max(weights.shape[1:])
    values = larger <= GRID_VALUES_LIMIT
    cell = max(0.34, min(0.5, 1.6 / larger)) if values else 2.7 / larger
    rows = math.ceil(heads / (4 if heads <= 16 else 8))
    columns = math.ceil(heads / rows)  # 6 heads become 3 and 3, not 4 and 2

    with _Sheet([*queries, *keys, *titles, title]) as sheet:
        query_labels, key_labels = sheet.labels(queries), sheet.labels(keys)
        map_width, map_height = cell * len(key_labels), cell * len(query_labels)
        across = max(map_width, 0.6) + 0.2  # a map of one key still leaves room for "head 10" above it
        down = map_height + 0.4
        total_width = across * (columns - 1) + map_width
        total_height = down * (rows - 1) + map_height
        figure = sheet.figure(total_width, total_height)
        for head in range(heads):
            row, column = divmod(head, columns)
            axes = figure.add_axes(
                (
                    across * column / total_width,
                    1 - (down * row + map_height) / total_height,
                    map_width / total_width,
                    map_height / total_height,
                )
            )
            lowest = head + columns >= heads
            _draw_map(
                axes,
                weights[head],
                # The maps of a grid share their labels: queries at the left, keys below the lowest map.
                query_labels if column == 0 else None,
                key_labels if lowest else None,
                cell=cell,
                label_size=8.0 if values else 6.5,
                value_size=7.0 if values else None,
                keys_on_top=False,
            )
            axes.set_title(sheet.text(titles[head]), fontsize=9, pad=4)
            if column == 0:
                axes.set_ylabel("query", fontsize=8)
            if lowest:
                axes.set_xlabel("key", fontsize=8)
        if title:
            figure.text(0.5, 1 + 0.32 / total_height, sheet.text(title), ha="center", va="bottom", fontsize=12)
        _color_bar(figure, total_width, total_height, gap=0.25)
        return sheet.write(figure, target)


def hangul_font() -> Path | None:
    """Find a font file with Hangul: an installed one, or the one inside `koreanize_matplotlib`.

    >>> hangul_font()  # doctest: +SKIP
    PosixPath('/usr/share/fonts/truetype/nanum/NanumGothic.ttf')
    """
    font_manager = _font_manager()
    known: dict[str, list[Any]] = {}
    for entry in font_manager.fontManager.ttflist:
        known.setdefault(entry.name, []).append(entry)
    for family in HANGUL_FAMILIES:
        for entry in sorted(known.get(family, []), key=_plainness):
            if _has_hangul_glyphs(Path(entry.fname)):
                return Path(entry.fname)
    # The package is looked up but not imported: importing it changes matplotlib's settings for everyone.
    try:
        found = importlib.util.find_spec("koreanize_matplotlib")
    except (ImportError, ValueError):
        found = None
    for folder in (found.submodule_search_locations if found is not None else None) or []:
        for file in sorted(Path(folder).rglob("NanumGothic.ttf")):
            if _has_hangul_glyphs(file):
                return file
    return None


# Checking what was given


def _weights(pattern: ArrayLike) -> NDArray[numpy.float64]:
    """The weights as a checked array of two or three dimensions.

    >>> _weights([[1, 0], [0.25, 0.75]]).shape
    (2, 2)
    """
    try:
        array = numpy.asarray(pattern)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DrawError(
            f"The pattern cannot be read as an array of numbers ({error}); give a numpy array, nested lists "
            "or a torch tensor after .detach().float().cpu()."
        ) from error
    if array.dtype.kind not in "biuf":
        raise DrawError(
            f"The pattern holds {array.dtype} and not numbers; give weights between 0 and 1, for instance as float32."
        )
    if array.ndim not in (2, 3):
        raise DrawError(
            f"The pattern has {array.ndim} dimensions {array.shape}; give [query, key] or [head, query, key]."
        )
    if array.size == 0:
        raise DrawError(f"The pattern is empty {array.shape}; give at least one head, one query and one key.")
    weights = array.astype(numpy.float64)
    if not numpy.isfinite(weights).all():
        raise DrawError(
            "The pattern has weights that are not finite (nan or infinity); "
            "draw the weights after the softmax, and look for a row in which every key is masked."
        )
    lowest, highest = float(weights.min()), float(weights.max())
    if lowest < -TOLERANCE or highest > 1 + TOLERANCE:
        raise DrawError(
            f"The pattern has weights from {lowest:.4g} to {highest:.4g}, outside 0 to 1; "
            "draw the weights after the softmax, not the scores before it."
        )
    return numpy.clip(weights, 0.0, 1.0)


def _one_pattern(pattern: ArrayLike) -> NDArray[numpy.float64]:
    """The checked weights of a single head, as [query, key].

    >>> _one_pattern([[[1.0]]]).shape
    (1, 1)
    """
    weights = _weights(pattern)
    if weights.ndim == 3:
        if len(weights) != 1:
            raise DrawError(
                f"There are {len(weights)} heads, and this draws one; "
                "give pattern[0] for the first, or draw them all with head_grid."
            )
        weights = weights[0]
    return weights


def _check_counts(weights: NDArray[numpy.float64], queries: Sequence[str], keys: Sequence[str]) -> None:
    """Refuse labels that do not number the same as the rows and columns.

    >>> _check_counts(numpy.ones((1, 2)), ["a"], ["a", "b"])
    """
    for word, labels, count in (
        ("query", queries, weights.shape[0]),
        ("key", keys, weights.shape[1]),
    ):
        if len(labels) != count:
            many = {"query": "queries", "key": "keys"}[word] if count != 1 else word
            raise DrawError(
                f"There are {len(labels)} {word} labels but the pattern has {count} {many}; "
                f"give one label for each {word}."
            )


def _picture_path(path: str | os.PathLike[str]) -> Path:
    """The path, if its suffix names a kind of picture that can be written.

    >>> _picture_path("map.PNG").name
    'map.PNG'
    """
    target = Path(path)
    if target.suffix.lower() not in (".png", ".svg"):
        raise DrawError(f"The picture {target.name!r} must end in .png or .svg; rename it to one of these.")
    return target


def _size(weights: NDArray[numpy.float64]) -> str:
    """The size of a map in words.

    >>> _size(numpy.ones((2, 3)))
    '2 by 3'
    """
    return f"{weights.shape[0]} by {weights.shape[1]}"


# Labels


def _visible(label: str) -> str:
    r"""A label in which every character can be seen, on one line and without control codes.

    >>> _visible("a\n"), _visible(" ")
    ('a\\n', '␣')
    """
    # Decomposed Hangul (macOS writes file names so) looks the same composed, and is then of a known width.
    label = unicodedata.normalize("NFC", str(label))
    if label and not label.strip(" "):
        return "␣" * len(label)
    return "".join(character if character.isprintable() else _escaped(character) for character in label)


def _escaped(character: str) -> str:
    r"""The escape for a character that cannot be drawn.

    >>> _escaped("\u200b")
    '\\u200b'
    """
    return character.encode("unicode_escape").decode("ascii")


def _has_hangul(text: str) -> bool:
    """Whether a text has Hangul syllables or letters.

    >>> _has_hangul("▁나는"), _has_hangul("I")
    (True, False)
    """
    return any(
        "\uac00" <= character <= "\ud7a3"  # syllables
        or "\u1100" <= character <= "\u11ff"  # letters that join
        or "\u3131" <= character <= "\u318e"  # letters that stand alone
        or "\ua960" <= character <= "\ua97f"
        or "\ud7b0" <= character <= "\ud7ff"
        for character in text
    )


def _cut(text: str, width: int) -> str:
    """The text, cut with an ellipsis if it is wider than `width` cells; Hangul is two cells wide.

    >>> _cut("attention", 6), _cut("주목하다", 6)
    ('atten…', '주목…')
    """
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    # set_cell_size leaves a space where half of a wide character would be.
    return set_cell_size(text, width - 1).rstrip(" ") + "…"


def _padded(text: str, width: int) -> str:
    """The text with spaces after it up to `width` cells.

    >>> _padded("주목", 6)
    '주목  '
    """
    from rich.cells import cell_len

    return text + " " * (width - cell_len(text))


def _centered(text: str, width: int) -> str:
    """The text in the middle of `width` cells.

    >>> _centered("주목", 6)
    ' 주목 '
    """
    from rich.cells import cell_len

    # An odd space goes to the left, which puts "am" over the decimals of "0.47" as in a table of numbers.
    left = (width - cell_len(text) + 1) // 2
    return _padded(" " * left + text, width)


# Terminal


def _terminal_cell(weight: float, column: int, *, color: bool) -> str:
    """One cell of a terminal map, a space and then `column` cells.

    >>> _terminal_cell(0.472, 6, color=False)
    '  0.47 '
    """
    text = " " + _centered(ZERO_MARK if weight == 0 else f"{weight:.2f}", column)
    if not color:
        return text

    from rich.color import Color, ColorSystem
    from rich.style import Style

    if weight == 0:
        style = Style(dim=True)
    else:
        shade = TERMINAL_SHADES[min(int(weight * len(TERMINAL_SHADES)), len(TERMINAL_SHADES) - 1)]
        background = Color.from_ansi(shade)
        red, green, blue = background.get_truecolor()
        # 16 and 231 are the palette's fixed black and white; 0 and 15 are repainted by terminal themes.
        ink = 231 if _is_dark(red / 255, green / 255, blue / 255) else 16
        style = Style(color=Color.from_ansi(ink), bgcolor=background)
    return style.render(text, color_system=ColorSystem.EIGHT_BIT)


def _is_dark(red: float, green: float, blue: float) -> bool:
    """Whether white text is easier to read than black on this colour.

    >>> _is_dark(0, 0, 0.5), _is_dark(1, 1, 0.5)
    (True, False)
    """
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    # The contrast formula of WCAG 2 would say 0.18, but on a middle blue black looks worse than it computes.
    return luminance < 0.22


# Pictures


def _font_manager() -> Any:
    """Give matplotlib's font manager module, or a DrawError that says how to install matplotlib.

    >>> _font_manager().__name__
    'matplotlib.font_manager'
    """
    try:
        from matplotlib import font_manager
    except ImportError as error:
        raise DrawError(
            'Pictures need matplotlib, which is not installed; run: pip install "jumok[draw]" '
            "(a map in the terminal needs no extra)."
        ) from error
    return font_manager


def _plainness(entry: Any) -> tuple[bool, float, str]:
    """How far a font is from upright and regular, for sorting.

    >>> from types import SimpleNamespace
    >>> _plainness(SimpleNamespace(style="normal", weight=700, fname="bold.ttf"))
    (False, 300.0, 'bold.ttf')
    """
    weight = {"regular": 400, "normal": 400, "light": 300, "bold": 700}.get(entry.weight, entry.weight)
    distance = abs(float(weight) - 400) if isinstance(weight, int | float) else 500.0
    return entry.style != "normal", distance, str(entry.fname)


def _characters(file: Path) -> frozenset[int]:
    """The code points for which a font file has a glyph.

    >>> ord("A") in _characters(_plain_font())
    True
    """
    return frozenset(int(code) for code in _font_manager().get_font(str(file)).get_charmap())


def _plain_font() -> Path:
    """The font file that comes inside matplotlib, whatever else is installed, so that pictures are the same.

    >>> _plain_font().name
    'DejaVuSans.ttf'
    """
    import matplotlib

    file = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    if file.is_file():
        return file
    # A Linux distribution may keep it with the other fonts of the system.
    found = _font_manager().findfont("DejaVu Sans:style=normal:weight=normal")
    return Path(getattr(found, "path", found))


def _family(file: Path) -> str:
    """Let matplotlib know a font file under a family name of our own, and return the name.

    FontProperties(fname=...) takes one file and allows no fallback, yet a label such as "▁나는" needs two
    fonts. A list of families does fall back. A name that nobody else asks for cannot change what the other
    drawings of this process look like, as registering the file under its own name could.

    >>> _family(_plain_font()).startswith("jumok:")
    True
    """
    font_manager = _font_manager()
    name = f"jumok:{file}"
    fonts = font_manager.fontManager.ttflist
    if not any(entry.name == name for entry in fonts):
        fonts.append(
            font_manager.FontEntry(
                fname=str(file),
                name=name,
                style="normal",
                variant="normal",
                weight=400,
                stretch="normal",
                size="scalable",
            )
        )
    return name


def _has_hangul_glyphs(file: Path) -> bool:
    """Whether a font file is there, can be read, and has Hangul syllables.

    >>> _has_hangul_glyphs(Path("missing.ttf"))
    False
    """
    try:
        return file.is_file() and {ord("가"), ord("힣")} <= _characters(file)
    except (OSError, RuntimeError):
        # matplotlib's list of fonts is a cache, so a file may have gone or changed since.
        return False


class _Sheet:
    """The settings of one picture: fonts that have its labels, and matplotlib's own defaults around it.

    >>> with _Sheet(["$x_1$"]) as sheet:
    ...     sheet.labels(["$x_1$"])
    ['$x_1$']
    """

    def __init__(self, texts: Iterable[str]) -> None:
        _font_manager()  # says how to install matplotlib if it is missing
        texts = [_visible(text) for text in texts]
        plain = _plain_font()
        self.families = [_family(plain)]
        self.characters = _characters(plain)
        if all(ord(character) in self.characters for text in texts for character in text):
            return
        hangul = hangul_font()
        if hangul is not None:
            self.families.append(_family(hangul))
            self.characters |= _characters(hangul)
        elif any(_has_hangul(text) for text in texts):
            raise DrawError(
                "The labels have Hangul and no font with Hangul was found; install the Debian package "
                "fonts-nanum, or run: pip install koreanize-matplotlib"
            )

    def __enter__(self) -> _Sheet:
        import matplotlib.style

        _DRAWING.acquire()
        try:
            # The defaults and not the caller's settings, so that equal input gives equal bytes.
            self._settings = matplotlib.style.context(
                [
                    "default",
                    {
                        "font.family": self.families,
                        "text.parse_math": False,  # a token such as "$x_1$" is not a formula
                        "svg.fonttype": "path",  # a viewer without a Hangul font shows it all the same
                        "svg.hashsalt": "jumok",
                    },
                ]
            )
            self._settings.__enter__()
        except BaseException:
            _DRAWING.release()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._settings.__exit__(*error)
        finally:
            _DRAWING.release()

    def figure(self, width: float, height: float) -> Figure:
        """An empty figure of so many inches.

        >>> with _Sheet([]) as sheet:
        ...     float(sheet.figure(2, 1).get_figwidth())
        2.0
        """
        from matplotlib.figure import Figure

        return Figure(figsize=(width, height), dpi=DOTS_PER_INCH)

    def text(self, text: str) -> str:
        r"""The text with an escape in place of each character that the fonts lack.

        >>> with _Sheet(["\U0010fffd"]) as sheet:
        ...     sheet.text("a\U0010fffd")
        'a\\U0010fffd'
        """
        return "".join(
            character if ord(character) in self.characters else _escaped(character) for character in _visible(text)
        )

    def labels(self, labels: Iterable[str]) -> list[str]:
        """Labels as they are drawn, cut if one is so long that it would push the map aside.

        >>> with _Sheet(["I"]) as sheet:
        ...     sheet.labels(["I"])
        ['I']
        """
        return [_cut(self.text(label), WIDEST_PICTURE_LABEL) for label in labels]

    def write(self, figure: Figure, target: Path) -> Path:
        """Write the figure, without a date or a program's name in it.

        >>> with _Sheet([]) as sheet:  # doctest: +SKIP
        ...     sheet.write(sheet.figure(1, 1), Path("empty.png"))
        PosixPath('empty.png')
        """
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


def _draw_map(
    axes: Axes,
    weights: NDArray[numpy.float64],
    query_labels: list[str] | None,
    key_labels: list[str] | None,
    *,
    cell: float,
    label_size: float,
    value_size: float | None,
    keys_on_top: bool,
) -> None:
    """Draw one map into axes whose size fits cells of `cell` inches; None draws no labels at that side.

    >>> with _Sheet([]) as sheet:
    ...     axes = sheet.figure(1, 1).add_axes((0, 0, 1, 1))
    ...     _draw_map(axes, numpy.ones((1, 1)), ["a"], ["a"], cell=1.0, label_size=9.0, value_size=9.0,
    ...               keys_on_top=True)
    """
    from rich.cells import cell_len

    query_count, key_count = weights.shape
    image = axes.imshow(weights, cmap=COLOR_MAP, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    axes.spines[:].set_color("#999999")
    axes.spines[:].set_linewidth(0.6)
    if cell >= 0.12:
        axes.set_xticks(numpy.arange(key_count - 1) + 0.5, minor=True)
        axes.set_yticks(numpy.arange(query_count - 1) + 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.0 if cell >= 0.3 else 0.5)
    axes.tick_params(which="minor", length=0)
    axes.tick_params(which="major", length=2, width=0.6, color="#999999", labelsize=label_size, pad=3)
    axes.tick_params(
        axis="x", which="major", top=keys_on_top, labeltop=keys_on_top,
        bottom=not keys_on_top, labelbottom=not keys_on_top,
    )  # fmt: skip
    if keys_on_top:
        axes.xaxis.set_label_position("top")

    # Where the cells are lower than a line of text, only every so many labels have room.
    step = max(1, math.ceil(label_size * 1.2 / 72 / cell))
    if query_labels is None:
        axes.set_yticks([])
    else:
        axes.set_yticks(range(0, query_count, step), query_labels[::step])
    if key_labels is None:
        axes.set_xticks([])
    else:
        # A terminal cell is about 0.6 of the font's size wide.
        widest = max(cell_len(label) for label in key_labels) * label_size * 0.62 / 72
        flat = widest <= cell * step * 0.9
        rotation = 0 if flat else (45 if cell * step >= label_size * 2.1 / 72 else 90)
        axes.set_xticks(range(0, key_count, step), key_labels[::step])
        for label in axes.get_xticklabels():
            label.set_rotation(rotation)
            if rotation == 45:
                label.set_rotation_mode("anchor")
                label.set_horizontalalignment("left" if keys_on_top else "right")
                label.set_verticalalignment("center")

    if value_size is not None:
        for (query, key), weight in numpy.ndenumerate(weights):
            red, green, blue, _ = image.cmap(float(weight))
            ink = "white" if _is_dark(red, green, blue) else "#1a1a1a"
            axes.text(
                key,
                query,
                ZERO_MARK if weight == 0 else f"{weight:.2f}",
                ha="center",
                va="center",
                fontsize=value_size * 1.6 if weight == 0 else value_size,
                color="#8c8c8c" if weight == 0 else ink,
            )


def _color_bar(figure: Figure, width: float, height: float, *, gap: float) -> None:
    """Put a colour bar from 0 to 1 at the right of a figure of `width` by `height` inches.

    >>> with _Sheet([]) as sheet:
    ...     _color_bar(sheet.figure(2, 1), 2, 1, gap=0.2)
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    # A map of one query is lower than the bar's own numbers need, and a tall one needs no bar all along it.
    length = min(max(height, 1.2), 5.0)
    axes = figure.add_axes((1 + gap / width, 1 - length / height, 0.14 / width, length / height))
    bar = figure.colorbar(
        ScalarMappable(norm=Normalize(0.0, 1.0), cmap=COLOR_MAP),
        cax=axes,
        ticks=[0, 0.2, 0.4, 0.6, 0.8, 1] if length >= 1.6 else [0, 0.5, 1],
        format="{x:.1f}",
    )
    bar.set_label("weight", fontsize=9)
    axes.tick_params(labelsize=8, length=2, width=0.6, color="#999999")
    bar.outline.set_linewidth(0.6)
    bar.outline.set_edgecolor("#999999")
