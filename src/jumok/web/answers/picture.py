"""The image that a model read, as a PNG, and where the positions of its attentions lie in it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jumok.checkpoint import Loaded
from jumok.data.images.preparation import stretch_pixels
from jumok.layers.patches import PatchLayout
from jumok.lens import Capture
from jumok.lens.sites import SOURCE

if TYPE_CHECKING:
    from jumok.tasks.labelled_input import LabelledInput
    from jumok.web.opened_model import OpenedModel


@dataclass(frozen=True)
class Picture:
    """An image as the model saw it.

    Attributes:
        png: The bytes of the PNG file.
        layout: Where the positions of the first attention lie.
        layouts: Where the positions of each attention to patches lie, by site.
    """

    png: bytes
    width: int
    height: int
    layout: PatchLayout
    layouts: dict[str, PatchLayout]

    def to_json(self) -> dict[str, int]:
        """Return the picture as the page receives it; the PNG is the first buffer."""
        return {"width": self.width, "height": self.height, "png": 0, **_describe_layout(self.layout)}

    def describe_grids(self) -> dict[str, dict[str, int]]:
        """Return rows and columns of patches and the number of positions before them, by site."""
        return {site: _describe_layout(layout) for site, layout in self.layouts.items()}


def _describe_layout(layout: PatchLayout) -> dict[str, int]:
    return {"rows": layout.grid[0], "columns": layout.grid[1], "prefix": len(layout.prefix)}


def draw_picture(opened: OpenedModel, labelled: LabelledInput, capture: Capture) -> Picture | None:
    """Return the image that a model read; None if it read something else, or its patches are not known."""
    if opened.reads != "image":
        return None
    sides = {site: capture.sites.get_sides(site) for site in capture.sites.names}
    layouts: dict[str, PatchLayout] = {}
    first: PatchLayout | None = None
    for site, side in sides.items():
        layout = opened.locate_patches(site, labelled) if side.keys == SOURCE else None
        if layout is None or not _fits(layout, capture.attentions[site].keys):
            continue
        first = first or layout
        layouts[site] = layout
    if first is None:
        return None
    pixels = labelled.inputs[0][0]
    preparation = opened.loaded.preparation if isinstance(opened.loaded, Loaded) else None
    image = stretch_pixels(pixels) if preparation is None else preparation.restore(pixels)
    # models of transformers do not read the pixels that fill no patch, at the right and below
    image = image[: first.grid[0] * first.patch[0], : first.grid[1] * first.patch[1]]
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return Picture(file.getvalue(), image.shape[1], image.shape[0], first, layouts)


def _fits(layout: PatchLayout, keys: int) -> bool:
    """Return whether an attention has the positions of a layout; a model of transformers may merge patches."""
    if layout.windows is not None:
        return keys == layout.windows.shape[1]
    return keys == len(layout.prefix) + layout.grid[0] * layout.grid[1]
