"""Classifier: text in, a logit for each class out. An encoder, pooling into one vector, and a linear layer.

tokens -> encoder (bert or long) -> mean over the real tokens, or the first of them -> dropout -> logits
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Int
from torch import Tensor, nn

from jumok.errors import ArgumentError
from jumok.fields import choice, integer, real, subconfig

from .bert import BERTConfig
from .config import Config
from .long import LongConfig
from .model import Model, Output, initialise_normal
from .registry import get_family
from .token_inputs import average_tokens, select_first_token


@dataclass(frozen=True)
class ClassifierConfig(Config):
    """The config of a classifier; the default encoder is BERT base."""

    family: ClassVar[str] = "classifier"

    encoder: BERTConfig | LongConfig = subconfig(  # noqa: RUF009  # a frozen default can be shared
        BERTConfig(), (BERTConfig, LongConfig), "the encoder that reads the text"
    )
    pool: str = choice("mean", ("mean", "first"), "pooling: the mean of the real tokens, or the first one")
    classes: int = integer(2, "number of classes")
    dropout: float = real(0.0, "dropout rate on the pooled vector in training", most=0.99)

    def check(self) -> None:
        """Raise ArgumentError if fields contradict each other."""
        if self.encoder.head != "none":
            raise ArgumentError(f'a classifier needs an encoder with head "none", not {self.encoder.head!r}')


def sentiment_config(**encoder: object) -> ClassifierConfig:
    """Return the config of the sentiment classifier: width 256, 4 layers, mean over tokens, 3 classes.

    Args:
        **encoder: Other fields of its encoder, a ``BERTConfig``, such as the vocabulary.
    """
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
    """A text classifier: ``model(tokens).logits`` is [batch, classes]; ``.hidden`` is the encoder's.

    Args:
        config: The encoder's config, the pooling and the classes.
    """

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
        self.finish_construction()

    @property
    def context_length(self) -> int | None:
        """The longest text in tokens, as the encoder defines it."""
        return self.encoder.context_length

    @property
    def class_count(self) -> int:
        """The number of classes."""
        return self.config.classes

    def initialise(self) -> None:
        """Initialise the output layer; the encoder has initialised its own parameters."""
        initialise_normal(self.output.weight, 0.02)
        nn.init.zeros_(self.output.bias)

    @property
    def checkpointing(self) -> bool:
        """Gradient checkpointing, which applies to the encoder's blocks."""
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
        """Return the logits of the classes, the encoder's hidden vectors and (if requested) attention weights.

        Args:
            tokens: Token ids.
            token_mask: True = real token, on either side; padding is masked and not averaged.
            weights: Return the weights of every layer.
        """
        output: Output = self.encoder(tokens, token_mask=token_mask, weights=weights)
        assert output.hidden is not None
        pool = select_first_token if self.config.pool == "first" else average_tokens
        pooled = pool(output.hidden, token_mask)
        return Output(self.output(self.dropout(pooled)), output.hidden, output.weights)
