"""Metrics, which effects are measured in. A metric computes one number per text from a model's output.

Metrics are frozen values. ``position`` counts as in Python: -1 is the last position.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.token_labels import label_tokens
from jumok.errors import ArgumentError

from .answer import Answer

#: a model's output: logits [batch, position, token] or [batch, class], numbers, or hidden states
Logits = Float[Tensor, "batch ..."]
CleanLogits = Float[Tensor, "1 ..."]
Values = Float[Tensor, " batch"]


@dataclass(frozen=True)
class Metric(ABC):
    """Base class of the metrics."""

    kinds: ClassVar[dict[str, type[Metric]]] = {}

    def __init_subclass__(cls) -> None:
        Metric.kinds[cls.__name__] = cls

    @abstractmethod
    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        """Compute the metric of each text.

        Args:
            logits: The output of the edited model, ``[batch, ...]``.
            clean: The output of the unedited model for the same text, ``[1, ...]``.
        """

    @abstractmethod
    def __str__(self) -> str: ...

    @property
    def first_read_position(self) -> int | None:
        """The first position whose logits the metric reads, so that a model can omit the others; None means all."""
        return None

    @property
    def measured_position(self) -> int | None:
        """The single position that the metric reads; None where it reads several or has none."""
        return self.first_read_position

    def resolve_tokens(self, tokenizer: TextTokenizer | None) -> Metric:
        """Return the same metric with token ids in place of tokens that were given as text.

        Args:
            tokenizer: The model's tokenizer, or None.

        Raises:
            ArgumentError: If a text is not exactly one token, or there is no tokenizer.
        """
        texts = {name: field for name, field in vars(self).items() if isinstance(field, str)}
        return replace(self, **{name: encode_single_token(text, tokenizer) for name, text in texts.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the metric as a dictionary for JSON."""
        return {"metric": type(self).__name__, **vars(self)}


@dataclass(frozen=True)
class LogProbability(Metric):
    """The log-probability of a token at a position.

    Attributes:
        token: The token id, or its text.
        position: The position whose logits are read.
    """

    token: int | str
    position: int = -1

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        return select_position(logits, self.position).log_softmax(-1)[:, _check_token(self.token, logits)]

    @property
    def first_read_position(self) -> int | None:
        """The position that is read."""
        return self.position

    def __str__(self) -> str:
        return f"log-probability of token {self.token} at position {self.position}"


@dataclass(frozen=True)
class LogitDifference(Metric):
    """The logit of one token minus the logit of another, for questions such as "Mary or John?".

    Attributes:
        right: The expected token's id or text.
        wrong: The other token's id or text.
    """

    right: int | str
    wrong: int | str
    position: int = -1

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        selected = select_position(logits, self.position)
        return selected[:, _check_token(self.right, logits)] - selected[:, _check_token(self.wrong, logits)]

    @property
    def first_read_position(self) -> int | None:
        """The position that is read."""
        return self.position

    def __str__(self) -> str:
        return f"logit of token {self.right} minus that of token {self.wrong} at position {self.position}"


@dataclass(frozen=True)
class Loss(Metric):
    """The mean cross-entropy of a text's next tokens, in nats.

    Attributes:
        tokens: The text's token ids, at least two; each position predicts the next one.
    """

    tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) < 2:
            raise ArgumentError("a loss needs a text of at least two tokens")

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        targets = torch.tensor(self.tokens[1:], device=logits.device)
        if logits.dim() != 3 or logits.shape[1] < len(targets):
            raise ArgumentError(f"a loss over {len(self.tokens)} tokens needs their logits, not {list(logits.shape)}")
        predictions = logits[:, : len(targets)].float().transpose(1, 2)
        batch_targets = targets.expand(len(logits), -1)
        return functional.cross_entropy(predictions, batch_targets, reduction="none").mean(-1)

    def __str__(self) -> str:
        return f"loss over {len(self.tokens)} tokens"


@dataclass(frozen=True)
class Divergence(Metric):
    """The Kullback-Leibler divergence KL(clean || edited) of the output distribution at a position; 0 without edits.

    Attributes:
        position: The position whose logits are read.
    """

    position: int = -1

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        edited_log = select_position(logits, self.position).float().log_softmax(-1)
        clean_log = select_position(clean, self.position).float().log_softmax(-1)
        return (clean_log.exp() * (clean_log - edited_log)).sum(-1)

    @property
    def first_read_position(self) -> int | None:
        """The position that is read."""
        return self.position

    def __str__(self) -> str:
        return f"KL(clean || edited) at position {self.position}"


