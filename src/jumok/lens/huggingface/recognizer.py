"""Recognise softmax(query key^T) value in the operations that a model executes, and compute it with ``attend()``.

Many models of transformers do not use its attention registry but write the formula themselves. While the recognizer is
active, it sees every operation of torch:

1. A batched product of two tensors may be query x key: its factors are remembered with its result.
2. Operations on this result are followed: multiplying by a number changes the scale; adding a bias or a mask, changing
   the shape or the dtype keep the factors. Other multiplications also count as adding numbers.
3. ``softmax`` of a followed tensor gives weights, which are followed in the same way.
4. A product of weights and another tensor is an attention: scores minus scaled product is the mask and the bias. The
   result is computed by ``attend()``, where it can be captured and edited.

An einsum may be such a product too. ``multi_head_attention_forward`` computes everything in one function, whose
operations the recognizer does not see; it is written as projections and one attention. Whatever is not recognised is
computed as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from .multihead_calls import compute_multihead, parse_batched_product

PRODUCTS = frozenset({"matmul", "__matmul__", "bmm"})
FILLS = frozenset({"masked_fill", "masked_fill_"})
MULTIPLICATIONS = frozenset({"mul", "__mul__", "__rmul__", "mul_", "__imul__", "multiply"})
DIVISIONS = frozenset({"div", "__div__", "__truediv__", "div_", "__itruediv__", "divide", "true_divide"})
#: the scores after these operations are the product plus other numbers
ADDITIONS = frozenset(
    {
        "add", "__add__", "__radd__", "add_", "__iadd__", "sub", "__sub__", "sub_", "__isub__", "masked_fill",
        "masked_fill_", "where", "max", "maximum", "clamp", "nan_to_num",
    }
)  # fmt: skip
#: operations that do not change the numbers
REARRANGEMENTS = frozenset(
    {
        "to", "float", "half", "bfloat16", "double", "type", "type_as", "view", "reshape", "contiguous", "clone",
        "unsqueeze", "squeeze", "flatten", "unflatten", "dropout", "detach", "alias",
    }
)  # fmt: skip


@dataclass(frozen=True)
class FollowedProduct:
    """A tensor that began as a batched product, and may become the scores of an attention."""

    query: Tensor  # the left factor [..., query, width]
    key: Tensor  # the right factor, transposed: [..., key, width]
    scale: float = 1.0
    heads: int | None = None  # known once the tensor has had the shape [batch, head, query, key]


@dataclass(frozen=True)
class FollowedWeights:
    """The softmax of a followed product."""

    product: FollowedProduct
    scores: Tensor  # what the softmax was applied to


@dataclass(frozen=True)
class RecognizedAttention:
    """An attention in the layout of ``attend()``."""

    query: Tensor  # [batch, head, query, width]
    key: Tensor  # [batch, head, key, width]
    value: Tensor  # [batch, head, key, value_width]
    scale: float | None
    scores: Tensor | None = None  # before the softmax, with mask and bias; None if they are in the next fields
    added: Tensor | None = None  # booleans, or numbers added to the scores
    is_causal: bool = False


class AttentionRecognizer(TorchFunctionMode):
    """Finds attentions among the operations of torch, while it is active, and counts them.

    ``batch`` is the number of batch rows of the model's inputs: it separates batch and heads in tensors without a head
    axis.
    """

    def __init__(
        self,
        compute: Callable[[RecognizedAttention], Tensor],
        is_active: Callable[[], bool],
        report_softmax: Callable[[], object],
    ) -> None:
        """Create a recognizer; ``compute`` returns the output of an attention, ``[batch, head, query, value_width]``.

        ``is_active`` says whether the model computes the next operation; others are left alone. ``report_softmax`` is
        called at every softmax, whether it becomes part of an attention or not.
        """
        super().__init__()
        self.batch = 1
        self.count = 0
        self._compute_attention = compute
        self._is_active = is_active
        self._report_softmax = report_softmax
        self._followed: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Execute an operation of torch; the arguments are those that torch passes to every such mode."""
        kwargs = kwargs or {}
        if not self._is_active():
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if func is functional.scaled_dot_product_attention:
            return self._compute_kernel_call(func, args, kwargs)
        if func is functional.multi_head_attention_forward:
            projected = compute_multihead(args, kwargs, self._compute_with_added)
            return func(*args, **kwargs) if projected is None else projected
        if name == "einsum":
            return self._follow_einsum(func, args, kwargs)
        if name in PRODUCTS and len(args) == 2:
            return self._follow_product(func, args, kwargs, args[0], args[1])
        if name == "baddbmm":
            output = func(*args, **kwargs)
            arguments = {**dict(zip(("input", "batch1", "batch2"), args, strict=False)), **kwargs}
            self._remember_product(output, arguments["batch1"], arguments["batch2"], float(kwargs.get("alpha", 1.0)))
            return output
        if name == "softmax":
            self._report_softmax()
        source = next(
            (argument for argument in args if isinstance(argument, Tensor) and argument in self._followed), None
        )
        output = func(*args, **kwargs)
        if source is not None and isinstance(output, Tensor):
            self._follow(name, source, args, kwargs, output)
        return output

    def _follow(
        self, name: str, source: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], output: Tensor
    ) -> None:
        """Remember what an operation on a followed tensor gives; nothing if the operation is not one of the formula."""
        followed = self._followed[source]
        if name in REARRANGEMENTS and output.numel() == source.numel():
            self._remember(output, followed)
        elif isinstance(followed, FollowedWeights):
            if name in FILLS and source is args[0] and args[2] == 0:  # weights of forbidden cells, set to 0 once more
                scores = followed.scores.masked_fill(args[1], -torch.inf)
                self._remember(output, FollowedWeights(followed.product, scores))
        elif name == "softmax":
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if axis in (-1, output.dim() - 1):  # the keys
                self._remember(output, FollowedWeights(followed, source))
        elif output.shape[-2:] != source.shape[-2:]:
            return
        elif name in MULTIPLICATIONS | DIVISIONS and (scaled := _scale_product(followed, name, args)) is not None:
            self._remember(output, scaled)
        elif name in ADDITIONS | MULTIPLICATIONS:
            self._remember(output, followed)

    def _remember(self, tensor: Tensor, followed: FollowedProduct | FollowedWeights) -> None:
        if isinstance(followed, FollowedProduct) and tensor.dim() == 4:
            followed = replace(followed, heads=tensor.shape[1])
        self._followed[tensor] = followed

    def _remember_product(self, output: Tensor, left: object, right: object, scale: float = 1.0) -> None:
        """Remember the factors of a batched product; products of two matrices are no attention."""
        if (
            isinstance(left, Tensor)
            and isinstance(right, Tensor)
            and left.dim() == right.dim()
            and left.dim() in (3, 4, 5)
        ):
            self._remember(output, FollowedProduct(left, right.transpose(-1, -2), scale))

    def _follow_product(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], left: Any, right: object
    ) -> Tensor:
        """Compute a product: the output of an attention, or possibly its scores."""
        weights = self._followed.get(left) if isinstance(left, Tensor) else None
        if isinstance(weights, FollowedWeights) and isinstance(right, Tensor) and right.dim() == left.dim():
            attention = self._arrange(weights, right)
            if attention is not None:
                return _restore_axes(self._compute(attention).to(left.dtype), left)
        output = func(*args, **kwargs)
        self._remember_product(output, left, right)
        return output

    def _follow_einsum(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
        """Compute an einsum; one that is a batched product is followed like a product."""
        product = parse_batched_product(args)
        if product is None:
            output: Tensor = func(*args, **kwargs)
            return output
        weights = self._followed.get(product.operand)
        if isinstance(weights, FollowedWeights) and product.keeps_left_order:
            attention = self._arrange(weights, product.right)
            if attention is not None:
                # in the order of axes that the einsum returns
                return self._compute(attention).to(product.operand.dtype).permute(product.output_order)
        output = func(*args, **kwargs)
        if product.keeps_output_order:
            self._remember_product(output, product.left, product.right)
        return output

    def _compute(self, attention: RecognizedAttention) -> Tensor:
        self.count += 1
        return self._compute_attention(attention)

    def _arrange(self, weights: FollowedWeights, value: Tensor) -> RecognizedAttention | None:
        """Bring the tensors of an attention into the layout of ``attend()``; None if their shapes do not fit."""
        product, scores = weights.product, weights.scores
        heads = product.heads or _divide(scores.shape[0], self.batch)
        if heads is None:
            return None
        tensors = [_separate_heads(tensor, heads) for tensor in (product.query, product.key, value, scores)]
        query, key, value, scores = tensors
        batch, heads = scores.shape[:2]
        try:
            query, key, value = (tensor.expand(batch, heads, -1, -1) for tensor in (query, key, value))
        except RuntimeError:
            return None
        if scores.shape[2:] != (query.shape[2], key.shape[2]) or value.shape[2] != key.shape[2]:
            return None
        return RecognizedAttention(query, key, value, product.scale, scores=scores)

    def _compute_with_added(self, query: Tensor, key: Tensor, value: Tensor, added: Tensor | None) -> Tensor:
        return self._compute(RecognizedAttention(query, key, value, None, added=added))

    def _compute_kernel_call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
        """Compute a call of PyTorch's fused attention."""
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        query, key, value = arguments["query"], arguments["key"], arguments["value"]
        added = arguments.get("attn_mask")
        if any(tensor.dim() not in (3, 4) for tensor in (query, key, value)) or arguments.get("dropout_p"):
            output: Tensor = func(*args, **kwargs)
            return output
        heads = query.shape[1] if query.dim() == 4 else _divide(query.shape[0], self.batch) or 1
        if added is not None:
            added = added[(None,) * (query.dim() - added.dim())]
            added = added if query.dim() == 4 else _separate_heads(added, heads if added.shape[0] > 1 else 1)
        query_, key_, value_ = (_separate_heads(tensor, heads) for tensor in (query, key, value))
        attention = RecognizedAttention(
            query_, key_, value_, arguments.get("scale"), added=added, is_causal=bool(arguments.get("is_causal"))
        )
        return _restore_axes(self._compute(attention).to(query.dtype), query)


def _scale_product(product: FollowedProduct, name: str, args: Sequence[Any]) -> FollowedProduct | None:
    """Return a product that was multiplied or divided by a number, or by one for each head; None for other factors."""
    factor = args[1] if len(args) > 1 else None
    if isinstance(factor, Tensor) and factor.numel() > 1:
        is_per_head = factor.dim() > 2 and factor.shape[-2:] == (1, 1) and factor.dim() <= product.query.dim()
        if not is_per_head:
            return None
        return replace(product, query=product.query / factor if name in DIVISIONS else product.query * factor)
    if not isinstance(factor, int | float | Tensor):
        return None
    number = float(factor)
    return replace(product, scale=product.scale / number if name in DIVISIONS else product.scale * number)


def _divide(count: int, batch: int) -> int | None:
    """Return the number of heads in an axis that joins batch and heads; None if the batch does not divide it."""
    return count // batch if batch and count % batch == 0 else None


def _separate_heads(tensor: Tensor, heads: int) -> Tensor:
    """Return a tensor as ``[batch, head, row, width]``.

    Three axes are ``[batch * head, row, width]``. Five axes are ``[batch, head, window, row, width]``; the windows of
    an image become adjacent batch rows.
    """
    if tensor.dim() == 5:
        return tensor.transpose(1, 2).flatten(0, 1)
    return tensor if tensor.dim() == 4 else tensor.unflatten(0, (-1, heads))


def _restore_axes(output: Tensor, like: Tensor) -> Tensor:
    """Return the output of an attention with as many axes as the tensor that it was computed from."""
    if like.dim() == 5:
        return output.unflatten(0, (like.shape[0], -1)).transpose(1, 2)
    return output if like.dim() == 4 else output.flatten(0, 1)
