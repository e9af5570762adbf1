"""A small convolutional encoder-decoder (Gehring et al. 2017, "Convolutional Sequence to Sequence Learning").

    source -> embedding + positions -> blocks: convolution, gate, residual -> states
    target -> embedding + positions -> blocks: causal convolution, gate, attention to the states, residual -> logits

A convolution reads the neighbours of each token, for all tokens at once; a stack of them reads farther. The decoder
attends to the source in every block. Positions are sinusoids instead of the paper's learned table, so that a model can
read longer sequences than it was trained on. All texts of a batch have one length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.attention import attend, score
from jumok.fields import integer
from jumok.layers import SinusoidalPositions
from jumok.layers.token_inputs import check_tokens, make_embedding
from jumok.models import Config, Model, Output
from jumok.models.model import initialise_normal
from jumok.tap import tap

HALF = math.sqrt(0.5)  # a sum of two terms times this keeps their variance
EMBEDDING_DEVIATION = 0.1  # the paper's


@dataclass(frozen=True)
class ConvolutionalConfig(Config):
    """The config of a convolutional encoder-decoder."""

    family: ClassVar[str] = "convolutional_seq2seq"

    vocabulary: int = integer(256, "number of tokens of source and target")
    width: int = integer(64, "width of the model")
    layers: int = integer(2, "number of blocks of the encoder, and of the decoder")
    kernel: int = integer(3, "number of adjacent tokens that a convolution reads; odd numbers are centred")
    start: int = integer(1, "the token that a target begins with", least=0)


class ConvolutionalSeq2Seq(Model):
    """A convolutional encoder-decoder: ``model(source, target).logits`` is [batch, target, vocabulary], at each
    position the logits of the next token.
    """

    family = "convolutional_seq2seq"
    config_class = ConvolutionalConfig
    config: ConvolutionalConfig
    reads = "text"
    task = "translate"

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = make_embedding(config.vocabulary, config.width)
        self.target_embedding = make_embedding(config.vocabulary, config.width)
        self.positions = SinusoidalPositions(config.width)
        self.encoder = nn.ModuleList(GatedConvolution(config.width, config.kernel) for _ in range(config.layers))
        self.decoder = nn.ModuleList(
            ConvolutionalDecoderBlock(config.width, config.kernel) for _ in range(config.layers)
        )
        self.output = nn.Linear(config.width, config.vocabulary)
        self.finish_construction()

    @property
    def start_token(self) -> int:
        """The token that every target begins with."""
        return self.config.start

    @torch.no_grad()
    def initialise(self) -> None:
        """Initialise the parameters so that every layer keeps the variance of its input, as in the paper."""
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                initialise_normal(module.weight, EMBEDDING_DEVIATION)
            elif isinstance(module, nn.Conv1d):
                # 4 instead of 1: the gate that follows quarters the variance
                initialise_normal(module.weight, math.sqrt(4 / (module.in_channels * module.kernel_size[0])))
            elif isinstance(module, nn.Linear):
                initialise_normal(module.weight, math.sqrt(1 / module.in_features))
            if isinstance(module, nn.Conv1d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]) -> Output:
        """Return logits and hidden vectors; the target begins with ``config.start``."""
        embedded_source = self._embed(source, self.source_embedding)
        embedded_target = self._embed(target, self.target_embedding)

        states = embedded_source
        for block in self.encoder:
            states = (states + block(states)) * HALF
        values = (states + embedded_source) * HALF

        hidden = embedded_target
        for block in self.decoder:
            hidden = block(hidden, embedded_target, states, values)
        return Output(self.output(hidden), hidden)

    def _embed(self, tokens: Tensor, embedding: nn.Embedding) -> Tensor:
        check_tokens(tokens, self.config.vocabulary)
        embedded: Tensor = embedding(tokens) + self.positions(range(tokens.shape[1]), tokens.device)
        return embedded


class GatedConvolution(nn.Module):
    """A convolution along the tokens with a gate: half of its outputs decide how much of the other half passes (Dauphin
    et al. 2017).

    Args:
        causal: Whether it reads only the token itself and earlier ones.
    """

    def __init__(self, width: int, kernel: int, *, causal: bool = False) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, 2 * width, kernel)
        before = kernel - 1 if causal else (kernel - 1) // 2
        self.padding = (before, kernel - 1 - before)

    def forward(self, inputs: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
        """Return one vector for each token."""
        channels = nn.functional.pad(inputs.mT, self.padding)
        gated: Tensor = nn.functional.glu(self.convolution(channels), 1).mT
        return gated


class ConvolutionalAttention(nn.Module):
    """Attention of a decoder block to the source, with one head: the query also contains the embedding of the last
    target token, and a value the embedding of its source token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.score = score.Dot()
        self.site = "attention"

    def forward(
        self,
        inputs: Float[Tensor, "batch target width"],
        embedded: Float[Tensor, "batch target width"],
        states: Float[Tensor, "batch source width"],
        values: Float[Tensor, "batch source width"],
    ) -> Float[Tensor, "batch target width"]:
        """Return what each target position reads from the source; the states of the encoder are the keys."""
        query = (self.query(inputs) + embedded) * HALF
        context = attend(query[:, None], states[:, None], values[:, None], score=self.score, site=self.site)
        output: Tensor = self.output(context[:, 0])
        return tap(f"{self.site}.block_output", output)


class ConvolutionalDecoderBlock(nn.Module):
    """A causal convolution, then attention to the source, then the residual connection."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.convolution = GatedConvolution(width, kernel, causal=True)
        self.cross = ConvolutionalAttention(width)

    def forward(
        self,
        hidden: Float[Tensor, "batch target width"],
        embedded: Float[Tensor, "batch target width"],
        states: Float[Tensor, "batch source width"],
        values: Float[Tensor, "batch source width"],
    ) -> Float[Tensor, "batch target width"]:
        """Return the vectors of the next block; the arguments are those of ``ConvolutionalAttention``."""
        convolved = self.convolution(hidden)
        context = self.cross(convolved, embedded, states, values)
        return (hidden + (convolved + context) * HALF) * HALF
