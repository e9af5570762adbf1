"""GPT: tokens in, the next token's logits out. GPT-2, and the Llama line (Llama, Mistral, Qwen2, SmolLM2).

    tokens -> embedding (+ learned positions) -> blocks: norm, causal attention, norm, feed-forward -> norm -> logits

GPT-2 (Radford et al. 2019): learned positions, LayerNorm, GELU, biases. The Llama line (Touvron et al. 2023): rotary
positions, RMSNorm, SwiGLU, grouped heads, no biases; Qwen2 has biases on query, key and value, Mistral a window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Int
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead, mask
from jumok.attention.grid import Positions
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError, ShapeError
from jumok.layers import EncoderBlock, FeedForward, GatedFeedForward, LayerNorm, Learned, RMSNorm, Rotary
from jumok.layers.embedding import embedding
from jumok.linear import Linear, linear

from .config import Config, choice, maybe, number, real, truth
from .model import Model, Output, check_tokens, initialise_linear, normal_


@dataclass(frozen=True)
class GPTConfig(Config):
    """The defaults are GPT-2 small."""

    family: ClassVar[str] = "gpt"

    vocabulary: int = number(50257, "how many tokens there are")
    length: int = number(1024, "the longest text")
    width: int = number(768, "width of the model")
    layers: int = number(12, "how many blocks")
    heads: int = number(12, "how many attention heads")
    groups: int | None = maybe(number(1, "key/value heads; None = as many as heads"))
    head_width: int | None = maybe(number(1, "width of a head; None = width / heads"))
    hidden: int = number(3072, "width inside the feed-forward")
    positions: str = choice("learned", ("learned", "rotary"), "how a token learns where it stands")
    rotary_base: float = real(10_000.0, "the longest wavelength of rotary positions", least=1.0)
    norm: str = choice("layer", ("layer", "rms"), "LayerNorm or RMSNorm")
    epsilon: float = real(1e-5, "added inside the norms' root")
    feedforward: str = choice("plain", ("plain", "gated"), "two maps, or gated (SwiGLU)")
    activation: str = choice("gelu_tanh", ("relu", "gelu", "gelu_tanh", "silu"), "of the feed-forward")
    attention_bias: bool = truth(True, "biases on query, key and value")
    output_bias: bool = truth(True, "a bias on the attention's output map")
    feedforward_bias: bool = truth(True, "biases in the feed-forward")
    window: int | None = maybe(number(1, "how many tokens back each layer sees; None = all"))
    tied: bool = truth(True, "the embedding is also the output map")
    dropout: float = real(0.0, "share dropped while training", most=0.99)

    def check(self) -> None:
        if self.head_width is None and self.width % self.heads:
            raise ArgumentError(f"width {self.width} does not divide into {self.heads} heads; give head_width")
        if self.heads % (self.groups or self.heads):
            raise ArgumentError(f"{self.heads} heads do not divide into {self.groups} groups")


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

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        head_width = config.head_width or config.width // config.heads
        rotary = Rotary(head_width, config.rotary_base) if config.positions == "rotary" else None
        self.embedding = embedding(config.vocabulary, config.width)
        self.positions = Learned(config.length, config.width) if config.positions == "learned" else None
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(_block(config, rotary) for _ in range(config.layers))
        self.norm = _norm(config)
        self.output = None if config.tied else Linear(config.width, config.vocabulary, bias=False)
        self.finish()

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
        padding: Bool[Tensor, "batch key"] | None = None,
        positions: Positions | None = None,
        cache: Cache | None = None,
        weights: bool = False,
        last: int | None = None,
    ) -> Output:
        """padding: True = a real token, for every key there is (those in the cache too); on either side.
        positions: where the tokens stand; by default counted over the real ones.
        last: logits of the last so many tokens alone, which is all that generation needs.
        """
        check_tokens(tokens, self.config.vocabulary)
        seen = 0 if cache is None else cache.length
        if positions is None:
            positions = places(tokens.shape[1], seen, padding)
        hidden = self.embedding(tokens)
        if self.positions is not None:
            hidden = hidden + self.positions(positions)
        elif seen + tokens.shape[1] > self.config.length:
            raise ShapeError(f"{seen + tokens.shape[1]} tokens are more than this model's {self.config.length}")
        hidden, found = self.through(
            self.blocks,
            self.dropout(hidden),
            mask=self._mask(padding),
            positions=positions,
            cache=cache,
            weights=weights,
        )
        hidden = self.norm(hidden if last is None else hidden[:, -last:])
        logits = linear(hidden, self.embedding.weight, None) if self.output is None else self.output(hidden)
        return Output(logits, hidden, tuple(found) if weights else None)

    def _mask(self, padding: Tensor | None) -> Mask:
        who = mask.causal
        if self.config.window is not None:
            who = who & mask.window(self.config.window)
        return who if padding is None else who & mask.padding(padding)


def places(length: int, seen: int, padding: Tensor | None) -> Positions:
    """Where new tokens stand: behind those seen, padding not counted."""
    if padding is None:
        return range(seen, seen + length)
    counted = padding.long().cumsum(-1) - 1
    return counted.clamp_min(0)[:, seen : seen + length]


def _norm(config: GPTConfig) -> nn.Module:
    made = LayerNorm if config.norm == "layer" else RMSNorm
    return made(config.width, eps=config.epsilon)


def _block(config: GPTConfig, rotary: Rotary | None) -> EncoderBlock:
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
