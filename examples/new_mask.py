"""Write a mask of your own and combine it with the others.

You learn: a mask is a class with two methods, one for single cells and one for whole blocks of cells. The second lets
the blocked backend skip blocks; it may answer "partly" for any block, which is always correct.
"""

from dataclasses import dataclass

import torch

from jumok import attend
from jumok.attention import mask
from jumok.attention.grid import BlockGrid, Grid
from jumok.attention.mask.base import PARTIAL, BlockClasses, Mask


@dataclass(frozen=True, repr=False)
class Strided(Mask):
    """Every ``stride``-th key before and after the query (Child et al. 2019, Sparse Transformer)."""

    stride: int
    relative = True  # the mask depends only on query position - key position
    needs_check = False  # it holds no table that could be too small

    def evaluate(self, grid: Grid) -> torch.Tensor:
        """Return True where the query may attend to the key."""
        return (grid.query - grid.key) % self.stride == 0

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        """Return PARTIAL for every block: evaluate each cell."""
        shape = torch.broadcast_shapes(blocks.query_low.shape, blocks.key_low.shape)
        return torch.full(shape, PARTIAL, dtype=torch.int8)

    def __repr__(self) -> str:
        return f"strided({self.stride})"


sparse = mask.causal & (mask.window(2) | Strided(3))
print(sparse)

torch.manual_seed(0)
query, key, value = torch.randn(3, 1, 2, 8, 16)
explicit = attend(query, key, value, mask=sparse, backend="explicit")
blocked = attend(query, key, value, mask=sparse, backend="blocked")
print("blocked equals explicit:", torch.allclose(explicit, blocked, atol=1e-5))
