"""The right functions of the exercises that ask for a program, wrong ones that people write, and the calls to compare.

The TOML files name them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from jumok.attention import attend, mask
from jumok.attention.projection import split_heads
from jumok.layers.token_inputs import average_tokens

__all__ = ["average_tokens"]

# d0-8: multi_head(x, wq, wk, wv, wo)


def project_and_attend(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    """Return multi-head attention with one matrix for each head."""
    output = attend(*(x[:, None] @ matrices for matrices in (wq, wk, wv)))
    assert isinstance(output, Tensor)
    return output.transpose(1, 2).flatten(2) @ wo


def _attend_by_formula(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, divisor: float) -> Tensor:
    query, key, value = (x[:, None] @ matrices for matrices in (wq, wk, wv))
    return (query @ key.mT / divisor).softmax(-1) @ value


def divide_by_width(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    """Divide the scores by the square root of the width of the input."""
    return _attend_by_formula(x, wq, wk, wv, x.shape[-1] ** 0.5).transpose(1, 2).flatten(2) @ wo


def do_not_divide(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    """Leave out the scale."""
    return _attend_by_formula(x, wq, wk, wv, 1.0).transpose(1, 2).flatten(2) @ wo


def leave_out_output_matrix(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    """Join the heads without the product with wo."""
    return _attend_by_formula(x, wq, wk, wv, wq.shape[-1] ** 0.5).transpose(1, 2).flatten(2)


def reshape_without_transpose(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    """Mix the heads of different words."""
    return _attend_by_formula(x, wq, wk, wv, wq.shape[-1] ** 0.5).reshape(*x.shape[:2], -1) @ wo


def create_projection_calls() -> list[tuple[Tensor, ...]]:
    """Return the lecture's sizes (width 8, 2 heads of 4), and others with two rows in the batch."""
    generator = torch.Generator().manual_seed(0)
    sizes = ((1, 3, 8, 2, 4), (2, 5, 6, 3, 2))
    return [
        (
            torch.randn(batch, length, width, generator=generator),
            *torch.randn(3, heads, width, head_width, generator=generator),
            torch.randn(heads * head_width, width, generator=generator),
        )
        for batch, length, width, heads, head_width in sizes
    ]


# d1-4: multi_head_attention(query, key, value, heads)


def attend_in_heads(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Split, attend and join."""
    output = attend(*(split_heads(tensor, heads) for tensor in (q, k, v)))
    return output.transpose(1, 2).flatten(2)


def attend_in_one_head(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Attend in one head over the full width."""
    return attend_in_heads(q, k, v, 1)


def scale_by_full_width(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Divide the scores by the square root of the width of all heads."""
    return attend_in_heads(q / heads**0.5, k, v, heads)


def split_length(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Cut across the positions instead of the width."""
    batch, length, width = q.shape
    parts = (tensor.reshape(batch, heads, length, width // heads) for tensor in (q, k, v))
    return attend(*parts).reshape(batch, length, width)


def join_without_transpose(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Join the heads in the wrong order."""
    return attend(*(split_heads(tensor, heads) for tensor in (q, k, v))).reshape(q.shape)


def compare_heads_of_a_patch(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Let the heads of one position attend to each other."""
    batch, length, width = q.shape
    parts = (tensor.view(batch, length, heads, width // heads) for tensor in (q, k, v))
    return attend(*parts).flatten(2)


def create_head_calls() -> list[tuple[Tensor, Tensor, Tensor, int]]:
    """Return queries, keys and values for 2 and for 3 heads."""
    generator = torch.Generator().manual_seed(0)
    calls = []
    for batch, length, width, heads in ((1, 4, 6, 2), (2, 5, 21, 3)):
        q, k, v = torch.randn(3, batch, length, width, generator=generator)
        calls.append((q, k, v, heads))
    return calls


# d2-3: single_head(inputs, w_query, w_key, w_value)


def attend_with_one_head(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and the weights of one head."""
    output, weights = attend(*((x @ matrix)[:, None] for matrix in (wq, wk, wv)), weights=True)
    return output[:, 0], weights[:, 0]


def leave_out_scale(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> tuple[Tensor, Tensor]:
    """Leave out the scale."""
    weights = ((x @ wq) @ (x @ wk).mT).softmax(-1)
    return weights @ x @ wv, weights


def scale_by_input_width(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> tuple[Tensor, Tensor]:
    """Divide the scores by the square root of the width of the input."""
    weights = ((x @ wq) @ (x @ wk).mT / x.shape[-1] ** 0.5).softmax(-1)
    return weights @ x @ wv, weights


def normalize_columns(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> tuple[Tensor, Tensor]:
    """Apply the softmax over the queries."""
    weights = ((x @ wq) @ (x @ wk).mT / wk.shape[-1] ** 0.5).softmax(-2)
    return weights @ x @ wv, weights


def create_single_head_calls() -> list[tuple[Tensor, ...]]:
    """Return inputs and matrices; in the second call the values have another width."""
    generator = torch.Generator().manual_seed(0)
    calls = []
    for batch, length, width, head_width, value_width in ((1, 3, 8, 4, 4), (2, 5, 7, 3, 2)):
        inputs = torch.randn(batch, length, width, generator=generator)
        widths = (head_width, head_width, value_width)
        calls.append((inputs, *(torch.randn(width, size, generator=generator) for size in widths)))
    return calls


# d2-7: average_tokens(hidden, token_mask)


def average_all_tokens(hidden: Tensor, token_mask: Tensor) -> Tensor:
    """Count padding in the mean."""
    return hidden.mean(1)


def divide_by_length(hidden: Tensor, token_mask: Tensor) -> Tensor:
    """Divide the sum of the real tokens by the length with padding."""
    return (hidden * token_mask[..., None]).sum(1) / hidden.shape[1]


def create_padded_batches() -> list[tuple[Tensor, Tensor]]:
    """Return a batch that is padded on the right, and one on the left."""
    generator = torch.Generator().manual_seed(0)
    token_mask = torch.arange(4) < torch.tensor([[4], [2]])
    right_padded = (torch.randn(2, 4, 3, generator=generator), token_mask)
    left_padded = (torch.randn(2, 4, 5, generator=generator), token_mask.flip(1))
    return [right_padded, left_padded]


# d3-8: causal_attention(query, key, value)


def attend_causally(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and the weights under a causal mask."""
    output, weights = attend(*(tensor[:, None] for tensor in (q, k, v)), mask=mask.causal, weights=True)
    return output[:, 0], weights[:, 0]


def attend_everywhere(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Leave out the mask."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return weights @ v, weights


def attend_causally_unscaled(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Leave out the scale."""
    scores = q @ k.mT
    weights = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf")).softmax(-1)
    return weights @ v, weights


def mask_after_softmax(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Set the weights of the future to 0."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).tril()
    return weights @ v, weights


def fill_with_zero(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Set the scores of the future to 0."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).tril().softmax(-1)
    return weights @ v, weights


def create_attention_calls() -> list[tuple[Tensor, ...]]:
    """Return queries, keys and values of two sizes."""
    generator = torch.Generator().manual_seed(0)
    return [tuple(torch.randn(3, *shape, generator=generator)) for shape in ((1, 4, 8), (2, 5, 3))]
