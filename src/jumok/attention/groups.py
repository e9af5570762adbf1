"""Grouped heads: several query heads share one key/value head (Shazeer 2019; Ainslie et al. 2023).

Head h reads group ``h // (heads / groups)``. The products here do not copy keys or values for every head.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def multiply_by_group(
    left: Float[Tensor, "batch head query inner"], right: Float[Tensor, "batch group inner column"]
) -> Float[Tensor, "batch head query column"]:
    """Compute ``left @ right``, where every head uses the matrix of its group."""
    batch, head, query, inner = left.shape
    groups = right.shape[1]
    if head == groups:
        return left @ right

    # The rows of all heads of a group are stacked, so one product serves them.
    stacked = left.reshape(batch, groups, head // groups * query, inner) @ right
    return stacked.view(batch, head, query, right.shape[-1])


def sum_products_by_group(
    left: Float[Tensor, "batch head query row"], right: Float[Tensor, "batch head query column"], groups: int
) -> Float[Tensor, "batch {groups} row column"]:
    """Compute ``left.T @ right`` summed over the heads of each group: the gradient of shared keys and values."""
    batch, head, query, row = left.shape
    rows = head // groups * query
    stacked = left.reshape(batch, groups, rows, row).transpose(-1, -2)
    return stacked @ right.reshape(batch, groups, rows, right.shape[-1])


def expand_groups(
    shared: Float[Tensor, "batch group key inner"], heads: int
) -> Float[Tensor, "batch {heads} key inner"]:
    """Repeat the tensor of each group for all heads of the group."""
    batch, groups, key, inner = shared.shape
    if groups == heads:
        return shared
    return shared[:, :, None].expand(batch, groups, heads // groups, key, inner).reshape(batch, heads, key, inner)
