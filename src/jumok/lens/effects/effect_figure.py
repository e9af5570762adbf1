"""The effects of all heads as an image, layers by heads, that a notebook displays."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from jumok.draw import save_effect_map
from jumok.errors import ArgumentError
from jumok.lens.sites import Sites

if TYPE_CHECKING:
    from .effect_table import Effects


class EffectFigure:
    """A heat map of the effects of heads: a row for each layer, a column for each head."""

    def __init__(self, effects: Effects, title: str = "") -> None:
        """Create a figure; users get one from ``Effects.plot``.

        Args:
            title: The title; default: the metric and its value without edits.

        Raises:
            ArgumentError: If edges were measured.
        """
        if effects.over != "heads":
            raise ArgumentError('the figure shows heads; measure them with over="heads"')
        self.effects = effects
        self.title = title or f"{effects.metric}: {effects.clean:.4f}"

    def save(self, path: str | Path) -> Path:
        """Write the figure as PNG or SVG, and return its path.

        Args:
            path: The path of the image; the suffix ``.png`` or ``.svg`` selects the format.
        """
        sites = Sites(self.effects.sites)
        measured = {row.layer for row in self.effects}
        layers = [layer for layer in map(sites.get_layer, sites.names) if layer in measured]
        heads = 1 + max(row.head for row in self.effects)
        table = [[math.nan] * heads for _ in layers]
        for row in self.effects:
            table[layers.index(row.layer)][row.head] = row.effect
        return save_effect_map(path, table, [str(layer) for layer in layers], title=self.title)

    def _repr_png_(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return self.save(Path(folder) / "effects.png").read_bytes()
