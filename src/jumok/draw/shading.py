"""Turn weights into shades from 0 (white) to 1 (dark): the three colour scales, and leaving out the first key."""

from __future__ import annotations

from typing import NamedTuple

import numpy
from jaxtyping import Float64
from numpy import ndarray

from jumok.errors import DrawError

from .checks import Pattern

SCALES = ("linear", "sqrt", "row")

AnyPatterns = Float64[ndarray, "..."]  # maps of several layers, which may have different sizes
Shades = Float64[ndarray, "query key"]  # nan: not drawn


class Shading(NamedTuple):
    """How the weights of a figure become shades.

    Attributes:
        scale: "linear": the shade is proportional to the weight. "sqrt": to its square root, which makes small weights
            visible. "row": to the weight divided by the largest weight of its row.
        largest: The weight of the darkest shade; for "row" it is ignored.
        skip_first: Whether the first key is left out. Many heads attend to the first token when there is nothing else
            to attend to (an attention sink), which hides the rest.
    """

    scale: str = "linear"
    largest: float = 1.0
    skip_first: bool = False

    def compute_shades(self, weights: Pattern) -> Shades:
        """Return a shade between 0 and 1 for each weight; nan in the first column if it is left out."""
        shown = weights.copy()
        if self.skip_first:
            shown[:, 0] = numpy.nan
        if self.scale == "row":
            row_largest = numpy.nanmax(shown, axis=1, initial=0.0, keepdims=True)
            return shown / numpy.where(row_largest > 0, row_largest, 1.0)
        shares = numpy.clip(shown / self.largest, 0.0, 1.0)
        return numpy.sqrt(shares) if self.scale == "sqrt" else shares

    def list_ticks(self, *, few: bool = False) -> list[tuple[float, str]]:
        """Return the ticks of the colour bar, the shade and the text of each; ``few`` are three."""
        if self.scale == "sqrt":
            shares = [0.0, 0.25, 1.0] if few else [0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0]
            return [(share**0.5, f"{share * self.largest:.2g}") for share in shares]
        end = 1.0 if self.scale == "row" else self.largest
        return [(share, f"{share * end:.2g}") for share in ((0.0, 0.5, 1.0) if few else (0.0, 0.25, 0.5, 0.75, 1.0))]

    @property
    def name(self) -> str:
        """What the colour bar shows."""
        return {"row": "share of the row's largest weight", "sqrt": "weight (square-root scale)"}.get(
            self.scale, "weight"
        )


def choose_shading(patterns: list[AnyPatterns], scale: str, skip_first: bool = False, largest: float = 1.0) -> Shading:
    """Check the options and return the shading of a figure.

    Args:
        scale: One of ``SCALES``.
        skip_first: Whether the first key is left out; the scale then ends at the largest weight that remains.
        largest: Where the scale ends otherwise.
    """
    if scale not in SCALES:
        raise DrawError(f"The colour scale {scale!r} is unknown; choose one of {', '.join(SCALES)}.")
    if skip_first:
        if any(weights.shape[-1] < 2 for weights in patterns):
            raise DrawError("The map has one key, and skipping the first key leaves none; draw it without skip_first.")
        largest = max(float(weights[..., 1:].max()) for weights in patterns)
    return Shading(scale, largest or 1.0, skip_first)
