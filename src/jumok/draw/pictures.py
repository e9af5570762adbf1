"""Write images: side by side with an expected and a predicted text, or with the weights of their patches drawn over."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy
from jaxtyping import UInt8
from numpy import ndarray
from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .cell_text import count_cells, truncate
from .checks import Patterns, Pixels, check_patterns, check_pixels
from .figure import Canvas, open_canvas
from .panel import Shading, choose_shading, draw_color_bar, join_captions

IMAGE_SIDE = 1.2  # inches
GAP = 0.5  # inches between two images, so that sentences have room
LINE_HEIGHT = 0.15  # inches of a line of text
CAPTION_CELLS = 24  # the longest line, in terminal cells
CAPTION_LINES = 2  # the most lines of a text
EXPECTED_COLOUR, RIGHT_COLOUR, WRONG_COLOUR = "#333333", "#3f7d3a", "#b4552d"

PANEL_SIDE = 1.9  # inches of the longer side of a panel
PANEL_GAP, TITLE_HEIGHT = 0.15, 0.25  # inches between panels, and of the title above each
LONGEST_SIDE = 768  # pixels of a panel; every second pixel or fewer of a larger image are drawn
COLOUR = (0.86, 0.08, 0.12)  # of the largest weight
OPACITY = 0.8  # of the largest weight; the image stays visible below it
GREY_SHARES = (0.299, 0.587, 0.114)  # brightness of red, green and blue (ITU-R BT.601)
MARK = "#1a4fd6"  # frame of the query's patch
Blended = UInt8[ndarray, "row column 3"]


def save_gallery(
    path: str | os.PathLike[str],
    images: Sequence[ArrayLike],
    expected: Sequence[str],
    predicted: Sequence[str],
    *,
    columns: int = 6,
    title: str = "",
) -> Path:
    """Write images with captions as one image, and return its path.

    Below each image stand its expected and its predicted text; the latter is green if they are equal, otherwise red.

    Args:
        images: The images, bytes (uint8) of ``[row, column]`` or ``[row, column, 3]``.
        predicted: The model's text for each image.

    >>> import numpy
    >>> save_gallery("sheet.png", [numpy.zeros((28, 28), numpy.uint8)], ["7"], ["1"])  # doctest: +SKIP
    PosixPath('sheet.png')
    """
    if not len(images) == len(expected) == len(predicted) or not images:
        raise DrawError(
            f"there are {len(images)} images, {len(expected)} expected texts and {len(predicted)} predicted texts; "
            "give the same number of each, at least one"
        )
    pixels = [check_pixels(image, f"image {index}") for index, image in enumerate(images)]
    columns = min(columns, len(pixels))
    rows = math.ceil(len(pixels) / columns)

    with open_canvas(path, [title, *expected, *predicted]) as canvas:
        captions = []
        for correct, answer in zip(expected, predicted, strict=True):
            colour = RIGHT_COLOUR if correct == answer else WRONG_COLOUR
            lines = [(line, EXPECTED_COLOUR) for line in wrap_text(canvas.replace_missing(correct))]
            captions.append([*lines, *((line, colour) for line in wrap_text(canvas.replace_missing(answer)))])
        tallest = max(len(lines) for lines in captions)
        across, down = IMAGE_SIDE + GAP, IMAGE_SIDE + (tallest + 1) * LINE_HEIGHT
        canvas.resize(across * columns - GAP, down * rows)

        for index, (image, lines) in enumerate(zip(pixels, captions, strict=True)):
            row, column = divmod(index, columns)
            left, top = across * column, down * row
            axes = canvas.add_axes(left, top, IMAGE_SIDE, IMAGE_SIDE)
            axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axes.set_axis_off()
            middle = left + IMAGE_SIDE / 2
            for number, (line, colour) in enumerate(lines):
                below = top + IMAGE_SIDE + (number + 0.8) * LINE_HEIGHT
                canvas.write(middle, below, line, ha="center", va="center", fontsize=7, color=colour)
        if title:
            canvas.write(canvas.width / 2, -0.15, title, ha="center", va="bottom", fontsize=11)
    return canvas.path


def wrap_text(text: str, width: int = CAPTION_CELLS, lines: int = CAPTION_LINES) -> list[str]:
    """Break a text at spaces into lines, and shorten what does not fit.

    >>> wrap_text("woman in manual wheelchair facing right", 16)
    ['woman in manual', 'wheelchair faci…']
    """
    wrapped: list[str] = []
    for word in text.split(" "):
        if wrapped and (count_cells(f"{wrapped[-1]} {word}") <= width or len(wrapped) == lines):
            wrapped[-1] += f" {word}"
        else:
            wrapped.append(word)
    return [truncate(line, width) for line in wrapped]


def save_image_overlay(
    path: str | os.PathLike[str],
    image: ArrayLike,
    weights: ArrayLike,
    *,
    patch: tuple[int, int],
    titles: Sequence[str] | None = None,
    title: str = "",
    caption: str = "",
    scale: str = "linear",
    marked: tuple[int, int] | None = None,
) -> Path:
    """Write the weights of an image's patches over the image, and return the path.

    The first panel is the image; each of the others is the image in grey, with red patches: the larger a weight, the
    stronger the red.

    Args:
        image: The image as the model reads it, bytes (uint8) of ``[row, column]`` or ``[row, column, 3]``.
        weights: The weight of each patch between 0 and 1, ``[panel, row, column]``, counted from the upper left.
        patch: Rows and columns of a patch, in pixels. Patches may reach beyond the image at the right and below.
        titles: A title for each panel; default: "head 0", "head 1" and so on.
        scale: The colours: "linear" in the weight, from 0 to the largest one; "sqrt" in its square root; or "row",
            relative to the largest weight of each panel.
        marked: Row and column of a patch to frame, such as the query; default: none.

    >>> save_image_overlay("cat.png", numpy.zeros((32, 48), numpy.uint8), [[[0.9, 0.1]]], patch=(32, 24))
    ... # doctest: +SKIP
    PosixPath('cat.png')
    """
    pixels = check_pixels(image, "the image")
    panels = check_patterns(weights)
    count, *grid = panels.shape
    for side, cells, length in zip(pixels.shape, grid, patch, strict=False):
        if length < 1 or not (cells - 1) * length < side <= cells * length:
            raise DrawError(
                f"{grid[0]} x {grid[1]} patches of {patch[0]} x {patch[1]} pixels do not cover an image of "
                f"{pixels.shape[0]} x {pixels.shape[1]}; give the patches of this image"
            )
    if titles is None:
        titles = [f"head {head}" for head in range(count)]
    if len(titles) != count:
        raise DrawError(f"there are {len(titles)} titles but {count} panels; give one title for each, or omit titles")
    shading = choose_shading([panels], scale, largest=float(panels.max()))
    caption = join_captions(caption, "the query is framed" if marked is not None else "")
    with open_canvas(path, [title, caption, *titles]) as canvas:
        _draw_panels(canvas, pixels, panels, patch, titles, shading, marked)
        canvas.write_heading(title, caption)
    return canvas.path


def blend_weights(
    image: ArrayLike, weights: ArrayLike, patch: tuple[int, int], shading: Shading | None = None, step: int = 1
) -> Blended:
    """Return the image in grey with the weights ``[row, column]`` of its patches in red, as bytes ``[row, column, 3]``.

    Only every ``step``-th row and column is returned.

    >>> blend_weights(numpy.full((2, 4), 200, numpy.uint8), [[0, 1]], (2, 2))[0, :, 1].tolist()
    [200, 200, 56, 56]
    """
    pixels = check_pixels(image, "the image")[::step, ::step].astype(numpy.float64)
    grey = pixels @ numpy.array(GREY_SHARES) if pixels.ndim == 3 else pixels
    cells = numpy.asarray(weights, numpy.float64)
    # all patches are one row of the scale "row": the keys of one query
    shades = (shading or Shading()).compute_shades(cells.reshape(1, -1)).reshape(cells.shape)
    cell_rows = numpy.arange(grey.shape[0]) * step // patch[0]
    cell_columns = numpy.arange(grey.shape[1]) * step // patch[1]
    opacity = OPACITY * shades[cell_rows[:, None], cell_columns[None, :], None]
    blended = grey[..., None] * (1 - opacity) + 255 * numpy.array(COLOUR) * opacity
    return blended.round().astype(numpy.uint8)


def _draw_panels(
    canvas: Canvas,
    image: Pixels,
    panels: Patterns,
    patch: tuple[int, int],
    titles: Sequence[str],
    shading: Shading,
    marked: tuple[int, int] | None,
) -> None:
    """Draw the image and the panels row by row, with one colour bar."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    step = math.ceil(max(image.shape[:2]) / LONGEST_SIDE)
    inches = PANEL_SIDE / max(image.shape[:2])
    panel_width, panel_height = image.shape[1] * inches, image.shape[0] * inches
    count = len(panels) + 1
    rows = math.ceil(count / (5 if count <= 20 else 9))
    columns = math.ceil(count / rows)
    across, down = max(panel_width, 0.9) + PANEL_GAP, panel_height + TITLE_HEIGHT
    canvas.resize(across * columns - PANEL_GAP, down * rows - TITLE_HEIGHT)

    names = [f"image, {image.shape[0]} x {image.shape[1]}", *titles]
    pictures = [image[::step, ::step], *(blend_weights(image, cells, patch, shading, step) for cells in panels)]
    for index, (picture, name) in enumerate(zip(pictures, canvas.format_labels(names), strict=True)):
        row, column = divmod(index, columns)
        axes = canvas.add_axes(across * column, down * row, panel_width, panel_height)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=255, aspect="auto", interpolation="nearest")
        axes.set_axis_off()
        axes.set_title(name, fontsize=8, pad=3)
        if marked is not None:
            height, width = patch[0] / step, patch[1] / step
            corner = (marked[1] * width - 0.5, marked[0] * height - 0.5)
            axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=MARK, linewidth=1.2))
    strongest = [1 - OPACITY + OPACITY * channel for channel in COLOUR]  # on white
    color_map = LinearSegmentedColormap.from_list("overlay", [(1.0, 1.0, 1.0), strongest])
    draw_color_bar(canvas, shading, color_map=color_map)
