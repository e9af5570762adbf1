"""Draw the maps of heads: one head, the heads of a layer, or all heads of a model with a row for each layer.

Maps that are larger than an image can show are pooled tile by tile, so that no n x n map is stored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy

from jumok.draw import AXIS_NAMES, AxisNames, LayerMaps, save_head_grid, save_heat_map, save_model_grid
from jumok.draw.heat_map import GRID_CELLS, MAP_CELLS, MODEL_CELLS
from jumok.draw.panel import join_captions
from jumok.draw.pooling import PooledMap, describe_pooling, label_parts, split_axis
from jumok.lens.sites import Sites, normalize_index

if TYPE_CHECKING:
    from .model_capture import Capture


def pool_head(
    capture: Capture,
    site: str,
    head: int,
    queries: list[str],
    keys: list[str],
    limit: int,
    *,
    batch: int = 0,
    first_apart: bool = False,
) -> PooledMap:
    """Return a head's map with at most ``limit`` rows and columns; ``first_apart`` keeps a column for the first key."""
    if max(len(queries), len(keys)) <= limit:
        return PooledMap(capture.weights(site, head, batch).float().cpu().numpy(), queries, keys, "")
    rows, columns = split_axis(len(queries), limit), split_axis(len(keys), limit, first_apart=first_apart)
    largest = capture.overview(site, head, limit, batch, first_apart=first_apart).largest
    caption = describe_pooling(len(queries), rows, len(keys), columns)
    key_labels = label_parts(keys, columns, first_apart=first_apart)
    return PooledMap(largest.numpy(), label_parts(queries, rows), key_labels, caption)


class HeadFigure:
    """A figure of the maps of one or several heads. Notebooks display it; ``save`` writes it to a file."""

    def __init__(
        self,
        capture: Capture,
        layer: int | str | None = None,
        head: int | None = None,
        batch: int = 0,
        *,
        scale: str = "linear",
        skip_first: bool = False,
    ) -> None:
        """Create a figure, as ``Capture.plot`` describes it."""
        self.capture, self.batch, self.scale, self.skip_first = capture, batch, scale, skip_first
        sites = capture.sites.names if layer is None else [capture.sites.find(layer)]
        self.heads = select_heads(capture, sites, head)

    def save(self, path: str | Path) -> Path:
        """Write the figure, and return its path; the suffix ``.png`` or ``.svg`` selects the format."""

        def read_map(site: str, head: int, limit: int) -> PooledMap:
            queries, keys = self.capture.label_axes(site)
            return pool_head(
                self.capture, site, head, queries, keys, limit, batch=self.batch, first_apart=self.skip_first
            )

        return save_heads(
            Path(path), self.heads, self.capture.sites, read_map, scale=self.scale, skip_first=self.skip_first
        )

    def _repr_png_(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return self.save(Path(folder) / "map.png").read_bytes()


def select_heads(capture: Capture, sites: list[str], head: int | None) -> dict[str, list[int]]:
    """Return the heads to draw by site: one head of each attention, negative from the end, or all of them."""
    counts = {site: capture.attentions[site].heads for site in sites}
    if head is None:
        return {site: list(range(count)) for site, count in counts.items()}
    return {site: [normalize_index(head, count, site, "heads")] for site, count in counts.items()}


def save_heads(
    path: Path,
    heads: dict[str, list[int]],
    sites: Sites,
    read_map: Callable[[str, int, int], PooledMap],
    *,
    scale: str = "linear",
    skip_first: bool = False,
    caption: str = "",
    axis_names: AxisNames = AXIS_NAMES["en"],
) -> Path:
    """Write the maps of heads as an image: one map, a grid for one layer, or a row for each layer; return the path.

    Args:
        path: The path of the image; the suffix ``.png`` or ``.svg`` selects the format.
        read_map: Returns the map of a site and head with at most this many rows and columns.
        caption: A further sentence of the caption.
    """
    if len(heads) > 1:
        layers, captions = [], []
        for site, indices in heads.items():
            maps = [read_map(site, head, MODEL_CELLS) for head in indices]
            weights = numpy.stack([head_map.weights for head_map in maps])
            layer = sites.get_layer(site)
            name = layer if isinstance(layer, str) else f"{axis_names.layer} {layer}"
            layers.append(LayerMaps(name, weights, maps[0].queries, maps[0].keys, indices))
            captions.append(maps[0].caption)
        pooled = next(filter(None, captions), "")
        count = sum(map(len, heads.values()))
        title = axis_names.heads.format(count=count)
        caption = join_captions(axis_names.directions, pooled, caption)
        return save_model_grid(
            path, layers, title=title, caption=caption, scale=scale, skip_first=skip_first, axis_names=axis_names
        )

    ((site, indices),) = heads.items()
    maps = [read_map(site, head, MAP_CELLS if len(indices) == 1 else GRID_CELLS) for head in indices]
    weights = numpy.stack([head_map.weights for head_map in maps])
    title, save = site, cast(Callable[..., Path], save_head_grid)
    if len(indices) == 1:
        title, save, weights = f"{site}, {axis_names.head} {indices[0]}", save_heat_map, weights[0]
    return save(
        path,
        weights,
        maps[0].queries,
        maps[0].keys,
        title=title,
        caption=join_captions(maps[0].caption, caption),
        scale=scale,
        skip_first=skip_first,
        axis_names=axis_names,
    )
