"""Read einsum equations that are batched matrix products, as attentions are often written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class BatchedProduct:
    """An einsum of two tensors that is a batched product ``left @ right``.

    Attributes:
        operand: The first tensor as it was passed.
        left: The first tensor, rearranged to ``[batch, head, row, inner]``.
        right: The second tensor, rearranged to ``[batch, head, inner, column]``.
        keeps_left_order: Whether the first tensor had this order already.
        keeps_output_order: Whether the einsum returns ``[batch, head, row, column]``.
        output_order: For each axis of the einsum's output, its index in ``[batch, head, row, column]``.
    """

    operand: Tensor
    left: Tensor
    right: Tensor
    keeps_left_order: bool
    keeps_output_order: bool
    output_order: tuple[int, ...]

    def restore_order(self, output: Tensor) -> Tensor:
        """Rearrange a product to the order in which the einsum returns it.

        Args:
            output: The product ``[batch, head, row, column]``.
        """
        return output.permute(self.output_order)


def parse_batched_product(args: Sequence[Any]) -> BatchedProduct | None:
    """Return an einsum as a batched product, or None if it is something else.

    Args:
        args: The arguments of ``torch.einsum``: an equation such as "ibnd,jbnd->bnij", and two tensors.

    >>> import torch
    >>> product = parse_batched_product(("ibnd,jbnd->bnij", torch.ones(5, 2, 3, 4), torch.ones(7, 2, 3, 4)))
    >>> product.left.shape, product.right.shape, product.keeps_output_order
    (torch.Size([2, 3, 5, 4]), torch.Size([2, 3, 4, 7]), True)
    """
    if len(args) == 2 and isinstance(args[1], list | tuple):
        args = (args[0], *args[1])
    if len(args) != 3 or not isinstance(args[0], str) or not all(isinstance(tensor, Tensor) for tensor in args[1:]):
        return None
    inputs, arrow, output = args[0].replace(" ", "").partition("->")
    operands = inputs.split(",")
    if not arrow or "." in args[0] or len(operands) != 2:
        return None
    left, right = operands
    if any(len(letters) != 4 or len(set(letters)) != 4 for letters in (left, right, output)):
        return None
    shared = [letter for letter in output if letter in left and letter in right]
    inner = [letter for letter in left if letter in right and letter not in output]
    rows = [letter for letter in output if letter in left and letter not in right]
    columns = [letter for letter in output if letter in right and letter not in left]
    if (len(shared), len(inner), len(rows), len(columns)) != (2, 1, 1, 1):
        return None
    # the batch axis stands before the head axis in every equation of transformers
    product_order = [*shared, *rows, *columns]
    left_order, right_order = [*shared, *rows, *inner], [*shared, *inner, *columns]
    return BatchedProduct(
        args[1],
        args[1].permute([left.index(letter) for letter in left_order]),
        args[2].permute([right.index(letter) for letter in right_order]),
        left_order == list(left),
        product_order == list(output),
        tuple(product_order.index(letter) for letter in output),
    )
