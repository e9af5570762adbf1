"""The residual stream of one token: the vector that enters each block, and what attention and MLP add to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.errors import ArgumentError
from jumok.layers import DecoderBlock, EncoderBlock
from jumok.lens.blocks import find_block, find_mlp
from jumok.lens.capture.model_capture import Capture
from jumok.lens.huggingface.module_names import find_feedforwards, find_output_head
from jumok.models import Model

#: what a capture must keep
STREAM_PARTS = ("input", "block_output", "feedforward_output")
TOLERANCE = 1e-3  # of a sum that a model computes in another order, relative to its largest entry

Vector = Float[Tensor, " width"]


@dataclass(frozen=True)
class StreamStep:
    """What a part of a block adds to the residual stream, and the stream behind it."""

    site: str | None  # of an attention; None: the MLP
    added: Vector
    stream: Vector | None  # None: the block does not simply add, so that it is not known between its parts


@dataclass(frozen=True)
class BlockStream:
    """The residual stream of one token in a block."""

    name: str
    before: Vector
    steps: tuple[StreamStep, ...]  # in execution order
    after: Vector | None  # None: not known, of the last block of a model that does not simply add


def read_residual_stream(model: nn.Module, capture: Capture, sequence: str, position: int) -> list[BlockStream]:
    """Return the residual stream of one position in every block, of the first text of a capture.

    A block of Jumok normalises before or after each sum, so the stream behind a part is computed with its own norm. Of
    a block of transformers the sum of its input and its parts is compared with the input of the next block; where they
    differ (post-norm, norms on the parts), only the vectors between blocks are known.

    Args:
        model: The model of the capture.
        capture: A capture made with ``keep=STREAM_PARTS``.
        sequence: "source" or "target": whose attentions and MLPs are read.
        position: The position in this sequence, from 0.

    Raises:
        ArgumentError: If the model has no blocks, its layers differ in their positions, or the capture has no stream.
    """
    sites_by_block: dict[str, list[str]] = {}
    for site in capture.sites.names:
        if capture.sites.get_sides(site).queries == sequence:
            sites_by_block.setdefault(find_block(model, site), []).append(site)
    positions = {capture.attentions[site].queries for sites in sites_by_block.values() for site in sites}
    if len(positions) != 1:
        raise ArgumentError("the layers of this model read different numbers of positions")
    vectors = _StreamVectors(capture, position, positions.pop())
    inputs = {block: vectors.read(f"{block}.input") for block in sites_by_block}
    if isinstance(model, Model):
        return [_follow_block(model, vectors, block, inputs[block], sites) for block, sites in sites_by_block.items()]
    return list(_add_parts(model, vectors, inputs, sites_by_block))


def compute_stream_logits(
    model: nn.Module, streams: Float[Tensor, "stream width"]
) -> Float[Tensor, "stream token"] | None:
    """Return the token logits that a model computes from vectors of the residual stream: its last norm, then its
    output layer. None if the model predicts no tokens, or its last norm is not known."""
    with torch.no_grad():
        if isinstance(model, Model):
            logits = model.compute_logits(streams[None])
            return None if logits is None else logits[0]
        head = find_output_head(model)
        return None if head is None else head.output(streams if head.norm is None else head.norm(streams))


@dataclass(frozen=True)
class _StreamVectors:
    """Reads the vectors of one position."""

    capture: Capture
    position: int
    positions: int

    def read(self, name: str) -> Vector:
        tensor = self.capture.activations.get(name)
        if tensor is None:
            raise ArgumentError(f"the capture has no {name}; create it with keep={STREAM_PARTS!r}")
        if tensor.dim() != 3 or tensor.shape[1] != self.positions:
            raise ArgumentError("the layers of this model read different numbers of positions")
        return tensor[0, self.position].detach()


def _follow_block(model: Model, vectors: _StreamVectors, name: str, before: Vector, sites: list[str]) -> BlockStream:
    """Repeat the sums and norms of a block of Jumok."""
    block = model.get_submodule(name)
    assert isinstance(block, EncoderBlock | DecoderBlock)
    parts = [(site, f"{site}.block_output", site.rpartition(".")[2]) for site in sites]
    steps: list[StreamStep] = []
    stream = before
    for site, tap_name, part in [*parts, (None, f"{name}.feedforward_output", "feedforward")]:
        added = vectors.read(tap_name)
        with torch.no_grad():
            stream = block.add_residual(stream, added, block.get_submodule(f"{part}_norm"))
        steps.append(StreamStep(site, added, stream))
    return BlockStream(name, before, tuple(steps), stream)


def _add_parts(
    model: nn.Module, vectors: _StreamVectors, inputs: dict[str, Vector], sites_by_block: dict[str, list[str]]
) -> Iterator[BlockStream]:
    """Add the parts of the blocks of transformers, and compare each sum with the input of the next block."""
    has_mlps = bool(find_feedforwards(model))
    additions: dict[str, list[tuple[str | None, Vector]]] = {}
    for block, sites in sites_by_block.items():
        names: list[tuple[str | None, str]] = [(site, f"{site}.block_output") for site in sites]
        if has_mlps:
            names.append((None, f"{find_mlp(model, sites[-1])}.feedforward_output"))
        recorded = [(site, name) for site, name in names if name in vectors.capture.activations]
        additions[block] = [(site, vectors.read(name)) for site, name in recorded]

    blocks = list(inputs)
    sums = {block: inputs[block] + sum(added for _, added in parts) for block, parts in additions.items()}
    is_additive = len(blocks) > 1 and all(
        _is_close(sums[block], inputs[following]) for block, following in pairwise(blocks)
    )
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        stream: Vector | None = inputs[block]
        steps = []
        for site, added in additions[block]:
            stream = None if stream is None or not is_additive else stream + added
            steps.append(StreamStep(site, added, stream))
        if not is_additive:
            stream = None if following is None else inputs[following]
        yield BlockStream(block, inputs[block], tuple(steps), stream)


def _is_close(sums: Tensor, expected: Tensor) -> bool:
    largest = float(expected.abs().max())
    return sums.shape == expected.shape and float((sums - expected).abs().max()) <= TOLERANCE * max(1.0, largest)
