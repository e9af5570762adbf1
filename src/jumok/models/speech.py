"""Speech: audio in, text out. The family of Whisper (Radford et al. 2022).

The paper is "Robust Speech Recognition via Large-Scale Weak Supervision".

    log-mel spectrogram, a frame each 10 ms -> convolution, convolution with stride 2 -> + sinusoidal positions
        -> blocks: norm, attention, norm, feed-forward -> norm -> encoded, a position each 20 ms
    text so far -> embedding + learned positions -> blocks: norm, causal attention, norm, cross-attention to the audio,
        norm, feed-forward -> norm -> the next token's logits

A position of the encoder belongs to a moment of the audio, so the cross-attention shows when a word was spoken.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jumok.attention import MultiHead
from jumok.attention.projection import Batched
from jumok.errors import ShapeError
from jumok.fields import flag, integer, real
from jumok.layers import DecoderBlock, FeedForward, LayerNorm, LearnedPositions, SinusoidalPositions
from jumok.layers.token_inputs import make_embedding

from .config import Config, declare_activation
from .encoder_decoder import BlockSettings, EncoderDecoder, build_decoder, build_encoder
from .model import initialise_linear_layers, initialise_normal

FRAMES_PER_POSITION = 2  # the stride of the second convolution
KERNEL = 3  # frames that a convolution reads


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
    activation: str = declare_activation("gelu")
    tied: bool = flag(True, "the embedding is also the output layer")
    start: int = integer(50_257, "the token that a text begins with", least=0)
    end: int = integer(50_256, "the token that ends a text", least=0)
    pad: int = integer(50_256, "the padding token", least=0)
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    def check(self) -> None:
        self.check_heads(self.width, self.heads)
        self.check_heads(self.width, self.decoder_heads)
        self.check_special_tokens(self.vocabulary, start=self.start, end=self.end, pad=self.pad)

    @property
    def frame_count(self) -> int:
        """The number of frames of the longest audio."""
        return FRAMES_PER_POSITION * self.source_length


class Speech(EncoderDecoder):
    """An encoder-decoder: ``model(features, target).logits`` is [batch, target, vocabulary], at each position the
    logits of the next token. ``features`` is the log-mel spectrogram [batch, mel, frame]; see
    ``jumok.data.audio.log_mel``. The encoder's output and the token mask of the source have a position for each 20 ms;
    without a mask, all of them are attended to, as in Whisper: also the silence after a short recording.

    Args:
        config: Sizes and variants.
    """

    family = "speech"
    config_class = SpeechConfig
    config: SpeechConfig
    reads = "audio"
    task = "transcribe"

    def __init__(self, config: SpeechConfig) -> None:
        super().__init__()
        self.config = config
        attention = partial(MultiHead, config.width, key_bias=False, projection="batched", dropout=config.dropout)
        feedforward = partial(FeedForward, config.width, activation=config.activation, dropout=config.dropout)
        norm = partial(LayerNorm, config.width)
        settings = {"norm": norm, "order": "pre", "dropout": config.dropout}

        self.first_convolution = nn.Conv1d(config.mel_bins, config.width, KERNEL, padding=1)
        self.second_convolution = nn.Conv1d(config.width, config.width, KERNEL, stride=FRAMES_PER_POSITION, padding=1)
        # A table in the checkpoint, though it is not trained: the published one differs from computed sines by 3e-4.
        self.source_positions = nn.Parameter(torch.empty(config.source_length, config.width), requires_grad=False)
        self.encoder = build_encoder(
            config.layers, partial(attention, config.heads), partial(feedforward, config.hidden), **settings
        )
        self.encoder_norm = norm()
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.positions = LearnedPositions(config.target_length, config.width)
        self.dropout = nn.Dropout(config.dropout)
        attention, feedforward = partial(attention, config.decoder_heads), partial(feedforward, config.decoder_hidden)
        self.decoder = build_decoder(config.decoder_layers, attention, attention, feedforward, **settings)
        self.decoder_norm = norm()
        self.output = None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)
        self.finish_construction()

    @property
    def context_length(self) -> int:
        return self.config.target_length

    @property
    def source_shape(self) -> tuple[int, ...]:
        return self.config.mel_bins, self.config.frame_count

    def list_many_row_modules(self) -> list[nn.Module]:
        """Return the encoder, and the projections of its output: a window of audio has 1,500 positions."""
        modules: list[nn.Module] = [self.encoder]
        for block in self.decoder:
            assert isinstance(block, DecoderBlock) and isinstance(block.cross.projection, Batched)
            modules += [block.cross.projection.key, block.cross.projection.value]
        return modules

    @torch.no_grad()
    def initialise(self) -> None:
        """Initialise the parameters from normal distributions: convolutions by their number of inputs (He et al.
        2015), the other layers with standard deviation 0.02. The positions of the audio are sinusoids."""
        initialise_linear_layers(self, lambda parameter: initialise_normal(parameter, 0.02))
        for convolution in (self.first_convolution, self.second_convolution):
            nn.init.kaiming_normal_(convolution.weight)
        self.source_positions.copy_(compute_sinusoids(self.config.source_length, self.config.width))

    def _embed_source(self, source: Tensor, token_mask: Tensor | None) -> tuple[Tensor, BlockSettings]:
        config = self.config
        frames = source.shape[-1]
        if source.dim() != 3 or source.shape[1] != config.mel_bins or not 1 <= frames <= config.frame_count:
            raise ShapeError(
                f"this model reads spectrograms [batch, {config.mel_bins}, up to {config.frame_count}], not "
                f"{list(source.shape)}"
            )
        hidden = functional.gelu(self.first_convolution(source.to(self.first_convolution.weight.dtype)))
        hidden = functional.gelu(self.second_convolution(hidden)).transpose(1, 2)
        return hidden + self.source_positions[: hidden.shape[1]], {}


def compute_sinusoids(length: int, width: int) -> Float[Tensor, "length width"]:
    """Return Whisper's encoding of the positions of the audio: all sines, then all cosines, at wavelengths from 2 pi
    to 10,000 * 2 pi. Both ends are included, unlike in Vaswani et al. 2017.
    """
    base = 10_000.0 ** (width / max(width - 2, 1))
    return SinusoidalPositions(width, base, "halves")(range(length))
