"""What an effect is measured by: one number for each text, read from what a model gave.

Metrics are frozen values. ``position`` counts as Python does: -1 is the last. Each says from which position on it needs
logits, so that a model that can leave the others out does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jumok.data.tokenizers.token_labels import label_tokens
from jumok.errors import ArgumentError

#: what a model gave, its last axis being what it chooses from: [batch, position, token], or [batch, class]
Logits = Float[Tensor, "batch ..."]
Clean = Float[Tensor, "1 ..."]


class Metric(ABC):
    """One number a text. ``clean`` is what the unedited run gave for the same positions, [1, ...]."""

    kinds: ClassVar[dict[str, type[Metric]]] = {}

    def __init_subclass__(cls) -> None:
        Metric.kinds[cls.__name__] = cls

    @abstractmethod
    def __call__(self, logits: Logits, clean: Clean) -> Float[Tensor, " batch"]: ...

    @property
    def first(self) -> int | None:
        """The first position that is read, as Python counts; None = all."""
        return None

    @abstractmethod
    def __str__(self) -> str: ...

    def resolved(self, tokenizer: Any) -> Metric:
        """The same with token ids where tokens were written as text."""
        written = {one.name: value for one in fields(self) if isinstance(value := getattr(self, one.name), str)}  # type: ignore[arg-type]
        return replace(self, **{name: encode_single_token(text, tokenizer) for name, text in written.items()})  # type: ignore[type-var]

    def to_json(self) -> dict[str, Any]:
        told = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {"metric": type(self).__name__, **told}


@dataclass(frozen=True)
class LogProbability(Metric):
    """The logarithm of a token's probability at a position."""

    token: int | str
    position: int = -1

    def __call__(self, logits: Logits, clean: Clean) -> Float[Tensor, " batch"]:
        return at(logits, self.position).log_softmax(-1)[:, _known(self.token, logits)]

    @property
    def first(self) -> int | None:
        return self.position

    def __str__(self) -> str:
        return f"log-probability of token {self.token} at position {self.position}"


@dataclass(frozen=True)
class LogitDifference(Metric):
    """How far one token's logit is above another's: for "Mary or John?"."""

    right: int | str
    wrong: int | str
    position: int = -1

    def __call__(self, logits: Logits, clean: Clean) -> Float[Tensor, " batch"]:
        here = at(logits, self.position)
        return here[:, _known(self.right, logits)] - here[:, _known(self.wrong, logits)]

    @property
    def first(self) -> int | None:
        return self.position

    def __str__(self) -> str:
        return f"logit of token {self.right} minus that of token {self.wrong} at position {self.position}"


@dataclass(frozen=True)
class Loss(Metric):
    """The mean cross-entropy of the text's own next tokens, in nats."""

    tokens: tuple[int, ...]  # the text; what comes after each position is the next one

    def __post_init__(self) -> None:
        if len(self.tokens) < 2:
            raise ArgumentError("a loss needs a text of at least two tokens: the first has nothing before it")

    def __call__(self, logits: Logits, clean: Clean) -> Float[Tensor, " batch"]:
        wanted = torch.tensor(self.tokens[1:], device=logits.device)
        if logits.dim() != 3 or logits.shape[1] < len(wanted):
            raise ArgumentError(f"a loss over {len(self.tokens)} tokens needs their logits, not {list(logits.shape)}")
        here = logits[:, : len(wanted)].float()
        several = wanted.expand(len(here), -1)
        return functional.cross_entropy(here.transpose(1, 2), several, reduction="none").mean(-1)

    def __str__(self) -> str:
        return f"loss over {len(self.tokens)} tokens"


@dataclass(frozen=True)
class Divergence(Metric):
    """KL(clean || edited) of the whole answer at a position: how much it changed, either way; clean: 0."""

    position: int = -1

    def __call__(self, logits: Logits, clean: Clean) -> Float[Tensor, " batch"]:
        here, before = (at(one, self.position).float().log_softmax(-1) for one in (logits, clean))
        return (before.exp() * (before - here)).sum(-1)

    @property
    def first(self) -> int | None:
        return self.position

    def __str__(self) -> str:
        return f"KL(clean || edited) at position {self.position}"


