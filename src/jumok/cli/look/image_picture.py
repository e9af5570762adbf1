"""Draw attention over the image that a model read, for ``jumok look``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded
    from jumok.checkpoint.transformers_folder import LoadedTransformers
    from jumok.layers.patches import PatchLayout
    from jumok.lens import Capture
    from jumok.lens.describe.query_sources import QueryPosition
    from jumok.tasks.labelled_input import LabelledInput


def reads_image(loaded: Loaded | LoadedTransformers) -> bool:
    """Return whether a model reads images."""
    from jumok.checkpoint.transformers_folder import LoadedTransformers

    return (loaded.reads if isinstance(loaded, LoadedTransformers) else loaded.model.reads) == "image"


def draw_over_image(
    paths: list[Path],
    loaded: Loaded | LoadedTransformers,
    labelled: LabelledInput,
    capture: Capture,
    *,
    layer: str | None,
    head: int | None,
    query: QueryPosition | None,
    scale: str,
) -> None:
    """Write pictures of an image with the weights of its patches drawn over it.

    Args:
        layer: The attention's site; None = the last that attends to patches.
        head: Only this head; None = all.
        query: Whose weights to draw; None = the class token, or all patches, or all words.

    Raises:
        ArgumentError: If the positions of the attention cannot be found in the image.
    """
    from jumok.checkpoint import Loaded
    from jumok.data.images.preparation import stretch_pixels
    from jumok.errors import ArgumentError
    from jumok.lens.describe.image_weights import choose_image_site, compute_patch_maps, draw_patch_maps

    pixels = labelled.inputs[0][0]
    site = choose_image_site(capture, layer, "" if query is None else query.side)
    layout = _locate(loaded, site, labelled)
    first_layout = _locate(loaded, choose_image_site(capture, None, first=True), labelled)
    if layout is None or first_layout is None:
        raise ArgumentError(
            "this model does not state the size of its patches, so weights cannot be drawn over the image"
        )
    position = None if query is None else query.position
    maps = compute_patch_maps(capture, site, layout, first_layout, head, position, labelled.target)
    is_known = isinstance(loaded, Loaded) and loaded.preparation is not None
    image = loaded.preparation.restore(pixels) if is_known else stretch_pixels(pixels)  # type: ignore[union-attr]
    # models of transformers do not read the pixels that fill no patch, at the right and below
    rows, columns = layout.grid[0] * layout.patch[0], layout.grid[1] * layout.patch[1]
    for path in paths:
        draw_patch_maps(path, maps, image[:rows, :columns], site, scale)


def _locate(loaded: Loaded | LoadedTransformers, site: str, labelled: LabelledInput) -> PatchLayout | None:
    from jumok.checkpoint import Loaded
    from jumok.tasks.transformers_image import locate_patches

    pixels = labelled.inputs[0]
    if isinstance(loaded, Loaded):
        return loaded.model.locate_patches(site, (pixels.shape[-2], pixels.shape[-1]))
    return locate_patches(loaded.model, pixels)
