"""Attention: ``attend()``, its masks, biases, scores and backends, multi-head layers and the key/value cache."""

from . import bias, mask, score
from .attend import BACKENDS, attend
from .cache import Cache
from .feature_maps import EluPlusOne, FavorPlus
from .multihead import FourierMixing, Head, MultiHead

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
