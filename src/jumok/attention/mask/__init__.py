"""Masks: boolean expressions (True = may attend) that compose with ``&``, ``|`` and ``~``.

A mask is a predicate on (batch, head, query position, key position). A backend evaluates it tile by tile, so no dense
tensor is needed. Because a mask reads *positions*, a decoding step with a cache uses the same mask.

>>> from jumok.attention import mask
>>> longformer = mask.window(2) | mask.global_at([0])
>>> print(mask.causal & longformer)
causal & (window(2) | global_at([0]))
■ · · · · · · ·
■ ■ · · · · · ·
■ ■ ■ · · · · ·
■ · ■ ■ · · · ·
■ · · ■ ■ · · ·
■ · · · ■ ■ · ·
■ · · · · ■ ■ ·
■ · · · · · ■ ■
"""

from .base import Mask
from .notation import parse
from .position_masks import blocks, causal, edge, global_at, prefix, random_keys, window
from .table_masks import documents, given, padding

__all__ = [
    "Mask",
    "blocks",
    "causal",
    "documents",
    "edge",
    "given",
    "global_at",
    "padding",
    "parse",
    "prefix",
    "random_keys",
    "window",
]
