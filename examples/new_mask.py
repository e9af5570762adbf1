"""Write a mask of your own and combine it with the others.

You learn: a mask is a class with one method, which says for every cell whether the query may attend to the key. A
second one, ``classify_blocks``, would let the blocked backend skip whole blocks of cells.
"""

from dataclasses import dataclass

import torch

from jumok import attend
from jumok.attention import mask
from jumok.attention.grid import Grid


@dataclass(frozen=True, repr=False)
class Strided(mask.Mask):
    """Every ``stride``-th key before and after the query (Child et al. 2019, Sparse Transformer)."""

    stride: int
    relative = True  # the mask depends only on query position - key position
    needs_check = False  # it holds no table that could be too small

    def evaluate(self, grid: Grid) -> torch.Tensor:
        """Return True where the query may attend to the key."""
        return (grid.query - grid.key) % self.stride == 0

    def __repr__(self) -> str:
        return f"strided({self.stride})"


sparse = mask.causal & (mask.window(2) | Strided(3))
print(sparse)

torch.manual_seed(0)
query, key, value = torch.randn(3, 1, 2, 8, 16)
explicit = attend(query, key, value, mask=sparse, backend="explicit")
blocked = attend(query, key, value, mask=sparse, backend="blocked")
print("blocked equals explicit:", torch.allclose(explicit, blocked, atol=1e-5))
