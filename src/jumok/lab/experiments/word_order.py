"""Compare the vectors of the same words in two orders: without positions, attention reads a set of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.attention import MultiHead, bias, mask
from jumok.attention.bias import Bias
from jumok.attention.mask import Mask
from jumok.layers import (
    EncoderBlock,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
)
from jumok.models.gpt import POSITIONS

WORDS = ("I", "am", "a", "boy")
OTHER_ORDER = ("boy", "am", "I", "a")
WIDTH, HEADS, LAYERS = 32, 4, 2
BUCKETS, MAX_DISTANCE = 8, 4  # of T5's biases, in both directions


@dataclass(frozen=True)
class WordOrderRow:
    """One position encoding.

    Attributes:
        encoding: The encoding, as in ``GPTConfig.positions``.
        differences: For each word, the largest difference between its vectors in the two orders, without a mask.
    """

    encoding: str
    differences: dict[str, float]
    causal_differences: dict[str, float]


class WordEncoder(nn.Module):
    """An encoder with random parameters and one of the six position encodings."""

    def __init__(self, encoding: str, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.encoding = encoding
        self.embedding = nn.Embedding(len(WORDS), WIDTH)
        rotation = RotaryPositions(WIDTH // HEADS) if encoding == "rotary" else None
        self.blocks = nn.ModuleList(
            EncoderBlock(
                MultiHead(WIDTH, HEADS, rotation=rotation),
                FeedForward(WIDTH, 4 * WIDTH),
                norm=lambda: LayerNorm(WIDTH),
            )
            for _ in range(LAYERS)
        )
        self.learned = LearnedPositions(len(WORDS), WIDTH)
        self.distances = nn.Parameter(torch.randn(BUCKETS, HEADS))
        self.double()  # sums in another order differ by rounding, in float32 by up to 1e-6

    @torch.no_grad()
    def forward(self, words: Sequence[str], attention_mask: Mask | None = None) -> Float[Tensor, "word width"]:
        """Return the vector of each word.

        Args:
            words: Some of ``WORDS``, in any order.
            attention_mask: The mask of all layers; default: none.
        """
        positions = range(len(words))
        hidden = self.embedding(torch.tensor([[WORDS.index(word) for word in words]]))
        if self.encoding == "sinusoidal":
            hidden = hidden + SinusoidalPositions(WIDTH)(positions)
        elif self.encoding == "learned":
            hidden = hidden + self.learned(positions)
        for block in self.blocks:
            hidden = block(hidden, mask=attention_mask, bias=self._build_bias(), positions=positions)
        vectors: Tensor = hidden[0]
        return vectors

    def _build_bias(self) -> Bias | None:
        if self.encoding == "alibi":
            return bias.alibi(HEADS)
        return bias.t5(self.distances, max_distance=MAX_DISTANCE) if self.encoding == "t5" else None


def measure_word_order(seed: int = 0) -> tuple[WordOrderRow, ...]:
    """Compare the vectors of "I am a boy" and "boy am I a" with each encoding, without a mask and with a causal one."""
    rows = []
    for encoding in POSITIONS:
        encoder = WordEncoder(encoding, seed)
        rows.append(WordOrderRow(encoding, _compare_orders(encoder, None), _compare_orders(encoder, mask.causal)))
    return tuple(rows)


def _compare_orders(encoder: WordEncoder, attention_mask: Mask | None) -> dict[str, float]:
    first, second = encoder(WORDS, attention_mask), encoder(OTHER_ORDER, attention_mask)
    differences = {}
    for word in WORDS:
        difference = first[WORDS.index(word)] - second[OTHER_ORDER.index(word)]
        differences[word] = float(difference.abs().max())
    return differences
