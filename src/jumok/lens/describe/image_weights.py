"""Draw the weights of image patches over the image: where each head looks, or where it looks for each written word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from jumok.draw import save_image_overlay
from jumok.errors import ArgumentError
from jumok.layers.patches import PatchLayout
from jumok.lens.capture.model_capture import Capture
from jumok.lens.sites import SOURCE, TARGET, normalize_index
from jumok.models import Model


class PatchMaps(NamedTuple):
    """The weights of an image's patches."""

    weights: Float[Tensor, "panel row column"]  # the panels are heads, or the words that are written
    titles: list[str]
    layout: PatchLayout
    query: tuple[int, int] | None  # row and column, if it is a patch
    caption: str


def save_image_weights(
    path: str | Path,
    model: Model,
    capture: Capture,
    image: ArrayLike,
    layer: int | str | None = None,
    head: int | None = None,
    query: int | None = None,
    *,
    scale: str = "linear",
) -> Path:
    """Write an image with the weights of its patches drawn over it, and return the path.

    Args:
        path: Where to write the picture; the suffix ``.png`` or ``.svg`` selects the format.
        model: A model that reads images: ViT, Swin or a captioner.
        capture: The capture of one image.
        image: The image as the model reads it, bytes (uint8) of ``[row, column]`` or ``[row, column, 3]``:
            ``preparation.restore(pixels)``.
        layer: The layer's number or site name; default: the last that attends to patches.
        head: The head, counted from 0, or from the end if negative; default: all, one panel each.
        query: The position of the query; default: the class token. Without a class token the weights are the mean over
            all patches. A captioner has one panel for each word that it writes, and the mean of the heads.
        scale: The colours, as for ``jumok.draw.save_image_overlay``.

    Raises:
        ArgumentError: If the model has no patches, or the layer does not attend to them.
    """
    site = choose_image_site(capture, layer)
    rows, columns = len(image), len(image[0])  # type: ignore[arg-type, index]  # checked when it is drawn
    layout = model.locate_patches(site, (rows, columns))
    first_layout = model.locate_patches(choose_image_site(capture, None, first=True), (rows, columns))
    if layout is None or first_layout is None:
        raise ArgumentError(f"this {model.family} model reads no images; jumok.draw.save_heat_map draws other weights")
    maps = compute_patch_maps(capture, site, layout, first_layout, head, query)
    return draw_patch_maps(path, maps, image, site, scale)


def choose_image_site(capture: Capture, layer: int | str | None, query_side: str = "", *, first: bool = False) -> str:
    """Return the attention to draw over an image; without a layer, the last one whose keys are patches.

    Its queries are of ``query_side``, by default the written words of a captioner and the patches of any other model.
    ``first`` returns the first attention whose queries and keys are patches instead.
    """
    sides = {site: capture.sites.get_sides(site) for site in capture.sites.names}
    if layer is not None:
        site = capture.sites.find(layer)
        if sides[site].keys != SOURCE:
            raise ArgumentError(f"{site} attends to words, not to patches of the image; choose another layer")
        return site
    if first:
        return next((site for site, side in sides.items() if side.queries == side.keys == SOURCE), next(iter(sides)))
    query_side = query_side or (TARGET if capture.sites.has_target else SOURCE)
    return [site for site, side in sides.items() if side.keys == SOURCE and side.queries == query_side][-1]


def compute_patch_maps(
    capture: Capture,
    site: str,
    layout: PatchLayout,
    first_layout: PatchLayout,
    head: int | None = None,
    query: int | None = None,
    words: Sequence[str] = (),
) -> PatchMaps:
    """Compute the weights of the patches, exactly.

    ``query`` counts the positions of the first attention. ``words`` label the decoder's positions; default: the labels
    of the capture.
    """
    attention = capture.attentions[site]
    positions = layout.grid[0] * layout.grid[1] + len(layout.prefix)
    expected = positions if layout.windows is None else layout.windows.shape[1]
    if attention.keys != expected:
        raise ArgumentError(
            f"{site} has {attention.keys} keys, but the image has {expected} positions; the weights cannot be drawn "
            "over the image"
        )
    heads = range(attention.heads) if head is None else [normalize_index(head, attention.heads, site, "heads")]
    titles = [f"head {index}" for index in heads]
    if capture.sites.get_sides(site).queries == TARGET:
        labels = list(words) or capture.target_labels or [str(index) for index in range(attention.queries)]
        return _map_words(capture, site, layout, heads, query, labels)

    patch, caption = None, "mean over all patches"
    if query is None and layout.prefix:
        query = 0
    if query is not None:
        query, patch = _convert_query(query, layout, first_layout)
        name = layout.prefix[query] if patch is None else f"patch {patch[0] + 1},{patch[1] + 1}"
        caption = f"where {name} looks"
    if layout.windows is not None:
        rows = [_read_windows(capture, site, index, query, layout) for index in heads]
    elif query is None:
        rows = [capture.weights(site, index).float().mean(0).cpu() for index in heads]
    else:
        rows = [capture.row(site, index, query).float().cpu() for index in heads]
    return _arrange(rows, titles, layout, patch, caption)


