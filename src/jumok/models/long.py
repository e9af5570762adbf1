"""Long: encoders for long texts. Like BERT, with cheaper token mixing than full attention.

    tokens -> embedding + learned positions -> norm -> blocks: mixing, norm, feed-forward, norm -> hidden (-> logits)

longformer (Beltagy et al. 2020): a window, and a few global tokens that attend to all and are attended to by all.
bigbird (Zaheer et al. 2020): the same plus random blocks of keys. window: a window alone. blocks: blocks of tokens, in
every second layer shifted by half a block, as Swin (Liu et al. 2021) does on images. performer (Choromanski et al.
2021): linear attention. fnet (Lee-Thorp et al. 2021): a Fourier transform. full: full attention, for comparison.
Longformer's second set of projections for its global tokens is not implemented: only the mask differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import ClassVar

import torch
from torch import Tensor, nn

from jumok.attention import MultiHead, mask, score
from jumok.attention.feature_maps import FavorPlus
from jumok.attention.mask import Mask
from jumok.attention.multihead import FourierMixing
from jumok.attention.weights import WeightsRecorder
from jumok.errors import ArgumentError
from jumok.fields import choice, flag, integer, integers, real
from jumok.layers.feedforward import ACTIVATIONS
from jumok.layers.token_inputs import build_padding_mask
from jumok.tap import find_listener

from .bert import BERT
from .config import Config

MIXINGS = ("longformer", "bigbird", "window", "blocks", "performer", "fnet", "full")


@dataclass(frozen=True)
class LongConfig(Config):
    """The config of an encoder for long texts; the defaults have the size of Longformer base."""

    family: ClassVar[str] = "long"

    # the settings of a BERT that do not vary
    segments: ClassVar[int] = 0
    offset: ClassVar[int] = 0
    padding_id: ClassVar[None] = None
    answer: ClassVar[str] = "one"
    attention_bias: ClassVar[bool] = True
    final_norm: ClassVar[bool] = False

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
    activation: str = choice("gelu", tuple(ACTIVATIONS), "activation of the feed-forward network and the head")
    head: str = choice("none", ("none", "mlm"), "no head, or logits of masked tokens")
    tied: bool = flag(True, "the embedding is also the output layer of the head")
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    @property
    def head_activation(self) -> str:
        """The activation of the head."""
        return self.activation

    def check(self) -> None:
        if self.mixing != "fnet":
            self.check_heads(self.width, self.heads)


class Long(BERT):
    """An encoder for long texts: ``model(tokens).hidden`` is [batch, length, width]; with ``head="mlm"`` there is
    ``.logits``, [batch, length, vocabulary], as well. fnet cannot ignore padding: a token mask with any is an error.

    Args:
        config: Sizes and the kind of mixing.
    """

    family = "long"
    # A LongConfig has the settings of a BERT, but not as fields.
    config_class = LongConfig  # type: ignore[assignment]
    config: LongConfig  # type: ignore[assignment]

    def _encode(self, tokens: Tensor, token_mask: Tensor | None, segments: Tensor | None) -> Tensor:
        if self.config.mixing == "fnet" and token_mask is not None:
            if not token_mask.all():
                raise ArgumentError(
                    "fnet mixes all tokens, including padding; pass texts of equal length, or use another mixing"
                )
            token_mask = None
        order = None if token_mask is None else _find_left_order(token_mask)
        if order is None or token_mask is None:
            return super()._encode(tokens, token_mask, segments)

        # Texts are moved to the left edge, so that padding does not change their result: position 0 is the first
        # token, and random keys are drawn from the text, not from the padding before it.
        recorder = find_listener(WeightsRecorder)
        first = 0 if recorder is None else len(recorder.calls)
        hidden = super()._encode(tokens.gather(1, order), token_mask.gather(1, order), segments)
        original = order.argsort(-1)
        if recorder is not None:
            moved = recorder.calls[first:]
            recorder.calls[first:] = [(site, _restore_order(weights, original)) for site, weights in moved]
        return hidden.gather(1, original[..., None].expand_as(hidden))

    def _compute_positions(self, tokens: Tensor, token_mask: Tensor | None) -> range:
        return range(tokens.shape[1])

    def _mix(self, hidden: Tensor, token_mask: Tensor | None) -> Tensor:
        length = hidden.shape[1]
        if self.config.mixing != "blocks":
            return self.run_blocks(self.blocks, hidden, mask=self.build_mask(length, token_mask=token_mask))
        for layer, block in enumerate(self.blocks):
            hidden = self.run_blocks([block], hidden, mask=self.build_mask(length, layer, token_mask))
        return hidden

    def _build_attention(self) -> nn.Module:
        config = self.config
        if config.mixing == "fnet":
            return FourierMixing()
        if config.mixing == "performer":
            # no dropout: linear attention never forms the weights
            kernel = score.Kernel(FavorPlus(config.features, config.seed))
            return MultiHead(config.width, config.heads, score=kernel)
        return super()._build_attention()

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
        masks = (
            mask.edge(batch=rows) & mask.random_keys(count, seed, text_length, block)
            for text_length, rows in rows_by_length.items()
        )
        return reduce(or_, masks)


def _find_left_order(token_mask: Tensor) -> Tensor | None:
    """Return the order of tokens that puts the real ones first; None if they are first already."""
    if bool((token_mask[:, :-1] >= token_mask[:, 1:]).all()):
        return None
    return (~token_mask).long().argsort(dim=-1, stable=True)


def _restore_order(weights: Tensor, original: Tensor) -> Tensor:
    """Move the rows and columns of [batch, head, query, key] back to the original order of the tokens."""
    batch = torch.arange(len(original), device=original.device)[:, None, None]
    return weights.movedim(1, -1)[batch, original[:, :, None], original[:, None, :]].movedim(-1, 1)
