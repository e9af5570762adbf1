"""Speech: audio in, text out. The family of Whisper (Radford et al. 2022).

The paper is "Robust Speech Recognition via Large-Scale Weak Supervision".

    log-mel spectrogram, a frame each 10 ms -> convolution, convolution with stride 2 -> + sinusoidal positions
        -> blocks: norm, attention, norm, feed-forward -> norm -> encoded, a position each 20 ms
    text so far -> embedding + learned positions -> blocks: norm, causal attention, norm, cross-attention to the audio,
        norm, feed-forward -> norm -> the next token's logits

A position of the encoder belongs to a moment of the audio, so the cross-attention shows when a word was spoken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from jumok.attention import Cache, MultiHead
from jumok.errors import ShapeError
from jumok.fields import choice, flag, integer, real
from jumok.layers import DecoderBlock, EncoderBlock, FeedForward, LayerNorm, LearnedPositions
from jumok.layers.embedding import make_embedding
from jumok.layers.token_inputs import (
    build_causal_mask,
    build_padding_mask,
    check_tokens,
    compute_positions,
    compute_token_logits,
)

from .config import Config
from .model import LayerWeights, Model, Output, collect_decoder_weights, initialise_linear_layers, initialise_normal

FRAMES_PER_POSITION = 2  # the stride of the second convolution
KERNEL = 3  # frames that a convolution reads

LogMel = Float[Tensor, "batch mel frame"]


@dataclass(frozen=True)
class SpeechConfig(Config):
    """The config of a speech model; the defaults are those of Whisper tiny.en."""

    family: ClassVar[str] = "speech"

    mel_bins: int = integer(80, "number of frequency bands of the spectrogram")
    source_length: int = integer(1500, "the longest audio, in positions of 20 ms: 1500 = 30 s")
    target_length: int = integer(448, "the longest text, in tokens")
    vocabulary: int = integer(51_864, "number of tokens")
    width: int = integer(384, "width of the model")
    layers: int = integer(4, "number of blocks of the encoder")
    decoder_layers: int = integer(4, "number of blocks of the decoder")
    heads: int = integer(6, "number of attention heads of the encoder")
    decoder_heads: int = integer(6, "number of attention heads of the decoder")
    hidden: int = integer(1536, "inner width of the encoder's feed-forward networks")
    decoder_hidden: int = integer(1536, "inner width of the decoder's feed-forward networks")
    activation: str = choice("gelu", ("relu", "gelu", "gelu_tanh", "silu"), "activation of the feed-forward network")
    tied: bool = flag(True, "the embedding is also the output layer")
    start: int = integer(50_257, "the token that a text begins with", least=0)
    end: int = integer(50_256, "the token that ends a text", least=0)
    pad: int = integer(50_256, "the padding token", least=0)
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    def check(self) -> None:
        """Raise ArgumentError if fields contradict each other."""
        self.check_heads(self.width, self.heads)
        self.check_heads(self.width, self.decoder_heads)
        self.check_special_tokens(self.vocabulary, start=self.start, end=self.end, pad=self.pad)

    @property
    def frame_count(self) -> int:
        """The number of frames of the longest audio."""
        return FRAMES_PER_POSITION * self.source_length


class Speech(Model):
    """An encoder-decoder: ``model(features, target).logits`` is [batch, target, vocabulary], at each position the
    logits of the next token. ``features`` is the log-mel spectrogram [batch, mel, frame].

    Args:
        config: Sizes and variants.
    """

    family = "speech"
    config_class = SpeechConfig
    config: SpeechConfig
    reads = "audio"
    task = "transcribe"
    answers = "text"
    is_encoder_decoder = True

    def __init__(self, config: SpeechConfig) -> None:
        super().__init__()
        self.config = config
        self.first_convolution = nn.Conv1d(config.mel_bins, config.width, KERNEL, padding=1)
        self.second_convolution = nn.Conv1d(config.width, config.width, KERNEL, stride=FRAMES_PER_POSITION, padding=1)
        # A table in the checkpoint, though it is not trained: the published one differs from computed sines by 3e-4.
        self.source_positions = nn.Parameter(torch.empty(config.source_length, config.width), requires_grad=False)
        self.encoder = nn.ModuleList(_build_encoder_block(config) for _ in range(config.layers))
        self.encoder_norm = LayerNorm(config.width)
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.positions = LearnedPositions(config.target_length, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.decoder = nn.ModuleList(_build_decoder_block(config) for _ in range(config.decoder_layers))
        self.decoder_norm = LayerNorm(config.width)
        self.output = None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)
        self.finish_construction()

    @property
    def context_length(self) -> int:
        """The longest text in tokens."""
        return self.config.target_length

    @property
    def start_token(self) -> int:
        """The token that every text begins with."""
        return self.config.start

    @property
    def end_token(self) -> int:
        """The token that ends a text."""
        return self.config.end

    @torch.no_grad()
    def initialise(self) -> None:
        """Initialise the parameters from normal distributions: convolutions by their number of inputs (He et al.
        2015), the other layers with standard deviation 0.02. The positions of the audio are sinusoids."""
        initialise_linear_layers(self, lambda parameter: initialise_normal(parameter, 0.02))
        for convolution in (self.first_convolution, self.second_convolution):
            nn.init.kaiming_normal_(convolution.weight)
        self.source_positions.copy_(compute_sinusoids(self.config.source_length, self.config.width))

    def forward(
        self,
        features: LogMel,
        target: Int[Tensor, "batch target"],
        *,
        source_token_mask: Bool[Tensor, "batch source"] | None = None,
        target_token_mask: Bool[Tensor, "batch key"] | None = None,
        cache: Cache | None = None,
        weights: bool = False,
        last: int | None = None,
    ) -> Output:
        """Return logits, hidden vectors and (if requested) attention weights.

        Args:
            features: The log-mel spectrogram, [batch, mel, frame]; see ``jumok.data.audio.log_mel``.
            target: The decoder's input, beginning with ``config.start``; with a cache, the new tokens.
            source_token_mask: True = a position of 20 ms that may be attended to. None allows all, as in Whisper,
                which also attends to the silence after a short recording.
            target_token_mask: True = real target token, on either side, for all keys including the cached ones.
            cache: Keys and values of earlier target tokens; it is extended.
            weights: Return the weights of every layer, as a dict of tuples: "encoder", "decoder" and "cross".
            last: Compute logits for only this many last tokens, which is all that generation needs.
        """
        encoded, encoder_weights = self._run_encoder(features, source_token_mask, weights)
        output = self.decode(
            target,
            encoded,
            source_token_mask=source_token_mask,
            target_token_mask=target_token_mask,
            cache=cache,
            weights=weights,
            last=last,
        )
        if not weights:
            return output
        return replace(output, weights={"encoder": encoder_weights, **output.weights})

    def encode(
        self, features: LogMel, *, source_token_mask: Bool[Tensor, "batch source"] | None = None
    ) -> Float[Tensor, "batch source width"]:
        """Return the encoder's output, one vector for each 20 ms; generation computes it only once.

        Args:
            features: The log-mel spectrogram.
            source_token_mask: True = a position of 20 ms that may be attended to.
        """
        return self._run_encoder(features, source_token_mask, False)[0]

    def decode(
        self,
        target: Int[Tensor, "batch target"],
        encoded: Float[Tensor, "batch source width"],
        *,
        source_token_mask: Bool[Tensor, "batch source"] | None = None,
        target_token_mask: Bool[Tensor, "batch key"] | None = None,
        cache: Cache | None = None,
        weights: bool = False,
        last: int | None = None,
    ) -> Output:
        """Run the decoder.

        Args:
            target: The decoder's input; with a cache, the new tokens.
            encoded: The encoder's output.
            source_token_mask: True = a position of 20 ms that may be attended to.
            target_token_mask: True = real target token, for all keys including the cached ones.
            cache: Keys and values of earlier target tokens; it is extended.
            weights: Return the weights of every layer: "decoder" and "cross".
            last: Compute logits for only this many last tokens.
        """
        check_tokens(target, self.config.vocabulary)
        cached = 0 if cache is None else cache.length
        positions = compute_positions(target.shape[1], cached, target_token_mask)
        hidden, layer_weights = self.run_blocks(
            self.decoder,
            self.dropout(self.embedding(target) + self.positions(positions)),
            encoded,
            mask=build_causal_mask(target_token_mask, cached + target.shape[1]),
            source_mask=build_padding_mask(source_token_mask, encoded.shape[1]),
            cache=cache,
            weights=weights,
        )
        hidden = self.decoder_norm(hidden if last is None else hidden[:, -last:])
        logits = compute_token_logits(hidden, self.output, self.embedding)
        return Output(logits, hidden, collect_decoder_weights(layer_weights) if weights else None)

    def _run_encoder(self, features: Tensor, token_mask: Tensor | None, weights: bool) -> tuple[Tensor, LayerWeights]:
        embedded = self.dropout(self._embed(features))
        hidden, layer_weights = self.run_blocks(
            self.encoder,
            embedded,
            mask=build_padding_mask(token_mask, embedded.shape[1]),
            weights=weights,
        )
        return self.encoder_norm(hidden), tuple(layer_weights)

    def _embed(self, features: Tensor) -> Tensor:
        """Return a vector of the model's width for each 20 ms."""
        config = self.config
        frames = features.shape[-1]
        if features.dim() != 3 or features.shape[1] != config.mel_bins or not 1 <= frames <= config.frame_count:
            raise ShapeError(
                f"this model reads spectrograms [batch, {config.mel_bins}, up to {config.frame_count}], not "
                f"{list(features.shape)}"
            )
        hidden = functional.gelu(self.first_convolution(features.to(self.first_convolution.weight.dtype)))
        hidden = functional.gelu(self.second_convolution(hidden)).transpose(1, 2)
        return hidden + self.source_positions[: hidden.shape[1]]