def draw_patch_maps(path: str | Path, maps: PatchMaps, image: ArrayLike, site: str, scale: str = "linear") -> Path:
    """Write an image, as ``save_image_weights`` takes it, with the weights of its patches drawn over it."""
    return save_image_overlay(
        path,
        image,
        maps.weights,
        patch=maps.layout.patch,
        titles=maps.titles,
        title=site,
        caption=maps.caption,
        scale=scale,
        marked=maps.query,
    )


def _read_windows(capture: Capture, site: str, head: int, query: int | None, layout: PatchLayout) -> Tensor:
    """Return the weights of one patch in its window, or the mean over all patches of the image."""
    assert layout.windows is not None
    count = layout.grid[0] * layout.grid[1]
    totals = torch.zeros(count)
    for window, patches in enumerate(layout.windows):
        is_query = patches == query if query is not None else patches >= 0
        if not is_query.any():
            continue
        weights = capture.weights(site, head, batch=window).float().cpu()[is_query].sum(0)
        is_patch = patches >= 0
        totals[patches[is_patch]] += weights[is_patch]
    return totals if query is not None else totals / count


def _map_words(
    capture: Capture, site: str, layout: PatchLayout, heads: Sequence[int], query: int | None, labels: list[str]
) -> PatchMaps:
    """Map the decoder's queries: the heads for one word, or a panel for each word with the mean of the heads."""
    count = capture.attentions[site].queries
    # the row of a token is used to predict the token after it; the last is the end, unless a limit cut the text
    written = [*labels[1:count], "(next)"]
    if query is not None:
        query = normalize_index(query, count, site, "queries")
        rows = [capture.row(site, head, query).float().cpu() for head in heads]
        caption = f"after {labels[query]}, while {written[query]} is written"
        return _arrange(rows, [f"head {head}" for head in heads], layout, None, caption)
    maps = torch.stack([capture.weights(site, head).float().cpu() for head in heads]).mean(0)
    mean = f"mean of {len(heads)} heads" if len(heads) > 1 else f"head {heads[0]}"
    return _arrange(list(maps), written, layout, None, f"while each word is written; {mean}")


def _arrange(
    rows: list[Tensor], titles: list[str], layout: PatchLayout, query: tuple[int, int] | None, caption: str
) -> PatchMaps:
    """Arrange the weights of patches as in the image; the titles say how much weight lies on the patches."""
    prefix = len(layout.prefix)
    patches = torch.stack(rows)[:, prefix:]
    if prefix:
        titles = [f"{title}: {float(row.sum()):.2f} on patches" for title, row in zip(titles, patches, strict=True)]
    return PatchMaps(patches.unflatten(1, layout.grid), titles, layout, query, caption)


def _convert_query(query: int, layout: PatchLayout, first: PatchLayout) -> tuple[int, tuple[int, int] | None]:
    """Return a query's position in an attention and, for a patch, its row and column there. Later stages of Swin have
    larger patches: the one that contains the given patch."""
    count = len(first.prefix) + first.grid[0] * first.grid[1]
    query = normalize_index(query, count, "the image", "positions") - len(first.prefix)
    if query < 0:
        return query + len(first.prefix), None
    row, column = divmod(query, first.grid[1])
    row, column = row * first.patch[0] // layout.patch[0], column * first.patch[1] // layout.patch[1]
    return len(layout.prefix) + row * layout.grid[1] + column, (row, column)
