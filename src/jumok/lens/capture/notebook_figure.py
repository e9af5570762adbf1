"""One head's map as a picture that a notebook shows by itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from jumok.draw import save_heat_map

MOST = 64  # tokens a side; longer maps are pooled


class HeadFigure:
    def __init__(self, run: Any, layer: int | str, head: int, batch: int = 0) -> None:
        self.run, self.layer, self.head, self.batch = run, layer, head, batch

    def save(self, path: str | Path) -> Path:
        """As PNG or SVG, by the ending of the path."""
        found = self.run.attention(self.layer)
        title = f"{found.site}, head {self.head}"
        if max(found.queries, found.keys) > MOST:
            pattern = self.run.overview(self.layer, self.head, MOST, self.batch).largest
            labels = [_span(found.queries, len(pattern), place) for place in range(len(pattern))]
            keys = [_span(found.keys, pattern.shape[1], place) for place in range(pattern.shape[1])]
            title += " (largest weight of each patch)"
        else:
            pattern = self.run.weights(self.layer, self.head, self.batch)
            labels = _labels(self.run.labels, found.query_positions)
            keys = _labels(self.run.labels, found.key_positions)
        save_heat_map(Path(path), pattern.float().cpu(), labels, keys, title=title)
        return Path(path)

    def _repr_png_(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return self.save(Path(folder) / "map.png").read_bytes()


def _labels(labels: Any, positions: list[int]) -> list[str]:
    if labels is None or max(positions, default=0) >= len(labels):
        return [str(place) for place in positions]
    return [labels[place] for place in positions]


def _span(length: int, parts: int, place: int) -> str:
    return str(length * place // parts)
