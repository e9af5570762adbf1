"""Embedding tables."""

from __future__ import annotations

import torch
from torch import nn


def make_embedding(count: int, width: int) -> nn.Embedding:
    """Make an embedding table, drawn from the unit normal.

    On the meta device nothing is drawn: the numbers come from a file, and drawing would import hundreds of modules.
    """
    table = torch.empty(count, width)
    if not table.is_meta:
        nn.init.normal_(table)
    return nn.Embedding(count, width, _weight=table)
