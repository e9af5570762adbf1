"""The base class of the encoder-decoders whose stacks are made of attention: what they share is written here once.

    source -> embedded -> encoder blocks (-> norm) -> encoded
    target -> embedded -> decoder blocks with a causal mask, attending to encoded (-> norm) -> logits

A family builds its layers and says how its source is embedded (``_embed_source``); where they differ from most
families, also how the target is embedded (``_embed_target``) and what the decoder's vectors become (``_answer``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead
from jumok.layers import DecoderBlock, EncoderBlock
from jumok.layers.token_inputs import (
    build_causal_mask,
    build_padding_mask,
    check_tokens,
    compute_positions,
    compute_token_logits,
)

from .model import Model, Output

BlockSettings = dict[str, Any]  # keyword arguments of the blocks: mask, bias, positions


def build_encoder(
    layers: int, attention: Callable[[], nn.Module], feedforward: Callable[[], nn.Module], **settings: Any
) -> nn.ModuleList:
    """Return the blocks of an encoder; ``settings`` are the norm, order and dropout of ``EncoderBlock``."""
    return nn.ModuleList(EncoderBlock(attention(), feedforward(), **settings) for _ in range(layers))


def build_decoder(
    layers: int,
    attention: Callable[[], MultiHead],
    cross: Callable[[], MultiHead],
    feedforward: Callable[[], nn.Module],
    **settings: Any,
) -> nn.ModuleList:
    """Return the blocks of a decoder; ``settings`` are the norm, order and dropout of ``DecoderBlock``."""
    return nn.ModuleList(DecoderBlock(attention(), cross(), feedforward(), **settings) for _ in range(layers))


class EncoderDecoder(Model):
    """An encoder and a decoder: ``model(source, target).logits`` is [batch, target, vocabulary], at each position the
    logits of the next token. ``output.weights`` is a dict of tuples: "encoder", "decoder" and "cross".

    Attributes:
        encoder_norm: A norm after the last block; None without one.
        output: The output layer; None if it is the target's embedding.
    """

    is_encoder_decoder = True

    embedding: nn.Embedding
    positions: nn.Module
    dropout: nn.Dropout
    encoder: nn.ModuleList
    decoder: nn.ModuleList
    encoder_norm: nn.Module | None
    decoder_norm: nn.Module | None
    output: nn.Module | None

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_token_mask: Bool[Tensor, "batch source"] | None = None,
        target_token_mask: Bool[Tensor, "batch key"] | None = None,
        cache: Cache | None = None,
        last: int | None = None,
    ) -> Output:
        """Return logits and hidden vectors; the call ``model(source, target, weights=True)`` returns the weights too.

        Args:
            source: The encoder's input: token ids [batch, source], images, regions, spectrograms or numbers.
            target: The decoder's input, beginning with ``config.start``; with a cache, the new tokens.
            source_token_mask: True = real position of the source, on either side; None = all are real.
            target_token_mask: True = real target token, on either side, for all keys including the cached ones.
            cache: Keys and values of earlier target tokens; it is extended.
            last: Compute logits for only this many last tokens, which is all that generation needs.
        """
        return self.decode(
            target,
            self.encode(source, source_token_mask=source_token_mask),
            source_token_mask=source_token_mask,
            target_token_mask=target_token_mask,
            cache=cache,
            last=last,
        )

    def encode(
        self, source: Tensor, *, source_token_mask: Bool[Tensor, "batch source"] | None = None
    ) -> Float[Tensor, "batch positions width"]:
        """Return the encoder's output; generation computes it only once.

        Args:
            source: The encoder's input.
            source_token_mask: True = real position of the source, on either side.
        """
        embedded, settings = self._embed_source(source, source_token_mask)
        if "mask" not in settings:
            settings["mask"] = build_padding_mask(source_token_mask, embedded.shape[1])
        return self._normalize(self.run_blocks(self.encoder, self.dropout(embedded), **settings), self.encoder_norm)

    def decode(
        self,
        target: Tensor,
        encoded: Float[Tensor, "batch source width"],
        *,
        source_token_mask: Bool[Tensor, "batch source"] | None = None,
        target_token_mask: Bool[Tensor, "batch key"] | None = None,
        cache: Cache | None = None,
        last: int | None = None,
    ) -> Output:
        """Run the decoder.

        Args:
            target: The decoder's input; with a cache, the new tokens.
            encoded: The encoder's output.
            source_token_mask: True = real position of the source.
            target_token_mask: True = real target token, for all keys including the cached ones.
            cache: Keys and values of earlier target tokens; it is extended.
            last: Compute logits for only this many last tokens.
        """
        cached = 0 if cache is None else cache.length
        embedded, settings = self._embed_target(target, cached, target_token_mask)
        hidden = self.run_blocks(
            self.decoder,
            self.dropout(embedded),
            encoded,
            mask=build_causal_mask(target_token_mask, cached + embedded.shape[1]),
            source_mask=build_padding_mask(source_token_mask, encoded.shape[1]),
            cache=cache,
            **settings,
        )
        return self._answer(self._normalize(hidden if last is None else hidden[:, -last:], self.decoder_norm))

    def compute_logits(self, stream: Tensor) -> Tensor | None:
        return self._answer(self._normalize(stream, self.decoder_norm)).logits

    def arrange_weights(self, calls: list[tuple[str, Tensor]]) -> dict[str, tuple[Tensor, ...]]:
        kinds: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}
        for site, weights in calls:
            kinds["cross" if site.endswith(".cross") else site.partition(".")[0]].append(weights)
        return {kind: tuple(layers) for kind, layers in kinds.items()}

    def _embed_source(self, source: Tensor, token_mask: Tensor | None) -> tuple[Tensor, BlockSettings]:
        """Return the first block's input before dropout, and settings of the encoder blocks."""
        raise NotImplementedError

    def _embed_target(self, target: Tensor, cached: int, token_mask: Tensor | None) -> tuple[Tensor, BlockSettings]:
        """Return the first block's input before dropout, and settings of the decoder blocks: by default the embeddings
        of tokens plus learned positions."""
        check_tokens(target, self.embedding.num_embeddings)
        positions = compute_positions(target.shape[1], cached, token_mask)
        return self.embedding(target) + self.positions(positions), {}

    def _normalize(self, hidden: Tensor, norm: nn.Module | None) -> Tensor:
        """Return the output of a stack."""
        return hidden if norm is None else norm(hidden)

    def _answer(self, hidden: Tensor) -> Output:
        """Return what the decoder's vectors become."""
        return Output(compute_token_logits(hidden, self.output, self.embedding), hidden)
