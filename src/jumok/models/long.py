"""Long: encoders for long texts. Like BERT, with cheaper token mixing than full attention.

    tokens -> embedding + learned positions -> norm -> blocks: mixing, norm, feed-forward, norm -> hidden (-> logits)

longformer (Beltagy et al. 2020): a window, and a few global tokens that attend to all and are attended to by all.
bigbird (Zaheer et al. 2020): the same plus random blocks of keys. window: a window alone. blocks: blocks of tokens, in
every second layer shifted by half a block, as Swin (Liu et al. 2021) does on images. performer (Choromanski et al.
2021): linear attention. fnet (Lee-Thorp et al. 2021): a Fourier transform. full: full attention, for comparison.
Longformer's second set of projections for its global tokens is not implemented: only the mask differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from jumok.attention import MultiHead, mask, score
from jumok.attention.feature_maps import FavorPlus
from jumok.attention.fourier import FourierMixing
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError
from jumok.fields import choice, flag, integer, integers, real
from jumok.layers import EncoderBlock, FeedForward, LayerNorm, LearnedPositions, MaskedOutput
from jumok.layers.embedding import make_embedding
from jumok.layers.token_inputs import build_padding_mask, check_token_mask, check_tokens

from .bert import ACTIVATIONS
from .config import Config
from .model import Model, Output, initialise_linear_layers, initialise_normal

MIXINGS = ("longformer", "bigbird", "window", "blocks", "performer", "fnet", "full")


@dataclass(frozen=True)
class LongConfig(Config):
    """The config of an encoder for long texts; the defaults have the size of Longformer base."""

    family: ClassVar[str] = "long"

    vocabulary: int = integer(50265, "number of tokens")
    length: int = integer(4096, "the longest text, in tokens")
    width: int = integer(768, "width of the model")
    layers: int = integer(12, "number of blocks")
    heads: int = integer(12, "number of attention heads (fnet has none)")
    hidden: int = integer(3072, "inner width of the feed-forward network")
    mixing: str = choice("longformer", MIXINGS, "how tokens are mixed")
    window: int = integer(
        256, "longformer, bigbird, window: a query attends to keys closer than this; blocks: tokens of a block"
    )
    globals: tuple[int, ...] = integers(
        (0,), "longformer, bigbird: positions that attend to all and are attended to by all", least=0
    )
    random: int = integer(3, "bigbird: number of random blocks of keys for each block of queries", least=0)
    block: int = integer(64, "bigbird: tokens of a random block; 1 draws single keys, which is slow for long texts")
    features: int = integer(256, "performer: number of random features; more of them approximate full attention better")
    seed: int = integer(0, "seed of bigbird's keys and performer's features", least=0)
    epsilon: float = real(1e-12, "added to the variance in the norms")
    activation: str = choice("gelu", ACTIVATIONS, "activation of the feed-forward network and the head")
    head: str = choice("none", ("none", "mlm"), "no head, or logits of masked tokens")
    tied: bool = flag(True, "the embedding is also the output layer of the head")
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    def check(self) -> None:
        """Raise ArgumentError if fields contradict each other."""
        if self.mixing != "fnet":
            self.check_heads(self.width, self.heads)


class Long(Model):
    """An encoder for long texts: ``model(tokens).hidden`` is [batch, length, width]; with ``head="mlm"`` there is
    ``.logits``, [batch, length, vocabulary], as well.

    Args:
        config: Sizes and the kind of mixing.
    """

    family = "long"
    config_class = LongConfig
    config: LongConfig
    reads = "text"
    task = "embed"
    answers = "vector"

    def __init__(self, config: LongConfig) -> None:
        super().__init__()
        self.config = config
        if config.head == "mlm":
            self.task, self.answers = "fill", "tokens"
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.positions = LearnedPositions(config.length, config.width)
        self.norm = LayerNorm(config.width, eps=config.epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(_build_block(config) for _ in range(config.layers))
        self.head = None
        if config.head == "mlm":
            self.head = MaskedOutput(
                config.width, config.vocabulary, config.activation, epsilon=config.epsilon, tied=config.tied
            )
        self.finish_construction()

    @property
    def context_length(self) -> int:
        """The longest text in tokens."""
        return self.config.length

    def initialise(self) -> None:
        """Initialise the parameters as BERT does: standard deviation 0.02."""
        initialise_linear_layers(self, lambda parameter: initialise_normal(parameter, 0.02))

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        token_mask: Bool[Tensor, "batch key"] | None = None,
        weights: bool = False,
        positions_to_score: Bool[Tensor, "batch length"] | None = None,
    ) -> Output:
        """Return hidden vectors, the head's logits and (if requested) attention weights.

        Args:
            tokens: Token ids.
            token_mask: True = real token, on either side; fnet cannot ignore padding and raises an error.
            weights: Return the weights of every layer.
            positions_to_score: With the head, compute logits only where this is True; they are then
                [selected position, vocabulary] in row-major order. None = logits of every position.

        Raises:
            ArgumentError: The mixing is fnet and the token mask has padding, or ``positions_to_score`` is given, but
                the model has no head.
        """
        if positions_to_score is not None and self.head is None:
            raise ArgumentError('positions_to_score needs a masked-language-model head (head="mlm")')
        check_tokens(tokens, self.config.vocabulary)
        check_token_mask(tokens, token_mask)
        if self.config.mixing == "fnet" and token_mask is not None:
            if not token_mask.all():
                raise ArgumentError(
                    "fnet mixes all tokens, including padding; pass texts of equal length, or use another mixing"
                )
            token_mask = None

        order = None if token_mask is None else _find_left_order(token_mask)
        if order is not None and token_mask is not None:
            # Texts are moved to the left edge, so that padding does not change their result: position 0 is the first
            # token, and random keys are drawn from the text, not from the padding before it.
            tokens, token_mask = tokens.gather(1, order), token_mask.gather(1, order)

        length = tokens.shape[1]
        hidden = self.dropout(self.norm(self.embedding(tokens) + self.positions(range(length))))
        layer_weights: list[Tensor] = []
        for attention_mask, blocks in self._split_blocks_by_mask(length, token_mask):
            hidden, group_weights = self.run_blocks(blocks, hidden, mask=attention_mask, weights=weights)
            layer_weights += group_weights
        if order is not None:
            original = order.argsort(-1)
            hidden = hidden.gather(1, original[..., None].expand_as(hidden))
            layer_weights = [_restore_order(layer, original) for layer in layer_weights]
        logits = None
        if self.head is not None and positions_to_score is None:
            logits = self.head(hidden, self.embedding.weight)
        elif self.head is not None:
            logits = self.head(hidden[positions_to_score][None], self.embedding.weight)[0]
        return Output(logits, hidden, tuple(layer_weights) if weights else None)

    def _split_blocks_by_mask(
        self, length: int, token_mask: Tensor | None
    ) -> Iterator[tuple[Mask | None, list[nn.Module]]]:
        """Yield each mask with the consecutive blocks that use it."""
        if self.config.mixing != "blocks":
            yield self.build_mask(length, token_mask=token_mask), list(self.blocks)
            return
        for layer, block in enumerate(self.blocks):
            yield self.build_mask(length, layer, token_mask), [block]

    def build_mask(self, length: int, layer: int = 0, token_mask: Tensor | None = None) -> Mask | None:
        """Return the mask of a layer; None if every token may attend to every other.

        Args:
            length: The number of tokens.
            layer: The layer, from 0; only the masks of ``blocks`` depend on it.
            token_mask: True = real token, with padding on the right; default: all are real.
        """
        config, padding = self.config, build_padding_mask(token_mask, length)
        if config.mixing == "blocks":
            sparse = mask.blocks(config.window, shift=config.window // 2 * (layer % 2))
        elif config.mixing in ("longformer", "bigbird", "window"):
            sparse = mask.window(config.window)
        else:
            return padding
        if config.mixing in ("longformer", "bigbird") and config.globals:
            sparse = sparse | mask.global_at(config.globals)
        if config.mixing == "bigbird" and config.random:
            sparse = sparse | self._build_random_mask(length, token_mask)
        return sparse if padding is None else sparse & padding

    def _build_random_mask(self, length: int, token_mask: Tensor | None) -> Mask:
        """Draw the keys from each text's own length, so that padding does not change them."""
        count, seed, block = self.config.random, self.config.seed, self.config.block
        if token_mask is None:
            return mask.random_keys(count, seed, length, block)
        rows_by_length: dict[int, list[int]] = {}
        for row, real_tokens in enumerate(token_mask.sum(-1).tolist()):
            rows_by_length.setdefault(max(real_tokens, 1), []).append(row)
        masks = [
            mask.edge(batch=rows) & mask.random_keys(count, seed, text_length, block)
            for text_length, rows in rows_by_length.items()
        ]
        union = masks[0]
        for row_mask in masks[1:]:
            union = union | row_mask
        return union


