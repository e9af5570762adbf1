"""Small models that read passages and answer a question in one of four ways; only the attention differs.

"full", "window" and "linear" are a prompt: all passages, then the question, in one causal stack as in GPT-2; the last
token answers. "fusion" is Fusion-in-Decoder (Izacard and Grave 2021): each passage is encoded apart, with the question,
and the decoder, which reads the question, attends to all of them.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from jumok.attention import MultiHead, mask, score
from jumok.attention.feature_maps import FavorPlus
from jumok.attention.mask import Mask
from jumok.attention.projection import Fused
from jumok.errors import ArgumentError
from jumok.layers import EncoderBlock, FeedForward, LayerNorm

from .passage_task import VALUES, VOCABULARY, Passages, Questions

ATTENTIONS = ("full", "fusion", "window", "linear")


class PassageReader(nn.Module):
    """A reader of passages.

    Args:
        attention: One of ``ATTENTIONS``.
        layers: The number of blocks of the prompt's stack, of fusion's encoder, and of fusion's decoder.
        window: "window": the number of keys of a query, its own position included.
        features: "linear": the number of random features of a head.
    """

    def __init__(self, attention: str, *, width: int, heads: int, layers: int, window: int, features: int) -> None:
        super().__init__()
        if attention not in ATTENTIONS:
            raise ArgumentError(f"unknown attention {attention!r}; choose one of {', '.join(ATTENTIONS)}")
        self.attention = attention
        self.layers, self.window = layers, window
        self.embedding = nn.Embedding(VOCABULARY, width)
        # Every token also carries the one before it (token shift; Peng et al. 2023), so that a value knows its name
        # and no other position information is needed.
        self.shift = nn.Linear(width, width, bias=False)
        formula = score.Kernel(FavorPlus(features)) if attention == "linear" else None
        self.blocks = nn.ModuleList(_build_block(width, MultiHead(width, heads, score=formula)) for _ in range(layers))
        is_fusion = attention == "fusion"
        self.source_norm = LayerNorm(width) if is_fusion else None
        self.decoder = nn.ModuleList(
            _build_block(width, MultiHead(width, heads)) for _ in range(layers if is_fusion else 0)
        )
        self.norm = LayerNorm(width)
        self.output = nn.Linear(width, VALUES)
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """Let equal names attract each other from the beginning, which saves most of the training steps."""
        nn.init.eye_(self.shift.weight)
        for module in self.modules():
            if isinstance(module, Fused):
                query, key, _ = module.joined.weight.split(module.widths)
                key.copy_(query)

    @property
    def mask(self) -> Mask | None:
        """Which tokens of its input a token may attend to; None = all."""
        if self.attention == "fusion":
            return None  # a passage is a row of its own; equal to documents(ids) on one row
        return mask.causal & mask.window(self.window) if self.attention == "window" else mask.causal

    @property
    def reach(self) -> int | None:
        """How many tokens before the last one can change the answer; None = all."""
        # the token shift carries one more
        return self.layers * (self.window - 1) + 1 if self.attention == "window" else None

    def forward(self, passages: Passages, questions: Questions) -> Float[Tensor, "batch value"]:
        """Return the logits of the answers."""
        batch, count, _ = passages.shape
        if self.attention != "fusion":
            hidden = self._run_blocks(torch.cat([passages.flatten(1), questions], 1))
            return self._compute_logits(hidden[:, -1])

        repeated = questions[:, None].expand(-1, count, -1)
        source = self._run_blocks(torch.cat([repeated, passages], 2).flatten(0, 1))
        source = source[:, questions.shape[1] :]  # the decoder knows the question; copies of it are no answers
        assert self.source_norm is not None
        source = self.source_norm(source).unflatten(0, (batch, count)).flatten(1, 2)
        hidden = self._embed(questions)[:, -1:]
        for block in self.decoder:
            hidden = block(hidden, source=source)
        return self._compute_logits(hidden[:, 0])

    def _embed(self, tokens: Int[Tensor, "row token"]) -> Float[Tensor, "row token width"]:
        vectors: Tensor = self.embedding(tokens)
        before = functional.pad(vectors[:, :-1], (0, 0, 1, 0))
        output: Tensor = vectors + self.shift(before)
        return output

    def _run_blocks(self, tokens: Int[Tensor, "row token"]) -> Float[Tensor, "row token width"]:
        hidden = self._embed(tokens)
        for block in self.blocks:
            hidden = block(hidden, mask=self.mask)
        return hidden

    def _compute_logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(self.norm(hidden))
        return logits


def _build_block(width: int, attention: MultiHead) -> EncoderBlock:
    return EncoderBlock(attention, FeedForward(width, 4 * width), norm=lambda: LayerNorm(width), order="pre")