def compute_sinusoids(length: int, width: int) -> Float[Tensor, "length width"]:
    """Return Whisper's encoding of the positions of the audio: all sines, then all cosines, at wavelengths from 2 pi
    to 10,000 * 2 pi. Both ends are included, unlike in Vaswani et al. 2017.

    Args:
        width: Width of the encoding; the last number of an odd width is 0.
    """
    half = width // 2
    slowness = torch.arange(half, dtype=torch.float64) * (math.log(10_000.0) / max(half - 1, 1))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * torch.exp(-slowness)
    encoding = torch.cat([angles.sin(), angles.cos()], dim=1)
    return functional.pad(encoding, (0, width - 2 * half)).float()


def _build_attention(config: SpeechConfig, heads: int) -> MultiHead:
    return MultiHead(config.width, heads, key_bias=False, projection="batched", dropout=config.dropout)


def _build_encoder_block(config: SpeechConfig) -> EncoderBlock:
    return EncoderBlock(
        _build_attention(config, config.heads),
        FeedForward(config.width, config.hidden, config.activation, dropout=config.dropout),
        norm=lambda: LayerNorm(config.width),
        order="pre",
        dropout=config.dropout,
    )


def _build_decoder_block(config: SpeechConfig) -> DecoderBlock:
    return DecoderBlock(
        _build_attention(config, config.decoder_heads),
        _build_attention(config, config.decoder_heads),
        FeedForward(config.width, config.decoder_hidden, config.activation, dropout=config.dropout),
        norm=lambda: LayerNorm(config.width),
        order="pre",
        dropout=config.dropout,
    )