def _find_left_order(token_mask: Tensor) -> Tensor | None:
    """Return the order of tokens that puts the real ones first; None if they are first already."""
    if bool((token_mask[:, :-1] >= token_mask[:, 1:]).all()):
        return None
    return (~token_mask).long().argsort(dim=-1, stable=True)


def _restore_order(weights: Tensor, original: Tensor) -> Tensor:
    """Move the rows and columns of [batch, head, query, key] back to the original order of the tokens."""
    batch = torch.arange(len(original), device=original.device)[:, None, None]
    return weights.movedim(1, -1)[batch, original[:, :, None], original[:, None, :]].movedim(-1, 1)


def _build_block(config: LongConfig) -> EncoderBlock:
    return EncoderBlock(
        _build_mixing(config),
        FeedForward(config.width, config.hidden, config.activation),
        norm=lambda: LayerNorm(config.width, eps=config.epsilon),
        order="post",
        dropout=config.dropout,
    )


def _build_mixing(config: LongConfig) -> nn.Module:
    if config.mixing == "fnet":
        return FourierMixing()
    if config.mixing == "performer":
        # no dropout: linear attention never forms the weights
        kernel = score.Kernel(FavorPlus(config.features, config.seed))
        return MultiHead(config.width, config.heads, score=kernel)
    return MultiHead(config.width, config.heads, dropout=config.dropout)
