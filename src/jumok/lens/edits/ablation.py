"""Ablate outputs: replace them by zeros, by a mean, or by those of randomly chosen positions.

Without a source, a position reads only the positions of its own text that its self-attention may attend to: in a causal
model itself and the earlier ones, and never padding. With a source, it reads all positions of the source that some
query may attend to; the others are padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.capture.captured_attention import CapturedAttention, CapturedCall
from jumok.lens.capture.model_capture import Capture
from jumok.lens.huggingface.mask_functions import FORBIDDEN_GAP
from jumok.lens.sites import Sites, count_shared_words

if TYPE_CHECKING:
    from .edit_base import TapCall
    from .edit_types import Ablate

ABLATION_METHODS = ("zero", "mean", "resample")
ROWS_PER_TABLE = 512  # rows of a mask that are evaluated at once


def ablate_output(edit: Ablate, output: Tensor, call: TapCall) -> Tensor:
    """Return the mean or the sample that replaces an output, ``[batch, head, query, width]`` or of a block or MLP."""
    if edit.source is None:
        return _read_visible_positions(edit, output, call)
    activation = read_source(edit.source, call.tap, output)
    if call.heads is not None:
        activation = activation[:, list(call.heads)]
    by_position = activation.movedim(-2, 1)  # [text, position, ...]
    real = _find_real_positions(edit.source, call.tap, activation)
    if edit.by == "mean":
        return by_position[real].mean(0).unsqueeze(-2).expand_as(output)
    candidates = real.nonzero()
    generator = torch.Generator().manual_seed(edit.seed)
    # drawn for all earlier rows too, so that decoding draws the same as one forward pass over the whole text
    rows = call.first_row + output.shape[-2]
    draws = torch.randint(len(candidates), (rows, len(output)), generator=generator)[call.first_row :]
    texts, positions = candidates[draws.to(candidates.device)].unbind(-1)
    return by_position[texts, positions].movedim(0, -2)


def read_source(source: Capture, tap: str, output: Tensor) -> Tensor:
    """Return the tensor that a source capture recorded at a tap, with the dtype and device of the output."""
    activation = source.activations.get(tap)
    if activation is None:
        word = tap.rpartition(".")[2]
        raise ArgumentError(f"the source capture did not record {tap}; create it with lens.run(..., keep={word!r})")
    if activation.shape[-1] != output.shape[-1]:
        raise ArgumentError(
            f"the source capture has vectors of width {activation.shape[-1]} at {tap}, but this forward pass has "
            f"width {output.shape[-1]}; capture the same model"
        )
    return activation.to(output)


def _read_visible_positions(edit: Ablate, output: Tensor, call: TapCall) -> Tensor:
    """Return at each position the mean of what it may attend to, or the output at one of the other positions."""
    rows = output.shape[-2]
    attention = _find_self_attention(call.attentions, call.tap, rows)
    if attention is None or rows == 1:
        name, _, word = call.tap.rpartition(".")
        # the mean of a single position is itself, and there is nothing else to resample: the edit would do nothing
        problem = "processes one position at a time, but {!r} needs several"
        if rows > 1:
            problem = "has no self-attention that decides which positions {!r} may read"
        raise ArgumentError(f"{name} {problem.format(edit.by)}; pass source=lens.run(..., keep={word!r})")
    shares = torch.rand(rows, dtype=torch.float64, generator=torch.Generator().manual_seed(edit.seed))
    dtype = torch.promote_types(output.dtype, torch.float32)
    by_head = output if call.heads is not None else output[:, None]
    ablated = torch.empty_like(by_head)
    for text in range(by_head.shape[0]):
        for index in range(by_head.shape[1]):
            outputs = by_head[text, index]
            head = 0 if call.heads is None else call.heads[index]
            for start, visible in _iterate_visible(attention, text, head):
                part = slice(start, start + len(visible))
                if edit.by == "mean":
                    weights = visible.to(dtype) / visible.sum(-1, keepdim=True).clamp_min(1)
                    ablated[text, index, part] = (weights @ outputs.to(dtype)).to(output.dtype)
                else:
                    ablated[text, index, part] = outputs[_choose_others(visible, start, shares[part])]
    return ablated if call.heads is not None else ablated[:, 0]


def _choose_others(visible: Bool[Tensor, "query key"], start: int, shares: Tensor) -> Tensor:
    """Choose another visible position for each row; a row that sees only itself keeps its position."""
    indices = torch.arange(start, start + len(visible), device=visible.device)
    candidates = visible & (torch.arange(visible.shape[1], device=visible.device) != indices[:, None])
    counts = candidates.sum(-1)
    ordinals = (shares.to(counts.device) * counts).long()
    chosen = (candidates.cumsum(-1) > ordinals[:, None]).int().argmax(-1)
    return torch.where(counts == 0, indices, chosen)


def _find_real_positions(capture: Capture, tap: str, source: Tensor) -> Bool[Tensor, "text position"]:
    """Return which positions of a capture are not padding: those that some query may attend to."""
    texts, positions = len(source), source.shape[-2]
    call = _find_self_attention(capture.attentions, tap, positions)
    if call is None:
        return torch.ones(texts, positions, dtype=torch.bool, device=source.device)
    columns = [
        torch.stack([visible.any(0) for _, visible in _iterate_visible(call, text, 0)]).any(0) for text in range(texts)
    ]
    return torch.stack(columns).to(source.device)


def _find_self_attention(attentions: Mapping[str, CapturedAttention], tap: str, rows: int) -> CapturedCall | None:
    """Return the self-attention over the positions of an output that is nearest by name: its own, or its block's."""
    sites = Sites(list(attentions))
    candidates = [
        (count_shared_words(name, tap), attention.calls[0])
        for name, attention in attentions.items()
        if len(attention.calls) == 1
        and attention.calls[0].queries == attention.calls[0].keys == rows
        and len(set(sites.get_sides(name))) == 1
    ]
    return max(candidates, key=lambda candidate: candidate[0])[1] if candidates else None


def _iterate_visible(call: CapturedCall, text: int, head: int) -> Iterator[tuple[int, Bool[Tensor, "query key"]]]:
    """Yield which keys each query may attend to, a few rows at a time, with the index of the first of them."""
    for start in range(0, call.queries, ROWS_PER_TABLE):
        queries = slice(start, min(start + ROWS_PER_TABLE, call.queries))
        allowed = call.evaluate_mask(text, head, queries, slice(None))
        # in models of transformers, a query that may attend to nothing attends to all keys, equally low
        yield start, allowed & (call.evaluate_bias(text, head, queries, slice(None)) > -FORBIDDEN_GAP)
