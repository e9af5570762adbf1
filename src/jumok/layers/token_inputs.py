"""Functions shared by the families that read tokens: embedding, checks, positions, pooling and the output layer."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import mask
from jumok.attention.grid import Positions
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError, ShapeError, describe_type
from jumok.small_batch_linear import linear


def make_embedding(count: int, width: int) -> nn.Embedding:
    """Make an embedding table, drawn from the unit normal.

    On the meta device nothing is drawn: the numbers come from a file, and drawing would import hundreds of modules.
    """
    table = torch.empty(count, width)
    if not table.is_meta:
        nn.init.normal_(table)
    return nn.Embedding(count, width, _weight=table)


def check_tokens(tokens: Int[Tensor, "batch length"], vocabulary: int) -> None:
    """Raise an error unless ``tokens`` are valid token ids."""
    if not isinstance(tokens, Tensor):
        raise ShapeError(
            f"tokens must be a tensor [batch, length], not {describe_type(tokens)}; for example torch.tensor([[5, 3]])"
        )
    if tokens.dim() != 2 or tokens.dtype not in (torch.int32, torch.int64):
        raise ShapeError(
            f"tokens must be integers (torch.int64) [batch, length], not {tokens.dtype}{list(tokens.shape)}"
        )
    if not tokens.shape[1]:
        raise ArgumentError("the text is empty: a model needs at least one token")
    if torch.compiler.is_compiling() or tokens.is_meta or not len(tokens):
        return  # reading values would break the graph; a tensor on the meta device and an empty batch have none
    lowest, highest = int(tokens.min()), int(tokens.max())
    if lowest < 0 or highest >= vocabulary:
        invalid = lowest if lowest < 0 else highest
        raise ArgumentError(f"token {invalid} is out of range: this model has tokens 0 to {vocabulary - 1}")


def check_token_mask(tokens: Int[Tensor, "batch length"], token_mask: Tensor | None) -> None:
    """Raise ShapeError unless ``token_mask`` has one boolean per token."""
    if token_mask is not None and token_mask.shape != tokens.shape:
        raise ShapeError(f"token_mask is {list(token_mask.shape)}, but the tokens are {list(tokens.shape)}")


def compute_positions(length: int, cached: int, token_mask: Tensor | None) -> Positions:
    """Return the positions of new tokens, counted over the real tokens; the mask includes the cached ones."""
    if token_mask is None:
        return range(cached, cached + length)
    _check_columns(token_mask, cached + length)
    positions = token_mask.long().cumsum(-1) - 1
    return positions.clamp_min(0)[:, cached : cached + length]


def build_padding_mask(token_mask: Tensor | None, keys: int) -> Mask | None:
    """Return the mask that forbids padding keys; None if all tokens are real."""
    if token_mask is None:
        return None
    _check_columns(token_mask, keys)
    return mask.padding(token_mask)


def build_causal_mask(token_mask: Tensor | None, keys: int) -> Mask:
    """Return the causal mask, which also forbids padding keys."""
    padding = build_padding_mask(token_mask, keys)
    return mask.causal if padding is None else mask.causal & padding


def _check_columns(token_mask: Tensor, keys: int) -> None:
    if token_mask.shape[-1] != keys:
        raise ShapeError(
            f"the token mask is {list(token_mask.shape)}, but there are {keys} tokens with the cached ones"
        )


def select_first_token(
    hidden: Float[Tensor, "batch length width"], token_mask: Bool[Tensor, "batch length"] | None
) -> Float[Tensor, "batch width"]:
    """Return the vector of the first real token, wherever it is."""
    if token_mask is None:
        return hidden[:, 0]
    index = token_mask.long().argmax(-1)[:, None, None]
    return hidden.gather(1, index.expand(-1, -1, hidden.shape[-1]))[:, 0]


def average_tokens(
    hidden: Float[Tensor, "batch length width"], token_mask: Bool[Tensor, "batch length"] | None
) -> Float[Tensor, "batch width"]:
    """Return the mean vector of the real tokens; 0 for a text without any."""
    if token_mask is None:
        return hidden.mean(1)
    count = token_mask.sum(-1, keepdim=True).clamp_min(1)
    return hidden.masked_fill(~token_mask[..., None], 0.0).sum(1) / count


def compute_token_logits(
    hidden: Float[Tensor, "batch length width"], output: nn.Module | None, embedding: nn.Embedding
) -> Float[Tensor, "batch length vocabulary"]:
    """Return the logits of all tokens; an ``output`` of None is tied to the embedding."""
    logits: Tensor = linear(hidden, embedding.weight, None) if output is None else output(hidden)
    return logits
