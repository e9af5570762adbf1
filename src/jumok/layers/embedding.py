"""A table of vectors, one a token."""

from __future__ import annotations

import torch
from torch import nn


def make_embedding(count: int, width: int) -> nn.Embedding:
    """torch's table, drawn from the unit normal. On the meta device nothing is drawn: there, drawing would import
    hundreds of modules, and the numbers come from a file anyway."""
    table = torch.empty(count, width)
    if not table.is_meta:
        nn.init.normal_(table)
    return nn.Embedding(count, width, _weight=table)