@dataclass(frozen=True)
class ClassScore(Metric):
    """The log-probability of a class, for classifiers."""

    label: int

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        if logits.dim() != 2:
            raise ArgumentError(
                f"this model has no classes, its logits are {list(logits.shape)}; use a metric of tokens"
            )
        return logits.log_softmax(-1)[:, _check_token(self.label, logits)]

    def __str__(self) -> str:
        return f"log-probability of class {self.label}"


@dataclass(frozen=True)
class Value(Metric):
    """A number of the output, for models that predict numbers.

    Attributes:
        position: Which number, of a sequence or a vector.
    """

    position: int = -1

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        return logits.flatten(1)[:, self.position]

    @property
    def measured_position(self) -> int | None:
        """The position that is read."""
        return self.position

    def __str__(self) -> str:
        return f"number at position {self.position}"


@dataclass(frozen=True)
class Similarity(Metric):
    """The cosine similarity to the clean output, averaged over positions, for models that output vectors."""

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        edited_mean, clean_mean = _average_positions(logits), _average_positions(clean)
        return functional.cosine_similarity(edited_mean, clean_mean.expand_as(edited_mean))

    def __str__(self) -> str:
        return "cosine to the clean answer"


def select_position(logits: Logits, position: int) -> Float[Tensor, "batch token"]:
    """Return the logits of one position; logits of classes have no positions and are returned as they are.

    Args:
        logits: ``[batch, position, token]`` or ``[batch, class]``.

    Raises:
        ArgumentError: If the position does not exist.
    """
    if logits.dim() == 2:
        return logits
    if logits.dim() != 3:
        raise ArgumentError(f"logits must have the shape [batch, position, token], not {list(logits.shape)}")
    if not -logits.shape[1] <= position < logits.shape[1]:
        raise ArgumentError(f"there are logits at {logits.shape[1]} positions; {position} is not one of them")
    return logits[:, position]


def encode_single_token(text: str, tokenizer: TextTokenizer | None) -> int:
    """Return the id of a text that is exactly one token.

    Args:
        text: The token's text, including a leading space where the vocabulary has one.
        tokenizer: The model's tokenizer, or None.

    Raises:
        ArgumentError: If the text is several tokens or unknown, or there is no tokenizer.
    """
    if tokenizer is None:
        raise ArgumentError(
            f"{text!r} needs a tokenizer: use the model of jumok.load, pass tokenizer=..., or give the token's id"
        )
    ids = tokenizer.encode(text, special=False)
    if len(ids) != 1:
        labels = " ".join(label_tokens(tokenizer, ids))
        raise ArgumentError(f"{text!r} is {len(ids)} tokens ({labels}); a metric needs a single token, with its space")
    if ids[0] == tokenizer.unknown:
        raise ArgumentError(f"{text!r} is unknown to this model's tokenizer; choose another token")
    return int(ids[0])


def name_tokens(description: str, tokenizer: TextTokenizer | None) -> str:
    """Return the description of a metric with token numbers replaced by their text.

    Args:
        description: The metric, as text: "log-probability of token 97 at position -1".
        tokenizer: The model's tokenizer; None leaves the numbers.
    """
    words = description.split()
    for index, word in enumerate(words[:-1]):
        if tokenizer is not None and word == "token" and words[index + 1].isdigit():
            words[index + 1] = repr(label_tokens(tokenizer, [int(words[index + 1])])[0])
    return " ".join(words)


def choose_default_metric(answer: Answer) -> Metric:
    """Return the default metric: the log-probability of the model's own answer, or its equivalent for other outputs."""
    if answer.kind == "numbers":
        return Value()
    if answer.kind == "hidden":
        return Similarity()
    if answer.tensor.dim() == 2:
        return ClassScore(int(answer.tensor[0].argmax()))
    return LogProbability(int(select_position(answer.tensor, -1)[0].argmax()))


def _check_token(token: int | str, logits: Logits) -> int:
    """Return a token or class id after checking that it is in range."""
    if isinstance(token, str):
        raise ArgumentError(
            f"{token!r} needs a tokenizer: use the model of jumok.load, pass tokenizer=..., or give the token's id"
        )
    if not 0 <= token < logits.shape[-1]:
        raise ArgumentError(f"the logits have {logits.shape[-1]} entries, counted from 0; {token} is not one of them")
    return token


def _average_positions(hidden: Tensor) -> Tensor:
    """Average ``[batch, ..., width]`` over everything but batch and width."""
    return hidden.float().flatten(1, -2).mean(1) if hidden.dim() > 2 else hidden
