"""FNet mixing (Lee-Thorp et al. 2021): tokens mixed by a Fourier transform. Nothing to learn, nothing to look at."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jumok import axes
from jumok.errors import ArgumentError

from .mask import Mask


class FourierMixing(nn.Module):
    """The real part of the transform over tokens and over width; stands where an attention could stand.

    Every token takes part, padding too: there is no mask that it could honour, so one is refused, and so are weights.
    """

    def forward(self, inputs: axes.Hidden, *, mask: Mask | None = None, weights: bool = False) -> axes.Hidden:
        if weights:
            raise ArgumentError("FNet mixes by a Fourier transform and has no weights; use MultiHead to see some")
        if mask is not None:
            raise ArgumentError(f"FNet mixes every token with every other and cannot honour {mask!r}; use MultiHead")
        # float32: transforms of half-precision numbers are not computed on every device
        wide = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        mixed: Tensor = torch.fft.fft2(wide, dim=(-2, -1)).real
        return mixed.to(inputs.dtype)
