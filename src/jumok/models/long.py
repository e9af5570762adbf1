"""Long: encoders for long texts. As BERT, but its tokens are mixed by what costs less than every pair.

    tokens -> embedding + learned positions -> norm -> blocks: mixing, norm, feed-forward, norm -> hidden (-> logits)

longformer (Beltagy et al. 2020): near keys, and a few tokens that see all and are seen by all. bigbird (Zaheer et al.
2020): those, and some keys at random. performer (Choromanski et al. 2021): linear attention. fnet (Lee-Thorp et al.
2021): a Fourier transform. full: every pair, to compare with. Longformer's second set of maps for its global tokens is
not here: a mask is all that differs.
"""

from __future__ import annotations

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

from .bert import ACTIVATIONS, check_padding
from .config import Config
from .model import Model, Output, check_tokens, initialise_linear, normal_

MIXINGS = ("longformer", "bigbird", "performer", "fnet", "full")


@dataclass(frozen=True)
class LongConfig(Config):
    """The defaults are of the size of Longformer base."""

    family: ClassVar[str] = "long"

    vocabulary: int = integer(50265, "how many tokens there are")
    length: int = integer(4096, "the longest text")
    width: int = integer(768, "width of the model")
    layers: int = integer(12, "how many blocks")
    heads: int = integer(12, "how many attention heads (fnet has none)")
    hidden: int = integer(3072, "width inside the feed-forward")
    mixing: str = choice("longformer", MIXINGS, "how tokens are mixed")
    window: int = integer(256, "longformer, bigbird: keys closer than this are seen")
    globals: tuple[int, ...] = integers(
        (0,), "longformer, bigbird: positions that see all and are seen by all", least=0
    )
    random: int = integer(3, "bigbird: how many keys are drawn for each query", least=0)
    features: int = integer(256, "performer: how many random features; more are nearer to full attention")
    seed: int = integer(0, "of what bigbird and performer draw", least=0)
    epsilon: float = real(1e-12, "added inside the norms' root")
    activation: str = choice("gelu", ACTIVATIONS, "of the feed-forward and the head")
    head: str = choice("none", ("none", "mlm"), "hidden vectors alone, or logits of masked tokens too")
    tied: bool = flag(True, "the embedding is also the head's output map")
    dropout: float = real(0.0, "share dropped while training", most=0.99)

    def check(self) -> None:
        if self.mixing != "fnet" and self.width % self.heads:
            raise ArgumentError(f"width {self.width} does not divide into {self.heads} heads")


class Long(Model):
    """``model(tokens).hidden`` is [batch, length, width]; with ``head="mlm"`` there is ``.logits``, [batch, length,
    vocabulary], as well."""

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
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        self.head = None
        if config.head == "mlm":
            self.head = MaskedOutput(
                config.width, config.vocabulary, config.activation, epsilon=config.epsilon, tied=config.tied
            )
        self.finish()

    @property
    def context_length(self) -> int:
        """The longest text in tokens."""
        return self.config.length

    def initialise(self) -> None:
        initialise_linear(self, lambda parameter: normal_(parameter, 0.02))

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        token_mask: Bool[Tensor, "batch key"] | None = None,
        weights: bool = False,
    ) -> Output:
        """token_mask: True = a real token, on either side; fnet cannot leave padding out and refuses it."""
        check_tokens(tokens, self.config.vocabulary)
        check_padding(tokens, token_mask)
        if self.config.mixing == "fnet" and token_mask is not None:
            if not token_mask.all():
                raise ArgumentError(
                    "fnet mixes every token with every other, padding too; give it texts of one length, or use another "
                    "mixing"
                )
            token_mask = None
        order = None if token_mask is None else _order(token_mask)
        if order is not None and token_mask is not None:
            # A text is moved to the left edge, so that it is mixed as if it stood alone: position 0 is its first token,
            # and keys are drawn from the text, not from the padding before it.
            tokens, token_mask = tokens.gather(1, order), token_mask.gather(1, order)
        hidden = self.embedding(tokens) + self.positions(range(tokens.shape[1]))
        hidden, found = self.through(
            self.blocks, self.dropout(self.norm(hidden)), mask=self._mask(tokens.shape[1], token_mask), weights=weights
        )
        if order is not None:
            back = order.argsort(-1)
            hidden = hidden.gather(1, back[..., None].expand_as(hidden))
            found = [_unsorted(one, back) for one in found]
        logits = None if self.head is None else self.head(hidden, self.embedding.weight)
        return Output(logits, hidden, tuple(found) if weights else None)

    def _mask(self, length: int, token_mask: Tensor | None) -> Mask | None:
        who = None if token_mask is None else mask.padding(token_mask)
        if self.config.mixing not in ("longformer", "bigbird"):
            return who
        sparse = mask.window(self.config.window)
        if self.config.globals:
            sparse = sparse | mask.global_at(self.config.globals)
        if self.config.mixing == "bigbird" and self.config.random:
            sparse = sparse | self._random(length, token_mask)
        return sparse if who is None else sparse & who

    def _random(self, length: int, token_mask: Tensor | None) -> Mask:
        """Keys of each text's own: how much padding the batch has changes nothing."""
        count, seed = self.config.random, self.config.seed
        if token_mask is None:
            return mask.random_keys(count, seed, length)
        rows: dict[int, list[int]] = {}
        for row, real_tokens in enumerate(token_mask.sum(-1).tolist()):
            rows.setdefault(max(real_tokens, 1), []).append(row)
        drawn = [mask.edge(batch=which) & mask.random_keys(count, seed, own) for own, which in rows.items()]
        who = drawn[0]
        for more in drawn[1:]:
            who = who | more
        return who


def _order(token_mask: Tensor) -> Tensor | None:
    """Which token comes where when the real ones come first; None where they do already."""
    if bool((token_mask[:, :-1] >= token_mask[:, 1:]).all()):
        return None
    return (~token_mask).long().argsort(dim=-1, stable=True)


def _unsorted(weights: Tensor, back: Tensor) -> Tensor:
    """Rows and columns of [batch, head, query, key] where the tokens stood."""
    batch = torch.arange(len(back), device=back.device)[:, None, None]
    return weights.movedim(1, -1)[batch, back[:, :, None], back[:, None, :]].movedim(-1, 1)


def _block(config: LongConfig) -> EncoderBlock:
    return EncoderBlock(
        _mixing(config),
        FeedForward(config.width, config.hidden, config.activation),
        norm=lambda: LayerNorm(config.width, eps=config.epsilon),
        order="post",
        dropout=config.dropout,
    )


def _mixing(config: LongConfig) -> nn.Module:
    if config.mixing == "fnet":
        return FourierMixing()
    if config.mixing == "performer":
        # no dropout on weights: there are none in linear time, and forming them would cost every pair
        kernel = score.Kernel(FavorPlus(config.features, config.seed))
        return MultiHead(config.width, config.heads, score=kernel)
    return MultiHead(config.width, config.heads, dropout=config.dropout)
