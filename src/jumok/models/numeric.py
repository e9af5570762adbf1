"""Numeric: numbers in, numbers out. [10, 20, 30, 40, 50] -> [12, 22, 32, 42, 52], once it has learned the rule.

    source / scale -> linear embedding + sinusoidal positions -> encoder blocks (Vaswani et al. 2017)
    start vector, numbers so far / scale -> the same embedding + positions -> decoder blocks, causal -> number * scale

The decoder never sees the number it is to give: at place 0 it has the start vector, at place i the numbers before i.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead, mask
from jumok.attention.grid import Positions
from jumok.errors import ArgumentError, ShapeError
from jumok.fields import integer, real
from jumok.layers import DecoderBlock, EncoderBlock, FeedForward, LayerNorm, SinusoidalPositions

from .config import Config
from .model import Model, Output, initialise_linear


@dataclass(frozen=True)
class NumericConfig(Config):
    """The defaults are the small model of the lesson: width 16, 2 heads, 2 + 2 layers."""

    family: ClassVar[str] = "numeric"

    width: int = integer(16, "width of the model")
    heads: int = integer(2, "how many attention heads")
    layers: int = integer(2, "how many blocks the encoder has, and the decoder")
    hidden: int = integer(64, "width inside the feed-forward")
    scale: float = real(100.0, "numbers are divided by this going in and multiplied coming out", least=1e-6)
    dropout: float = real(0.0, "share dropped while training", most=0.99)

    def check(self) -> None:
        if self.width % self.heads:
            raise ArgumentError(f"width {self.width} does not divide into {self.heads} heads")


@dataclass(frozen=True)
class Numbers(Output):
    """``numbers`` is [batch, place]: what the model gives at each place of the target. ``logits`` is None."""

    numbers: Tensor | None = None


class Numeric(Model):
    """``model(source, target).numbers`` is [batch, target + 1]; ``model.predict(source, length)`` decodes by itself."""

    family = "numeric"
    config_class = NumericConfig
    config: NumericConfig
    reads = "numbers"
    task = "predict"
    answers = "numbers"
    is_encoder_decoder = True

    def __init__(self, config: NumericConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Linear(1, config.width)
        self.positions = SinusoidalPositions(config.width)
        self.start = nn.Parameter(torch.zeros(config.width))
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(
            EncoderBlock(_attention(config), _feedforward(config), **_around(config)) for _ in range(config.layers)
        )
        self.decoder = nn.ModuleList(
            DecoderBlock(_attention(config), _attention(config), _feedforward(config), **_around(config))
            for _ in range(config.layers)
        )
        self.output = nn.Linear(config.width, 1)
        self.finish()

    def initialise(self) -> None:
        initialise_linear(self, nn.init.xavier_uniform_)
        nn.init.normal_(self.start)

    def forward(
        self,
        source: Num[Tensor, "batch source"],
        target: Num[Tensor, "batch target"],
        *,
        source_token_mask: Bool[Tensor, "batch key"] | None = None,
        weights: bool = False,
    ) -> Numbers:
        """target: the numbers *before* each place but the first, whose input is the start vector. To learn the answer
        a, b, c give a, b and compare with a, b, c: there is one number more than was given.
        source_token_mask: True = a real number; on either side.
        """
        encoded, own = self._encoded(source, source_token_mask, weights)
        made, found = self._decoded(target, encoded, source_token_mask, None, weights)
        if not weights:
            return made
        decoder, cross = zip(*found, strict=True)
        return replace(made, weights={"encoder": tuple(own), "decoder": decoder, "cross": cross})

    def encode(
        self, source: Num[Tensor, "batch source"], *, source_token_mask: Bool[Tensor, "batch key"] | None = None
    ) -> Float[Tensor, "batch source width"]:
        return self._encoded(source, source_token_mask, False)[0]

    def decode(
        self,
        target: Num[Tensor, "batch target"],
        encoded: Float[Tensor, "batch source width"],
        *,
        source_token_mask: Bool[Tensor, "batch key"] | None = None,
        cache: Cache | None = None,
    ) -> Numbers:
        """Without a cache, or with an empty one, the start vector stands before ``target``; with one that has seen
        places, ``target`` is the numbers after those."""
        return self._decoded(target, encoded, source_token_mask, cache, False)[0]

    @torch.no_grad()
    def predict(
        self,
        source: Num[Tensor, "batch source"],
        length: int,
        *,
        source_token_mask: Bool[Tensor, "batch key"] | None = None,
    ) -> Float[Tensor, "batch length"]:
        """The answer, number by number: each goes in again to give the next. Nothing else of the answer is known."""
        if length < 1:
            raise ArgumentError(f"length must be at least 1, not {length}")
        encoded = self.encode(source, source_token_mask=source_token_mask)
        cache = Cache(capacity=length)
        found = [encoded.new_empty(len(source), 0)]
        for _ in range(length):
            step = self.decode(found[-1], encoded, source_token_mask=source_token_mask, cache=cache)
            assert step.numbers is not None
            found.append(step.numbers)
        return torch.cat(found, 1)

    def _encoded(self, source: Tensor, token_mask: Tensor | None, weights: bool) -> tuple[Tensor, list[Any]]:
        if source.dim() == 2 and not source.shape[1]:
            raise ArgumentError("the source is empty: a model needs at least one number")
        hidden = self._embedded(source, _places(source, token_mask))
        who = None if token_mask is None else mask.padding(token_mask)
        return self.through(self.encoder, self.dropout(hidden), mask=who, weights=weights)

    def _decoded(
        self, target: Tensor, encoded: Tensor, token_mask: Tensor | None, cache: Cache | None, weights: bool
    ) -> tuple[Numbers, list[Any]]:
        seen = 0 if cache is None else cache.length
        first = 0 if seen else 1  # the start vector's place
        hidden = self._embedded(target, range(seen + first, seen + first + target.shape[1]))
        if first:
            start = self.start + self.positions(range(1), self.device).to(self.start.dtype)
            hidden = torch.cat([start.expand(len(target), 1, -1), hidden], 1)
        hidden, found = self.through(
            self.decoder,
            self.dropout(hidden),
            encoded,
            mask=mask.causal,
            source_mask=None if token_mask is None else mask.padding(token_mask),
            cache=cache,
            weights=weights,
        )
        return Numbers(hidden=hidden, numbers=self.output(hidden)[..., 0] * self.config.scale), found

    def _embedded(self, numbers: Tensor, positions: Positions) -> Tensor:
        if numbers.dim() != 2:
            raise ShapeError(f"numbers must be [batch, length], not {list(numbers.shape)}")
        if not bool(torch.isfinite(numbers).all()):
            raise ArgumentError("the numbers hold an infinity or what is no number (NaN)")
        scaled = (numbers / self.config.scale).to(self.start.dtype)
        place = self.positions(positions, self.device).to(self.start.dtype)
        return self.embedding(scaled[..., None]) + place


def _places(source: Tensor, token_mask: Tensor | None) -> Positions:
    """Where the numbers stand: padding is not counted."""
    if token_mask is None:
        return range(source.shape[1])
    return (token_mask.long().cumsum(-1) - 1).clamp_min(0)


def _attention(config: NumericConfig) -> MultiHead:
    return MultiHead(config.width, config.heads, dropout=config.dropout)


def _feedforward(config: NumericConfig) -> FeedForward:
    return FeedForward(config.width, config.hidden, "relu", dropout=config.dropout)


def _around(config: NumericConfig) -> dict[str, Any]:
    return {"norm": lambda: LayerNorm(config.width), "order": "post", "dropout": config.dropout}
