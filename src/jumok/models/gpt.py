"""GPT: tokens in, logits of the next token out. GPT-2, Llama-style models (Llama, Mistral, Qwen, SmolLM2), Gemma 3.

    tokens -> embedding (+ positions) -> blocks: norm, causal attention, norm, feed-forward -> norm -> logits

GPT-2 (Radford et al. 2019): learned positions, LayerNorm, GELU, biases. Llama (Touvron et al. 2023): rotary
positions, RMSNorm, SwiGLU, grouped heads, no biases; Qwen2 has biases on query, key and value, Mistral a window, and
Llama 3.1 scaled rotations for longer texts. Qwen3 has norms of queries and keys; Gemma 3 also norms on the outputs of
attention and feed-forward network, and other rotations in the layers with a window.

Positions enter in one of three ways: vectors added to the embeddings (learned, sinusoidal), rotations of queries and
keys (rotary), or a bias on the scores that depends on distances (alibi, t5). Without any of them ("none"), a model
knows the order of tokens from the causal mask alone (Haviv et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from jaxtyping import Bool, Int
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead, bias, mask
from jumok.attention.bias import Bias
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
    SinusoidalPositions,
    YarnScaling,
)
from jumok.layers.token_inputs import (
    build_causal_mask,
    check_tokens,
    compute_positions,
    compute_token_logits,
    make_embedding,
)
from jumok.small_batch_linear import Linear

from .config import Config, declare_activation
from .model import Model, Output, initialise_linear_layers, initialise_normal

POSITIONS = ("none", "sinusoidal", "learned", "rotary", "alibi", "t5")
COUNTED_POSITIONS = ("sinusoidal", "learned", "rotary")  # encodings that read the positions of the tokens


@dataclass(frozen=True)
class GPTConfig(Config):
    """The config of a GPT; the defaults are GPT-2 small."""

    family: ClassVar[str] = "gpt"

    vocabulary: int = integer(50257, "number of tokens")
    length: int = integer(1024, "the longest text, in tokens")
    width: int = integer(768, "width of the model")
    layers: int = integer(12, "number of blocks")
    heads: int = integer(12, "number of attention heads")
    groups: int | None = optional(integer(1, "key/value heads; None = as many as heads"))
    head_width: int | None = optional(integer(1, "width of a head; None = width / heads"))
    hidden: int = integer(3072, "inner width of the feed-forward network")
    positions: str = choice("learned", POSITIONS, "position encoding")
    rotary_base: float = real(10_000.0, "base of the wavelengths of rotary positions", least=1.0)
    rotary_window_base: float | None = optional(
        real(10_000.0, "base in the layers with the window, without scaling; None = as in the others", least=1.0)
    )
    rotary_scaling: str = choice(
        "none",
        ("none", "linear", "llama3", "yarn", "dynamic"),
        "how rotary positions are scaled for longer texts; dynamic changes nothing up to length",
    )
    rotary_factor: float = real(1.0, "the largest factor by which rotations are slowed down", least=1.0, most=1e6)
    rotary_length: int | None = optional(integer(1, "the longest text before the scaling; None = length"))
    rotary_slow: float = real(
        1.0, "frequencies with at most this many turns in that text get the full factor", 1e-6, 1e6
    )
    rotary_fast: float = real(32.0, "frequencies with at least this many turns in that text are unchanged", 1e-6, 1e6)
    rotary_gain: float = real(1.0, "factor on rotated queries and keys (yarn)", least=1e-6, most=1e6)
    buckets: int = integer(32, "number of buckets of distances, each with its own bias (t5)", least=2)
    max_distance: int = integer(128, "all distances from this one on share a bucket (t5)", least=2)
    norm: str = choice("layer", ("layer", "rms"), "LayerNorm or RMSNorm")
    epsilon: float = real(1e-5, "added to the variance in the norms")
    query_key_norm: bool = flag(False, "norms of the queries and keys of each head")
    output_norm: bool = flag(False, "norms of the outputs of attention and feed-forward network")
    scaled_embedding: bool = flag(False, "embeddings are multiplied by sqrt(width)")
    feedforward: str = choice("plain", ("plain", "gated"), "feed-forward network: two layers, or gated (SwiGLU)")
    activation: str = declare_activation("gelu_tanh")
    attention_bias: bool = flag(True, "biases on query, key and value")
    output_bias: bool = flag(True, "a bias on the output projection of the attention")
    feedforward_bias: bool = flag(True, "biases in the feed-forward network")
    window: int | None = optional(integer(1, "sliding window of the attention, in tokens; None = all"))
    windowed: tuple[int, ...] | None = optional(integers((), "the layers with the window, from 0; None = all", least=0))
    tied: bool = flag(True, "the embedding is also the output layer")
    dropout: float = real(0.0, "dropout rate in training", most=0.99)
    fixed_length: bool = flag(False, "every text has exactly length tokens, so that generation ends there")

    def check(self) -> None:
        if self.head_width is None and self.width % self.heads:
            raise ArgumentError(f"width {self.width} cannot be split evenly into {self.heads} heads; give head_width")
        if self.heads % (self.groups or self.heads):
            raise ArgumentError(f"{self.heads} heads cannot be split evenly into {self.groups} groups")
        if self.rotary_scaling != "none" and self.positions != "rotary":
            raise ArgumentError(
                f'rotary_scaling is {self.rotary_scaling!r}, but positions is {self.positions!r}; it needs "rotary"'
            )
        if self.rotary_scaling in ("llama3", "yarn") and not self.rotary_slow < self.rotary_fast:
            raise ArgumentError(
                f"rotary_slow must be below rotary_fast, but they are {self.rotary_slow} and {self.rotary_fast}"
            )
        if self.rotary_scaling != "none" and not self.rotary_base > 1:
            raise ArgumentError(f"rotary_scaling needs a rotary_base above 1, not {self.rotary_base}")
        if self.positions != "t5" and (self.buckets, self.max_distance) != (32, 128):
            raise ArgumentError(f'buckets and max_distance need positions="t5", but positions is {self.positions!r}')
        if self.positions == "t5" and self.max_distance <= self.buckets // 2:
            raise ArgumentError(
                f"max_distance must be above {self.buckets // 2}, the distances with a bucket each; "
                f"not {self.max_distance}"
            )
        if self.rotary_window_base is not None and (self.positions != "rotary" or self.window is None):
            raise ArgumentError('rotary_window_base needs positions="rotary" and a window')
        if self.scaled_embedding and self.positions == "sinusoidal":
            raise ArgumentError('positions="sinusoidal" scales the embeddings already; omit scaled_embedding')
        if self.windowed is None:
            return
        if self.window is None:
            raise ArgumentError("windowed lists the layers with a window, but window is None")
        ordered = list(self.windowed) == sorted(set(self.windowed))
        if not ordered or not 1 <= len(self.windowed) < self.layers or self.windowed[-1] >= self.layers:
            raise ArgumentError(
                f"windowed must list some of the layers 0 to {self.layers - 1}, each once and in order; None = all"
            )

    @property
    def window_layers(self) -> tuple[int, ...]:
        """The layers with the window."""
        if self.window is None:
            return ()
        return tuple(range(self.layers)) if self.windowed is None else self.windowed

    @property
    def scaling(self) -> RotaryScaling | None:
        """The scaling of rotary positions; None if they are not scaled."""
        length = self.rotary_length or self.length
        if self.rotary_scaling == "linear":
            return RotaryScaling(self.rotary_factor)
        if self.rotary_scaling == "llama3":
            return Llama3Scaling(self.rotary_factor, length, self.rotary_slow, self.rotary_fast)
        if self.rotary_scaling == "yarn":
            return YarnScaling(self.rotary_factor, length, self.rotary_slow, self.rotary_fast, self.rotary_gain)
        return None


def llama_config(**fields: object) -> GPTConfig:
    """Return the config of a Llama-style model: rotary positions, RMSNorm, SwiGLU, no biases.

    Args:
        **fields: Other fields of ``GPTConfig``, such as the sizes.
    """
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
    """A decoder-only language model: ``model(tokens).logits`` is [batch, length, vocabulary]. The context length holds
    with every position encoding, but only learned positions have parameters for it: any other model can be built again
    with a larger ``length`` and the same parameters.

    Args:
        config: Sizes and variants.

    >>> import torch
    >>> model = GPT(GPTConfig(vocabulary=50, length=20, width=24, layers=2, heads=4, hidden=40))
    >>> model(torch.tensor([[5, 3, 7]])).logits.shape
    torch.Size([1, 3, 50])
    """

    family = "gpt"
    config_class = GPTConfig
    config: GPTConfig
    reads = "text"
    task = "continue"

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        head_width = config.head_width or config.width // config.heads
        rotary = window_rotary = None
        if config.positions == "rotary":
            rotary = window_rotary = RotaryPositions(head_width, config.rotary_base, scaling=config.scaling)
        if config.rotary_window_base is not None:
            window_rotary = RotaryPositions(head_width, config.rotary_window_base)
        network = FeedForward if config.feedforward == "plain" else GatedFeedForward
        feedforward = partial(network, config.width, config.hidden, config.activation, bias=config.feedforward_bias)
        make_norm = partial(LayerNorm if config.norm == "layer" else RMSNorm, eps=config.epsilon)
        norm = partial(make_norm, config.width)
        attention = partial(
            MultiHead,
            config.width,
            config.heads,
            groups=config.groups,
            head_width=config.head_width,
            bias=config.attention_bias,
            output_bias=config.output_bias,
            query_key_norm=make_norm if config.query_key_norm else None,
            dropout=config.dropout,
        )
        make_output_norm = norm if config.output_norm else lambda: None
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.positions = _build_added_positions(config)
        self.position_bias = make_embedding(config.buckets, config.heads) if config.positions == "t5" else None
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                attention(
                    rotation=window_rotary if layer in config.window_layers else rotary, output_norm=make_output_norm()
                ),
                feedforward(),
                norm=norm,
                order="pre",
                dropout=config.dropout,
                feedforward_output_norm=make_output_norm(),
            )
            for layer in range(config.layers)
        )
        self.norm = norm()
        self.output = None if config.tied else Linear(config.width, config.vocabulary, bias=False)
        self.finish_construction()

    @property
    def ends_at_context(self) -> bool:
        return self.config.fixed_length

    def initialise(self) -> None:
        """Initialise the parameters as GPT-2 does: standard deviation 0.02, divided by sqrt(2 * layers) for the
        projections that add to the residual stream."""
        initialise_linear_layers(self, lambda parameter: initialise_normal(parameter, 0.02))
        for name, parameter in self.named_parameters():
            if name.endswith(("attention.output.weight", "feedforward.outer.weight")):
                initialise_normal(parameter, 0.02 / math.sqrt(2 * self.config.layers))

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        token_mask: Bool[Tensor, "batch key"] | None = None,
        positions: Positions | None = None,
        cache: Cache | None = None,
        last: int | None = None,
    ) -> Output:
        """Return logits and hidden vectors; the call ``model(tokens, weights=True)`` returns the weights too.

        Args:
            tokens: Token ids; with a cache, the new ones.
            token_mask: True = real token, for all keys including the cached ones; padding may be on either side.
            positions: Positions of the tokens, for an encoding that reads them (learned, sinusoidal, rotary); by
                default counted over the real ones.
            cache: Keys and values of earlier tokens; it is extended.
            last: Compute logits for only this many last tokens, which is all that generation needs.
        """
        check_tokens(tokens, self.config.vocabulary)
        cached = 0 if cache is None else cache.length
        if positions is None:
            positions = compute_positions(tokens.shape[1], cached, token_mask)
        elif self.config.positions not in COUNTED_POSITIONS:
            raise ArgumentError(
                f"this model has positions={self.config.positions!r}, which reads no positions; omit positions"
            )
        # the table of learned positions checks the positions themselves
        if self.config.positions != "learned" and cached + tokens.shape[1] > self.config.length:
            raise ShapeError(f"{cached + tokens.shape[1]} tokens exceed the context length of {self.config.length}")

        hidden = self.dropout(self._embed(tokens, positions))
        score_bias = self._build_bias()
        for attention_mask, blocks in self._split_blocks_by_mask(token_mask, cached + tokens.shape[1]):
            hidden = self.run_blocks(
                blocks, hidden, mask=attention_mask, bias=score_bias, positions=positions, cache=cache
            )

        hidden = self.norm(hidden if last is None else hidden[:, -last:])
        return Output(compute_token_logits(hidden, self.output, self.embedding), hidden)

    def compute_logits(self, stream: Tensor) -> Tensor:
        return compute_token_logits(self.norm(stream), self.output, self.embedding)

    def _embed(self, tokens: Tensor, positions: Positions) -> Tensor:
        hidden: Tensor = self.embedding(tokens)
        if isinstance(self.positions, SinusoidalPositions):
            sinusoids = self.positions(positions, hidden.device).to(hidden.dtype)
            return hidden * math.sqrt(self.config.width) + sinusoids
        if self.config.scaled_embedding:
            hidden = hidden * math.sqrt(self.config.width)
        return hidden if self.positions is None else hidden + self.positions(positions)

    def _build_bias(self) -> Bias | None:
        """Return the bias on the scores of every layer. It reads the distances between tokens, which padding on either
        side does not change."""
        if self.config.positions == "alibi":
            return bias.alibi(self.config.heads)
        if self.position_bias is not None:
            return bias.t5(self.position_bias.weight, bidirectional=False, max_distance=self.config.max_distance)
        return None

    def _split_blocks_by_mask(self, token_mask: Tensor | None, keys: int) -> Iterator[tuple[Mask, nn.ModuleList]]:
        """Yield each mask with the consecutive blocks that use it."""
        causal, window = build_causal_mask(token_mask, keys), self.config.window
        windowed = [layer in self.config.window_layers for layer in range(len(self.blocks))]
        start = 0
        for end in range(1, len(windowed) + 1):  # itertools.groupby would break the graph of torch.compile
            if end == len(windowed) or windowed[end] != windowed[start]:
                yield causal & mask.window(window) if windowed[start] and window else causal, self.blocks[start:end]
                start = end


def _build_added_positions(config: GPTConfig) -> LearnedPositions | SinusoidalPositions | None:
    if config.positions == "learned":
        return LearnedPositions(config.length, config.width)
    return SinusoidalPositions(config.width) if config.positions == "sinusoidal" else None
