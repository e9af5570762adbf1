"""Check the inputs of the drawing functions: weights, numbers of labels, and the path of the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from jaxtyping import Float64, UInt8
from numpy import ndarray
from numpy.typing import ArrayLike

from jumok.errors import DrawError

Pattern = Float64[ndarray, "query key"]
Patterns = Float64[ndarray, "head query key"]
Pixels = UInt8[ndarray, "row column *channel"]

#: weights, or the pair (output, weights) of an attention layer
PatternsLike = ArrayLike | tuple[ArrayLike, ArrayLike]

# Softmax in half precision exceeds 1 slightly; values further out are not weights.
TOLERANCE = 1e-4


def check_patterns(patterns: PatternsLike) -> Patterns:
    """Check the weights of one or several heads and return them as float64 ``[head, query, key]``, clipped to 0..1.

    They may also be ``[query, key]`` for one head, or what ``MultiHead`` returns: weights ``[1, head, query, key]``,
    alone or as the pair (output, weights).
    """
    if isinstance(patterns, tuple) and [getattr(part, "ndim", None) for part in patterns] == [3, 4]:
        patterns = patterns[1]
    array = _read_numbers(patterns)
    if array.ndim == 4 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 4:
        raise DrawError(f"the pattern has {array.shape[0]} batch rows {array.shape}; give one of them: pattern[0]")
    if array.ndim not in (2, 3):
        raise DrawError(
            f"the pattern has {array.ndim} dimensions {array.shape}; give [query, key] or [head, query, key]"
        )
    if array.size == 0:
        raise DrawError(f"the pattern is empty {array.shape}; give at least one head, one query and one key")
    weights = array.astype(numpy.float64)
    if not numpy.isfinite(weights).all():
        raise DrawError(
            "the pattern has weights that are not finite (nan or infinity); "
            "draw the weights after the softmax, and look for a row in which every key is masked"
        )
    lowest, highest = weights.min(), weights.max()
    if lowest < -TOLERANCE or highest > 1 + TOLERANCE:
        raise DrawError(
            f"the pattern has weights from {lowest:.4g} to {highest:.4g}, outside 0 to 1; "
            "draw the weights after the softmax, not the scores before it"
        )
    return numpy.clip(weights, 0.0, 1.0).reshape(-1, *weights.shape[-2:])


def _read_numbers(patterns: object) -> ndarray:
    """Convert the input to a numpy array of numbers."""
    if isinstance(patterns, list | tuple):
        patterns = [_detach_tensor(part) for part in patterns]
    try:
        array = numpy.asarray(_detach_tensor(patterns))
    except (TypeError, ValueError, RuntimeError) as error:
        raise DrawError(
            f"the pattern cannot be read as an array of numbers ({error}); give a numpy array, nested lists "
            "or a torch tensor"
        ) from error
    if array.dtype.kind not in "biuf":
        raise DrawError(
            f"the pattern holds {array.dtype} and not numbers; give weights between 0 and 1, for instance as float32"
        )
    return array


def _detach_tensor(tensor: Any) -> Any:
    """Return a torch tensor without its gradient, in a dtype that numpy has; anything else unchanged."""
    if not hasattr(tensor, "detach"):
        return tensor
    tensor = tensor.detach().cpu()
    return tensor.float() if tensor.is_floating_point() else tensor


def check_single_pattern(pattern: ArrayLike) -> Pattern:
    """Check the weights ``[query, key]`` or ``[1, query, key]`` of a single head; return float64 ``[query, key]``."""
    heads = check_patterns(pattern)
    if len(heads) != 1:
        raise DrawError(
            f"the pattern has {len(heads)} heads, but this function draws one; "
            "give pattern[0] for the first head, or draw all of them with save_head_grid"
        )
    return heads[0]


def complete_labels(
    weights: Pattern, queries: Sequence[str] | None, keys: Sequence[str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the labels of rows and columns, the positions for those that are None. The number of labels is checked."""
    queries, keys = (
        [str(position) for position in range(count)] if labels is None else labels
        for labels, count in zip((queries, keys), weights.shape, strict=True)
    )
    check_labels(weights, queries, keys)
    return queries, keys


def check_labels(weights: Pattern, queries: Sequence[str], keys: Sequence[str]) -> None:
    """Check that there is one label for each row and column."""
    for singular, plural, labels, count in (
        ("query", "queries", queries, weights.shape[0]),
        ("key", "keys", keys, weights.shape[1]),
    ):
        if len(labels) != count:
            axis = singular if count == 1 else plural
            raise DrawError(
                f"there are {len(labels)} {singular} labels but the pattern has {count} {axis}; "
                f"give one label for each {singular}"
            )


def check_pixels(image: ArrayLike, name: str) -> Pixels:
    """Check that an image holds bytes, and return it as an array; ``name`` is for the error message."""
    array = numpy.asarray(image)
    if array.dtype != numpy.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3):
        raise DrawError(f"{name} is {array.dtype} {array.shape}; give bytes of [row, column] or [row, column, 3]")
    return array
