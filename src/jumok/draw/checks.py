"""What was given to draw, checked: weights, the number of labels, the picture's path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy
from jaxtyping import Float64
from numpy import ndarray
from numpy.typing import ArrayLike

from jumok.errors import DrawError

Pattern = Float64[ndarray, "query key"]
Patterns = Float64[ndarray, "head query key"]

# Softmax in half precision overshoots 1 a little; anything further out is not a weight.
TOLERANCE = 1e-4


def all_heads(patterns: ArrayLike) -> Patterns:
    """The checked weights of every head; a single pattern is one head."""
    try:
        array = numpy.asarray(patterns)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DrawError(
            f"The pattern cannot be read as an array of numbers ({error}); give a numpy array, nested lists "
            "or a torch tensor after .detach().float().cpu()."
        ) from error
    if array.dtype.kind not in "biuf":
        raise DrawError(
            f"The pattern holds {array.dtype} and not numbers; give weights between 0 and 1, for instance as float32."
        )
    if array.ndim not in (2, 3):
        raise DrawError(
            f"The pattern has {array.ndim} dimensions {array.shape}; give [query, key] or [head, query, key]."
        )
    if array.size == 0:
        raise DrawError(f"The pattern is empty {array.shape}; give at least one head, one query and one key.")
    weights = array.astype(numpy.float64)
    if not numpy.isfinite(weights).all():
        raise DrawError(
            "The pattern has weights that are not finite (nan or infinity); "
            "draw the weights after the softmax, and look for a row in which every key is masked."
        )
    lowest, highest = weights.min(), weights.max()
    if lowest < -TOLERANCE or highest > 1 + TOLERANCE:
        raise DrawError(
            f"The pattern has weights from {lowest:.4g} to {highest:.4g}, outside 0 to 1; "
            "draw the weights after the softmax, not the scores before it."
        )
    return numpy.clip(weights, 0.0, 1.0).reshape(-1, *weights.shape[-2:])


def one_head(pattern: ArrayLike) -> Pattern:
    """The checked weights of a single head."""
    heads = all_heads(pattern)
    if len(heads) != 1:
        raise DrawError(
            f"There are {len(heads)} heads, and this draws one; "
            "give pattern[0] for the first, or draw them all with head_grid."
        )
    return heads[0]


def check_labels(weights: Pattern, queries: Sequence[str], keys: Sequence[str]) -> None:
    """Refuse labels that do not number the same as the rows and columns."""
    for one, many, labels, count in (
        ("query", "queries", queries, weights.shape[0]),
        ("key", "keys", keys, weights.shape[1]),
    ):
        if len(labels) != count:
            raise DrawError(
                f"There are {len(labels)} {one} labels but the pattern has {count} {one if count == 1 else many}; "
                f"give one label for each {one}."
            )


def picture_path(path: str | os.PathLike[str]) -> Path:
    """The path, if its suffix names a kind of picture that can be written."""
    target = Path(path)
    if target.suffix.lower() not in (".png", ".svg"):
        raise DrawError(f"The picture {target.name!r} must end in .png or .svg; rename it to one of these.")
    return target
