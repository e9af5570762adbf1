"""Numeric: an encoder-decoder on real numbers, for example [10, 20, 30, 40, 50] -> [12, 22, 32, 42, 52].

    source / scale -> linear embedding + sinusoidal positions -> encoder blocks (Vaswani et al. 2017)
    start vector, numbers so far / scale -> the same embedding + positions -> decoder blocks, causal -> number * scale

The decoder never reads the number it has to predict: its input is the start vector at position 0, and the number
i - 1 at position i.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead
from jumok.attention.grid import Positions
from jumok.errors import ArgumentError, ShapeError
from jumok.fields import integer, optional, real
from jumok.layers import FeedForward, LayerNorm, SinusoidalPositions
from jumok.layers.token_inputs import compute_positions

from .config import Config
from .encoder_decoder import BlockSettings, EncoderDecoder, build_decoder, build_encoder
from .model import Output, initialise_linear_layers


@dataclass(frozen=True)
class NumericConfig(Config):
    """The config of a numeric model; the defaults are a small model: width 16, 2 heads, 2 + 2 layers."""

    family: ClassVar[str] = "numeric"

    width: int = integer(16, "width of the model")
    heads: int = integer(2, "number of attention heads")
    layers: int = integer(2, "number of blocks of the encoder, and of the decoder")
    hidden: int = integer(64, "inner width of the feed-forward network")
    scale: float = real(100.0, "inputs are divided by this, outputs multiplied", least=1e-6)
    dropout: float = real(0.0, "dropout rate in training", most=0.99)
    trained_lowest: float | None = optional(real(0.0, "smallest number in training; None = not known", least=-1e9))
    trained_highest: float | None = optional(real(0.0, "largest number in training; None = not known", least=-1e9))
    trained_length: int | None = optional(integer(1, "numbers in a training sequence; None = not known"))

    def check(self) -> None:
        self.check_heads(self.width, self.heads)


@dataclass(frozen=True)
class Numbers(Output):
    """The output of a numeric model; ``logits`` is None."""

    numbers: Tensor | None = None  # the predicted number at each position of the target, [batch, position]


torch.export.register_dataclass(Numbers, serialized_type_name="jumok.Numbers")


class Numeric(EncoderDecoder):
    """An encoder-decoder on numbers: ``model(source, target).numbers`` is [batch, target + 1];
    ``model.predict(source, length)`` decodes autoregressively.

    The target holds the numbers that precede each position except the first, whose input is the start vector: to learn
    the answer a, b, c, pass a, b and compare the output with a, b, c. With a cache that has positions, the target holds
    the numbers after those.

    Args:
        config: Sizes and the scale of the numbers.
    """

    family = "numeric"
    config_class = NumericConfig
    config: NumericConfig
    reads = "numbers"
    task = "predict"

    embedding: nn.Linear  # type: ignore[assignment]  # numbers are mapped, not looked up
    output: nn.Linear

    def __init__(self, config: NumericConfig) -> None:
        super().__init__()
        self.config = config
        attention = partial(MultiHead, config.width, config.heads, dropout=config.dropout)
        feedforward = partial(FeedForward, config.width, config.hidden, "relu", dropout=config.dropout)
        norm = partial(LayerNorm, config.width)
        settings = {"norm": norm, "order": "post", "dropout": config.dropout}

        self.embedding = nn.Linear(1, config.width)
        self.positions = SinusoidalPositions(config.width)
        self.start = nn.Parameter(torch.zeros(config.width))
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = build_encoder(config.layers, attention, feedforward, **settings)
        self.decoder = build_decoder(config.layers, attention, attention, feedforward, **settings)
        self.encoder_norm = self.decoder_norm = None
        self.output = nn.Linear(config.width, 1)
        self.finish_construction()

    def initialise(self) -> None:
        """Initialise the parameters as in Glorot and Bengio 2010."""
        initialise_linear_layers(self, nn.init.xavier_uniform_)
        nn.init.normal_(self.start)

    @torch.no_grad()
    def predict(
        self, source: Num[Tensor, "batch source"], length: int, *, source_token_mask: Tensor | None = None
    ) -> Float[Tensor, "batch length"]:
        """Predict numbers one by one; each prediction is the input of the next step.

        Args:
            source: Numbers.
            length: How many numbers to predict.
            source_token_mask: True = real number of the source.
        """
        if length < 1:
            raise ArgumentError(f"length must be at least 1, not {length}")
        encoded = self.encode(source, source_token_mask=source_token_mask)
        cache = Cache(capacity=length)
        predicted = [encoded.new_empty(len(source), 0)]
        for _ in range(length):
            step = self.decode(predicted[-1], encoded, source_token_mask=source_token_mask, cache=cache)
            assert isinstance(step, Numbers) and step.numbers is not None
            predicted.append(step.numbers)
        return torch.cat(predicted, 1)

    def describe_unlearned(self, source: Num[Tensor, "batch source"]) -> str:
        config, reasons = self.config, []
        if config.trained_length not in (None, source.shape[1]):
            reasons.append(f"{source.shape[1]} instead of {config.trained_length} numbers")
        if config.trained_lowest is not None and config.trained_highest is not None:
            outside = source[(source < config.trained_lowest) | (source > config.trained_highest)].tolist()
            if outside:
                limits = f"from {config.trained_lowest:g} to {config.trained_highest:g}"
                reasons.append(f"{outside[0]:g} instead of numbers {limits}")
        if not reasons:
            return ""
        return f"this model was not trained on such an input ({', '.join(reasons)}), so its answer may be wrong"

    def _embed_source(self, source: Tensor, token_mask: Tensor | None) -> tuple[Tensor, BlockSettings]:
        if source.dim() == 2 and not source.shape[1]:
            raise ArgumentError("the source is empty: a model needs at least one number")
        return self._embed(source, compute_positions(source.shape[-1], 0, token_mask)), {}

    def _embed_target(self, target: Tensor, cached: int, token_mask: Tensor | None) -> tuple[Tensor, BlockSettings]:
        first = cached or 1  # position 0 holds the start vector
        hidden = self._embed(target, range(first, first + target.shape[1]))
        if not cached:
            start = self.start + self.positions(range(1), self.device).to(self.start.dtype)
            hidden = torch.cat([start.expand(len(target), 1, -1), hidden], 1)
        return hidden, {}

    def _answer(self, hidden: Tensor) -> Numbers:
        return Numbers(hidden=hidden, numbers=self.output(hidden)[..., 0] * self.config.scale)

    def _embed(self, numbers: Tensor, positions: Positions) -> Tensor:
        if numbers.dim() != 2:
            raise ShapeError(f"numbers must be [batch, length], not {list(numbers.shape)}")
        if not numbers.is_meta and not bool(torch.isfinite(numbers).all()):
            raise ArgumentError("the numbers must be finite, but contain infinity or NaN")
        scaled = (numbers / self.config.scale).to(self.start.dtype)
        encoded_positions = self.positions(positions, self.device).to(self.start.dtype)
        return self.embedding(scaled[..., None]) + encoded_positions
