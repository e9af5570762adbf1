"""Classifier: a text in, a score for each class out. An encoder, its vectors pooled into one, one map.

tokens -> encoder (bert or long) -> mean over the real tokens, or the first of them -> dropout -> logits
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.errors import ArgumentError
from jumok.fields import choice, integer, nested, real

from .bert import BERTConfig, first_of
from .config import Config
from .long import LongConfig
from .model import Model, Output, normal_
from .registry import get_family


@dataclass(frozen=True)
class ClassifierConfig(Config):
    """The default encoder is BERT base."""

    family: ClassVar[str] = "classifier"

    encoder: BERTConfig | LongConfig = nested(  # noqa: RUF009  # a frozen default can be shared
        BERTConfig(), (BERTConfig, LongConfig), "the encoder that reads the text"
    )
    pool: str = choice("mean", ("mean", "first"), "which vectors stand for the text: all real tokens', or the first's")
    classes: int = integer(2, "how many classes there are")
    dropout: float = real(0.0, "share of the pooled vector dropped while training", most=0.99)

    def check(self) -> None:
        if self.encoder.head != "none":
            raise ArgumentError(f'a classifier needs an encoder with head "none", not {self.encoder.head!r}')


def sentiment_config(**encoder: object) -> ClassifierConfig:
    """The sentiment classifier: width 256, 4 layers, mean over tokens, 3 classes. ``encoder`` changes fields of its
    encoder, such as the vocabulary."""
    fields: dict[str, object] = {
        "vocabulary": 10_000,
        "width": 256,
        "layers": 4,
        "heads": 8,
        "hidden": 1024,
        "segments": 0,
        "dropout": 0.1,
    }
    return ClassifierConfig(encoder=BERTConfig.from_json({**fields, **encoder}), pool="mean", classes=3, dropout=0.1)


class Classifier(Model):
    """``model(tokens).logits`` is [batch, classes]; ``.hidden`` is the encoder's."""

    family = "classifier"
    config_class = ClassifierConfig
    config: ClassifierConfig
    reads = "text"
    task = "classify"
    answers = "classes"

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = get_family(config.encoder.family)(config.encoder)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.encoder.width, config.classes)
        self.finish()

    @property
    def context_length(self) -> int | None:
        """The longest text in tokens, which the encoder decides."""
        return self.encoder.context_length

    @property
    def class_count(self) -> int:
        """The number of classes."""
        return self.config.classes

    def initialise(self) -> None:
        normal_(self.output.weight, 0.02)  # the encoder has drawn its own
        nn.init.zeros_(self.output.bias)

    @property
    def checkpointing(self) -> bool:
        """The blocks are the encoder's."""
        return self.encoder.checkpointing

    @checkpointing.setter
    def checkpointing(self, checkpointing: bool) -> None:
        self.encoder.checkpointing = checkpointing

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        token_mask: Bool[Tensor, "batch key"] | None = None,
        weights: bool = False,
    ) -> Output:
        """token_mask: True = a real token, on either side; padding is neither seen nor counted."""
        output: Output = self.encoder(tokens, token_mask=token_mask, weights=weights)
        assert output.hidden is not None
        pooled = (
            first_of(output.hidden, token_mask) if self.config.pool == "first" else _mean(output.hidden, token_mask)
        )
        return Output(self.output(self.dropout(pooled)), output.hidden, output.weights)


def _mean(
    hidden: Float[Tensor, "batch length width"], token_mask: Bool[Tensor, "batch length"] | None
) -> Float[Tensor, "batch width"]:
    if token_mask is None:
        return hidden.mean(1)
    count = token_mask.sum(-1, keepdim=True).clamp_min(1)  # a text without tokens gives 0
    return hidden.masked_fill(~token_mask[..., None], 0.0).sum(1) / count
