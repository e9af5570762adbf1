"""Draw attention patterns as text for a terminal, or as PNG and SVG images.

A pattern holds the weights of one head: rows are queries, columns are keys, and every weight lies between 0 and 1.
Anything that ``numpy.asarray`` accepts works, for example nested lists, numpy arrays and torch tensors on the CPU.

    >>> text = render_terminal_heat_map([[1, 0], [0.25, 0.75]], ["I", "am"], ["I", "am"], color=False)
    >>> print(text)  # doctest: +NORMALIZE_WHITESPACE
         I    am
    I   1.00   ·
    am  0.25 0.75

Images need matplotlib, an optional dependency: ``pip install "jumok[draw]"``. All functions that write images share
these options; equal input gives equal bytes, and input that cannot be drawn raises a ``DrawError``:

- ``path``: where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
- ``title``, ``caption``: a title above the maps, and a line of smaller text; default: none.
- ``scale``: the colours: "linear" in the weight, "sqrt" (small weights become visible) or "row" (relative to the
  largest weight of each row).
- ``skip_first``: whether to leave out the first key, which is often an attention sink; the colours then cover the
  weights of the other keys.
"""

from jumok.errors import DrawError

from .effect_map import save_effect_map
from .figure import find_hangul_font
from .heat_map import (
    AXIS_NAMES,
    AxisNames,
    LayerMaps,
    save_head_grid,
    save_heat_map,
    save_mask,
    save_model_grid,
)
from .line_plot import LinePanel, MapPanel, save_line_plot, save_panel_row
from .listening_map import ListeningTexts, TimedText, save_listening_map
from .pictures import save_gallery, save_image_overlay
from .terminal_map import render_terminal_heat_map

__all__ = [
    "AXIS_NAMES",
    "AxisNames",
    "DrawError",
    "LayerMaps",
    "LinePanel",
    "ListeningTexts",
    "MapPanel",
    "TimedText",
    "find_hangul_font",
    "render_terminal_heat_map",
    "save_effect_map",
    "save_gallery",
    "save_head_grid",
    "save_heat_map",
    "save_image_overlay",
    "save_line_plot",
    "save_listening_map",
    "save_mask",
    "save_model_grid",
    "save_panel_row",
]
