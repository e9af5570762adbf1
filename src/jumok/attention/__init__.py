"""Attention, all of it behind one door: attend()."""

from . import bias, mask, score
from .attend import BACKENDS, attend
from .cache import Cache
from .fourier import FourierMixing
from .kernel import EluPlusOne, FavorPlus
from .multihead import Head, MultiHead

__all__ = [
    "BACKENDS",
    "Cache",
    "EluPlusOne",
    "FavorPlus",
    "FourierMixing",
    "Head",
    "MultiHead",
    "attend",
    "bias",
    "mask",
    "score",
]
