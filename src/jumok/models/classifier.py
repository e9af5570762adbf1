"""Classifier: text in, a logit for each class out. An encoder, pooling into one vector, and a head.

tokens -> encoder (bert or long) -> mean over the real tokens, or the first of them -> dropout -> logits
with ``head_hidden``: -> linear, ReLU, dropout -> logits
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn import functional

from jumok.errors import ArgumentError
from jumok.fields import choice, integer, real, subconfig
from jumok.layers.token_inputs import average_tokens, select_first_token

from .bert import BERTConfig
from .config import Config
from .long import LongConfig
from .model import Model, Output, initialise_normal
from .registry import get_family


@dataclass(frozen=True)
class ClassifierConfig(Config):
    """The config of a classifier; the default encoder is BERT base."""

    family: ClassVar[str] = "classifier"

    encoder: BERTConfig | LongConfig = subconfig(  # noqa: RUF009  # a frozen default can be shared
        BERTConfig(), (BERTConfig, LongConfig), "the encoder that reads the text"
    )
    pool: str = choice("mean", ("mean", "first"), "pooling: the mean of the real tokens, or the first one")
    classes: int = integer(2, "number of classes")
    head_hidden: int = integer(
        0, "inner width of the head: linear, ReLU, dropout, linear; 0 = dropout and one linear layer", least=0
    )
    dropout: float = real(0.0, "dropout rate of the head in training", most=0.99)

    def check(self) -> None:
        if self.encoder.head != "none":
            raise ArgumentError(f'a classifier needs an encoder with head "none", not {self.encoder.head!r}')


def sentiment_config(**encoder: object) -> ClassifierConfig:
    """Return the config of the sentiment classifier: width 256, 4 layers, feed-forward 2,048, mean over tokens, and the
    head 256 -> 128 -> 3.

    Args:
        **encoder: Other fields of its encoder, a ``BERTConfig``, such as the vocabulary.
    """
    fields: dict[str, object] = {
        "vocabulary": 10_000,
        "width": 256,
        "layers": 4,
        "heads": 8,
        "hidden": 2048,
        "segments": 0,
        "dropout": 0.1,
    }
    return ClassifierConfig(
        encoder=BERTConfig.from_json({**fields, **encoder}), pool="mean", classes=3, head_hidden=128, dropout=0.1
    )


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

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = get_family(config.encoder.family)(config.encoder)
        self.dropout = nn.Dropout(config.dropout)
        self.inner = nn.Linear(config.encoder.width, config.head_hidden) if config.head_hidden else None
        self.output = nn.Linear(config.head_hidden or config.encoder.width, config.classes)
        self.finish_construction()

    @property
    def context_length(self) -> int | None:
        return self.encoder.context_length

    def initialise(self) -> None:
        """Initialise the head; the encoder has initialised its own parameters."""
        initialise_normal(self.output.weight, 0.02)
        nn.init.zeros_(self.output.bias)
        if self.inner is not None:
            # scaled for ReLU (He et al. 2015): with 0.02 the two layers would hide the pooled vector at first
            nn.init.kaiming_normal_(self.inner.weight, nonlinearity="relu")
            nn.init.zeros_(self.inner.bias)

    @property
    def checkpointing(self) -> bool:
        """Gradient checkpointing, which applies to the encoder's blocks."""
        return self.encoder.checkpointing

    @checkpointing.setter
    def checkpointing(self, checkpointing: bool) -> None:
        self.encoder.checkpointing = checkpointing

    def forward(
        self, tokens: Int[Tensor, "batch length"], *, token_mask: Bool[Tensor, "batch key"] | None = None
    ) -> Output:
        """Return the logits of the classes and the encoder's hidden vectors; ``model(tokens, weights=True)`` returns
        the weights too.

        Args:
            tokens: Token ids.
            token_mask: True = real token, on either side; padding is masked and not averaged.
        """
        output: Output = self.encoder(tokens, token_mask=token_mask)
        assert output.hidden is not None
        pool = select_first_token if self.config.pool == "first" else average_tokens
        pooled = pool(output.hidden, token_mask)
        if self.inner is not None:
            pooled = functional.relu(self.inner(pooled))
        return Output(self.output(self.dropout(pooled)), output.hidden)
