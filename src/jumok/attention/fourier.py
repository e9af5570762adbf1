"""FNet mixing (Lee-Thorp et al. 2021): tokens are mixed by a Fourier transform, without parameters or weights."""

from __future__ import annotations

import torch
from torch import Tensor

from jumok import axes
from jumok.errors import ArgumentError

from .mask import Mask
from .weights import AttentionModule


class FourierMixing(AttentionModule):
    """The real part of the Fourier transform over tokens and width; used in place of an attention.

    Every token takes part, padding included. Masks and weights are refused.
    """

    def forward(self, inputs: axes.Hidden, *, mask: Mask | None = None) -> axes.Hidden:
        """Mix the tokens of each row.

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
            mask: Must be None; the argument exists so that errors are clear.

        Raises:
            ArgumentError: If there is a mask.
        """
        if mask is not None:
            raise ArgumentError(f"FNet mixes all tokens and cannot apply the mask {mask!r}; use MultiHead")

        # float32: not every device has a half-precision Fourier transform
        wide = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        mixed: Tensor = torch.fft.fft2(wide, dim=(-2, -1)).real
        return mixed.to(inputs.dtype)
