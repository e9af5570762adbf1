"""Grouped heads: several query heads read one key/value head (Shazeer 2019; Ainslie et al. 2023).

Head h reads group h // (heads / groups). Nothing here copies keys or values to every head.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def grouped_matmul(
    left: Float[Tensor, "batch head query inner"], right: Float[Tensor, "batch group inner column"]
) -> Float[Tensor, "batch head query column"]:
    """``left @ right`` where each group of ``right`` serves its heads."""
    batch, head, query, inner = left.shape
    group = right.shape[1]
    if head == group:
        return left @ right
    # the rows of all heads of a group stand under each other, so that one product serves them
    folded = left.reshape(batch, group, head // group * query, inner) @ right
    return folded.view(batch, head, query, right.shape[-1])


def grouped_outer(
    left: Float[Tensor, "batch head query row"], right: Float[Tensor, "batch head query column"], group: int
) -> Float[Tensor, "batch group row column"]:
    """``left^T @ right``, summed over the heads of each group: how gradients reach shared keys and values."""
    batch, head, query, row = left.shape
    rows = head // group * query
    folded = left.reshape(batch, group, rows, row).transpose(-1, -2)
    return folded @ right.reshape(batch, group, rows, right.shape[-1])


def spread(shared: Float[Tensor, "batch group key inner"], heads: int) -> Float[Tensor, "batch {heads} key inner"]:
    """Every head's own view of what its group has."""
    batch, group, key, inner = shared.shape
    if group == heads:
        return shared
    return shared[:, :, None].expand(batch, group, heads // group, key, inner).reshape(batch, heads, key, inner)