@dataclass(frozen=True)
class ClassScore(Metric):
    """The logarithm of a class's probability, of a model that answers with classes."""

    label: int

    def __call__(self, logits: Logits, clean: Clean) -> Float[Tensor, " batch"]:
        if logits.dim() != 2:
            raise ArgumentError(f"this model gives no classes but {list(logits.shape)}; use a metric of tokens")
        return logits.log_softmax(-1)[:, _known(self.label, logits)]

    def __str__(self) -> str:
        return f"log-probability of class {self.label}"


@dataclass(frozen=True)
class Value(Metric):
    """A number that the model answers with, as it is: one of a row of numbers, or of a vector."""

    position: int = -1

    def __call__(self, logits: Logits, clean: Clean) -> Float[Tensor, " batch"]:
        return logits.flatten(1)[:, self.position]

    def __str__(self) -> str:
        return f"number at position {self.position}"


def at(logits: Logits, position: int) -> Float[Tensor, "batch token"]:
    """[batch, token] at a position; a model of classes has one position alone."""
    if logits.dim() == 2:
        return logits
    if logits.dim() != 3:
        raise ArgumentError(f"a token is read from logits [batch, position, token], not {list(logits.shape)}")
    if not -logits.shape[1] <= position < logits.shape[1]:
        raise ArgumentError(f"there are logits at {logits.shape[1]} positions; {position} is none of them")
    return logits[:, position]


def encode_single_token(text: str, tokenizer: Any) -> int:
    """The one token that a text is."""
    if tokenizer is None:
        raise ArgumentError(f"{text!r} needs a tokenizer: measure what jumok.load gave, or give the token's number")
    ids = tokenizer.encode(text, special=False)
    if len(ids) != 1:
        shown = " ".join(label_tokens(tokenizer, ids))
        raise ArgumentError(
            f"{text!r} is {len(ids)} tokens ({shown}); a metric reads one: give the one you mean, with its space"
        )
    if ids[0] == tokenizer.unknown:
        raise ArgumentError(f"{text!r} is unknown to this model's tokenizer; measure a token that it knows")
    return int(ids[0])


def _known(token: int | str, logits: Logits) -> int:
    if isinstance(token, str):
        raise ArgumentError(f"{token!r} needs a tokenizer: measure what jumok.load gave, or give the token's number")
    if not 0 <= token < logits.shape[-1]:
        raise ArgumentError(f"the model chooses among {logits.shape[-1]}, counted from 0; {token} is none of them")
    return token


@dataclass(frozen=True)
class Similarity(Metric):
    """The cosine between what the model gave and what it gave in the clean run, each averaged over its positions: for
    models that give vectors. 1 for the clean run."""

    def __call__(self, logits: Logits, clean: Clean) -> Float[Tensor, " batch"]:
        here, before = (one.float().flatten(1, -2).mean(1) if one.dim() > 2 else one for one in (logits, clean))
        return functional.cosine_similarity(here, before.expand_as(here))

    def __str__(self) -> str:
        return "cosine to the clean answer"


def extract_answer(output: Any) -> tuple[Tensor, str]:
    """What a model gave, and what it is: "logits", "numbers" or "hidden"."""
    for name in ("logits", "numbers", "hidden", "last_hidden_state"):
        found = getattr(output, name, None)
        if isinstance(found, Tensor):
            return found, "hidden" if name == "last_hidden_state" else name
    raise ArgumentError(f"{type(output).__name__} holds nothing that can be measured: no logits, numbers or vectors")


def usual(answer: Tensor, kind: str) -> Metric:
    """What people would ask first: how likely is what the model answers by itself?"""
    if kind == "numbers":
        return Value()
    if kind == "hidden":
        return Similarity()
    if answer.dim() == 2:
        return ClassScore(int(answer[0].argmax()))
    return LogProbability(int(at(answer, -1)[0].argmax()))
