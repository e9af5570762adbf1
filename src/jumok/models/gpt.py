"""GPT: tokens in, the next token's logits out. GPT-2, and the Llama line (Llama, Mistral, Qwen2, SmolLM2).

    tokens -> embedding (+ learned positions) -> blocks: norm, causal attention, norm, feed-forward -> norm -> logits

GPT-2 (Radford et al. 2019): learned positions, LayerNorm, GELU, biases. The Llama line (Touvron et al. 2023): rotary
positions, RMSNorm, SwiGLU, grouped heads, no biases; Qwen2 has biases on query, key and value, Mistral a window, and
Llama 3.1 rotations that are scaled for longer texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from jaxtyping import Bool, Int
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead, mask
from jumok.attention.grid import Positions
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError, ShapeError
from jumok.fields import choice, flag, integer, integers, optional, real
from jumok.layers import (
    EncoderBlock,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    LearnedPositions,
    Llama3Scaling,
    RMSNorm,
    RotaryPositions,
    RotaryScaling,
    YarnScaling,
)
from jumok.layers.embedding import make_embedding
from jumok.small_batch_linear import Linear

from .config import Config
from .model import Model, Output, check_tokens, initialise_linear, normal_, token_logits


@dataclass(frozen=True)
class GPTConfig(Config):
    """The defaults are GPT-2 small."""

    family: ClassVar[str] = "gpt"

    vocabulary: int = integer(50257, "how many tokens there are")
    length: int = integer(1024, "the longest text")
    width: int = integer(768, "width of the model")
    layers: int = integer(12, "how many blocks")
    heads: int = integer(12, "how many attention heads")
    groups: int | None = optional(integer(1, "key/value heads; None = as many as heads"))
    head_width: int | None = optional(integer(1, "width of a head; None = width / heads"))
    hidden: int = integer(3072, "width inside the feed-forward")
    positions: str = choice("learned", ("learned", "rotary"), "how a token learns where it stands")
    rotary_base: float = real(10_000.0, "the longest wavelength of rotary positions", least=1.0)
    rotary_scaling: str = choice(
        "none",
        ("none", "linear", "llama3", "yarn", "dynamic"),
        "how rotary positions are slowed down; dynamic = beyond the length alone, so never here",
    )
    rotary_factor: float = real(1.0, "how much slower, at most", least=1.0, most=1e6)
    rotary_length: int | None = optional(integer(1, "the longest text before the scaling; None = length"))
    rotary_slow: float = real(1.0, "turns within that text up to which the whole factor counts", least=1e-6, most=1e6)
    rotary_fast: float = real(32.0, "turns within that text from which nothing is slowed down", least=1e-6, most=1e6)
    rotary_gain: float = real(1.0, "what turned queries and keys are multiplied by (yarn)", least=1e-6, most=1e6)
    norm: str = choice("layer", ("layer", "rms"), "LayerNorm or RMSNorm")
    epsilon: float = real(1e-5, "added inside the norms' root")
    feedforward: str = choice("plain", ("plain", "gated"), "two maps, or gated (SwiGLU)")
    activation: str = choice("gelu_tanh", ("relu", "gelu", "gelu_tanh", "silu"), "of the feed-forward")
    attention_bias: bool = flag(True, "biases on query, key and value")
    output_bias: bool = flag(True, "a bias on the attention's output map")
    feedforward_bias: bool = flag(True, "biases in the feed-forward")
    window: int | None = optional(integer(1, "how many tokens back each layer sees; None = all"))
    windowed: tuple[int, ...] | None = optional(integers((), "the layers with the window, from 0; None = all", least=0))
    tied: bool = flag(True, "the embedding is also the output map")
    dropout: float = real(0.0, "share dropped while training", most=0.99)

    def check(self) -> None:
        if self.head_width is None and self.width % self.heads:
            raise ArgumentError(f"width {self.width} does not divide into {self.heads} heads; give head_width")
        if self.heads % (self.groups or self.heads):
            raise ArgumentError(f"{self.heads} heads do not divide into {self.groups} groups")
        if self.rotary_scaling in ("llama3", "yarn") and not self.rotary_slow < self.rotary_fast:
            raise ArgumentError(
                f"rotary_slow must be below rotary_fast, but they are {self.rotary_slow} and {self.rotary_fast}"
            )
        if self.rotary_scaling != "none" and not self.rotary_base > 1:
            raise ArgumentError(f"rotary positions can be scaled where rotary_base is above 1, not {self.rotary_base}")
        if self.windowed is not None:
            if self.window is None:
                raise ArgumentError("windowed says which layers have the window, but there is no window")
            ordered = list(self.windowed) == sorted(set(self.windowed))
            if not ordered or not 1 <= len(self.windowed) < self.layers or self.windowed[-1] >= self.layers:
                raise ArgumentError(
                    f"windowed must name some of the layers 0 to {self.layers - 1}, each once and in order; None = all"
                )

    @property
    def scaling(self) -> RotaryScaling | None:
        """How rotary positions are slowed down."""
        length = self.rotary_length or self.length
        if self.rotary_scaling == "linear":
            return RotaryScaling(self.rotary_factor)
        if self.rotary_scaling == "llama3":
            return Llama3Scaling(self.rotary_factor, length, self.rotary_slow, self.rotary_fast)
        if self.rotary_scaling == "yarn":
            return YarnScaling(self.rotary_factor, length, self.rotary_slow, self.rotary_fast, self.rotary_gain)
        return None


def llama_config(**fields: object) -> GPTConfig:
    """A config of the Llama line: what all its members share, changed by ``fields``."""
    shared: dict[str, object] = {
        "positions": "rotary",
        "norm": "rms",
        "feedforward": "gated",
        "activation": "silu",
        "attention_bias": False,
        "output_bias": False,
        "feedforward_bias": False,
    }
    return GPTConfig.from_json({**shared, **fields})


class GPT(Model):
    """``model(tokens).logits`` is [batch, length, vocabulary]."""

    family = "gpt"
    config_class = GPTConfig
    config: GPTConfig
    reads = "text"
    task = "continue"
    answers = "text"

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        head_width = config.head_width or config.width // config.heads
        rotary = None
        if config.positions == "rotary":
            rotary = RotaryPositions(head_width, config.rotary_base, scaling=config.scaling)
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.positions = LearnedPositions(config.length, config.width) if config.positions == "learned" else None
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(_block(config, rotary) for _ in range(config.layers))
        self.norm = _norm(config)
        self.output = None if config.tied else Linear(config.width, config.vocabulary, bias=False)
        self.finish()

    @property
    def context_length(self) -> int:
        """The longest text in tokens."""
        return self.config.length

    def initialise(self) -> None:
        # GPT-2: deviation 0.02; what is added to the residual path is smaller the more layers add to it
        initialise_linear(self, lambda parameter: normal_(parameter, 0.02))
        for name, parameter in self.named_parameters():
            if name.endswith(("attention.output.weight", "feedforward.outer.weight")):
                normal_(parameter, 0.02 / math.sqrt(2 * self.config.layers))

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        token_mask: Bool[Tensor, "batch key"] | None = None,
        positions: Positions | None = None,
        cache: Cache | None = None,
        weights: bool = False,
        last: int | None = None,
    ) -> Output:
        """token_mask: True = a real token, for every key there is (those in the cache too); on either side.
        positions: where the tokens stand; by default counted over the real ones.
        last: logits of the last so many tokens alone, which is all that generation needs.
        """
        check_tokens(tokens, self.config.vocabulary)
        seen = 0 if cache is None else cache.length
        if positions is None:
            positions = places(tokens.shape[1], seen, token_mask)
        hidden = self.embedding(tokens)
        if self.positions is not None:
            hidden = hidden + self.positions(positions)
        elif seen + tokens.shape[1] > self.config.length:
            raise ShapeError(f"{seen + tokens.shape[1]} tokens are more than this model's {self.config.length}")
        hidden, found = self.dropout(hidden), []
        for who, blocks in self._masked(token_mask):
            hidden, more = self.through(blocks, hidden, mask=who, positions=positions, cache=cache, weights=weights)
            found += more
        hidden = self.norm(hidden if last is None else hidden[:, -last:])
        logits = token_logits(hidden, self.output, self.embedding)
        return Output(logits, hidden, tuple(found) if weights else None)

    def _masked(self, token_mask: Tensor | None) -> Iterator[tuple[Mask, list[nn.Module]]]:
        """Blocks that follow each other and have one mask, with that mask."""
        window, windowed = self.config.window, self.config.windowed
        everything = mask.causal if token_mask is None else mask.causal & mask.padding(token_mask)
        if window is None or windowed is None:
            yield everything if window is None else everything & mask.window(window), list(self.blocks)
            return
        for short, run in groupby(range(len(self.blocks)), set(windowed).__contains__):
            who = everything & mask.window(window) if short else everything
            yield who, [self.blocks[layer] for layer in run]


def places(length: int, seen: int, token_mask: Tensor | None) -> Positions:
    """Where new tokens stand: behind those seen, padding not counted."""
    if token_mask is None:
        return range(seen, seen + length)
    counted = token_mask.long().cumsum(-1) - 1
    return counted.clamp_min(0)[:, seen : seen + length]


def _norm(config: GPTConfig) -> nn.Module:
    made = LayerNorm if config.norm == "layer" else RMSNorm
    return made(config.width, eps=config.epsilon)


def _block(config: GPTConfig, rotary: RotaryPositions | None) -> EncoderBlock:
    attention = MultiHead(
        config.width,
        config.heads,
        groups=config.groups,
        head_width=config.head_width,
        bias=config.attention_bias,
        output_bias=config.output_bias,
        rotation=rotary,
        dropout=config.dropout,
    )
    made = FeedForward if config.feedforward == "plain" else GatedFeedForward
    feedforward = made(config.width, config.hidden, config.activation, bias=config.feedforward_bias)
    return EncoderBlock(attention, feedforward, norm=lambda: _norm(config), order="pre", dropout=config.dropout)
