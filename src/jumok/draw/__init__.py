"""Draw attention patterns: as text for a terminal, or as a PNG or SVG picture.

A pattern is one head's weights as drawn: rows are queries, columns are keys, and every weight is between
0 and 1. Anything ``numpy.asarray`` takes will do, so a torch tensor on the CPU works as it is.

    >>> text = terminal_heat_map([[1, 0], [0.25, 0.75]], ["I", "am"], ["I", "am"], color=False)
    >>> print(text)  # doctest: +NORMALIZE_WHITESPACE
         I    am
    I   1.00   ·
    am  0.25 0.75

The pictures need matplotlib, which is an extra: ``pip install "jumok[draw]"``.
"""

from jumok.errors import DrawError

from .curve import line_plot
from .font import hangul_font
from .gallery import gallery
from .heat_map import head_grid, heat_map
from .terminal import terminal_heat_map

__all__ = ["DrawError", "gallery", "hangul_font", "head_grid", "heat_map", "line_plot", "terminal_heat_map"]
