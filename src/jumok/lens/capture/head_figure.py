"""A head's map of weights as an image that a notebook displays."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jumok.draw import save_heat_map

if TYPE_CHECKING:
    from .model_capture import Capture

MAX_TOKENS = 64  # tokens on each side; longer maps are pooled


class HeadFigure:
    """A heat map of one head's weights. Notebooks display it; ``save`` writes it to a file."""

    def __init__(self, capture: Capture, layer: int | str, head: int, batch: int = 0) -> None:
        """Create a figure; users get one from ``Capture.plot``.

        Args:
            capture: The capture to draw from.
            layer: The layer's number or site name.
            head: The head, counted from 0.
            batch: The batch row.
        """
        self.capture, self.layer, self.head, self.batch = capture, layer, head, batch

    def save(self, path: str | Path) -> Path:
        """Write the figure as PNG or SVG, and return its path.

        Args:
            path: Where to write it; the suffix ``.png`` or ``.svg`` selects the format.
        """
        attention = self.capture.attention(self.layer)
        title = f"{attention.site}, head {self.head}"
        if max(attention.queries, attention.keys) > MAX_TOKENS:
            pattern = self.capture.overview(self.layer, self.head, MAX_TOKENS, self.batch).largest
            query_labels = _label_patches(attention.queries, pattern.shape[0])
            key_labels = _label_patches(attention.keys, pattern.shape[1])
            title += " (largest weight of each patch)"
        else:
            pattern = self.capture.weights(self.layer, self.head, self.batch)
            query_labels = _label_positions(self.capture.labels, attention.query_positions)
            key_labels = _label_positions(self.capture.labels, attention.key_positions)
        return save_heat_map(Path(path), pattern.float().cpu(), query_labels, key_labels, title=title)

    def _repr_png_(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return self.save(Path(folder) / "map.png").read_bytes()


def _label_positions(labels: Sequence[str] | None, positions: list[int]) -> list[str]:
    """Return the label of each position; its number if there is not a label for every position."""
    if labels is None or max(positions, default=0) >= len(labels):
        return [str(position) for position in positions]
    return [labels[position] for position in positions]


def _label_patches(length: int, patches: int) -> list[str]:
    """Return the first position of each patch as its label."""
    return [str(length * patch // patches) for patch in range(patches)]
