"""Metrics, which effects are measured in. A metric computes one number per text from a model's output.

Metrics are frozen values. ``position`` counts as in Python: -1 is the last position. A new metric is one class here:
its fields, what it measures (``answer_kind``), the number (``__call__``) and its description.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.token_labels import label_tokens
from jumok.errors import ArgumentError

#: a model's output: logits [batch, position, token] or [batch, class], numbers, or hidden states
Logits = Float[Tensor, "batch ..."]
CleanLogits = Float[Tensor, "1 ..."]
Values = Float[Tensor, " batch"]
MetricFunction = Callable[[Tensor], Tensor | float]

#: what each kind of answer is called in error messages
ANSWER_NAMES = {"logits": "logits", "numbers": "numbers", "hidden": "vectors and no logits"}
#: outputs of transformers whose logits are one number for each token instead of one for each class
TOKEN_SCORE_OUTPUTS = ("ElectraForPreTrainingOutput",)


class Answer(NamedTuple):
    """The part of a model's output that metrics read."""

    tensor: Tensor
    kind: str  # "logits", "numbers" or "hidden"


def extract_answer(output: object) -> Answer:
    """Return the part of the output of a model of Jumok or transformers that metrics read."""
    for name in ("logits", "numbers", "hidden", "last_hidden_state"):
        tensor = getattr(output, name, None)
        if isinstance(tensor, Tensor):
            if type(output).__name__ in TOKEN_SCORE_OUTPUTS:
                return Answer(tensor, "numbers")
            return Answer(tensor, "hidden" if name == "last_hidden_state" else name)
    raise ArgumentError(f"{type(output).__name__} has no logits, numbers or hidden states to measure")


@dataclass(frozen=True)
class Metric(ABC):
    """Base class of the metrics."""

    kinds: ClassVar[dict[str, type[Metric]]] = {}  # by their names in commands
    name: ClassVar[str] = ""  # in commands; "" for metrics that no command offers
    answer_kind: ClassVar[str] = "logits"  # the kind of answer that it measures
    # 1 or -1 where any change of the answer raises or lowers the metric, so that it has no gradient at the clean answer
    direction: ClassVar[int] = 0

    def __init_subclass__(cls) -> None:
        if cls.name:
            Metric.kinds[cls.name] = cls

    @abstractmethod
    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        """Compute the metric of each text: of the edited output ``[batch, ...]``, given the clean one ``[1, ...]``."""

    @abstractmethod
    def describe(self, tokenizer: TextTokenizer | None = None) -> str:
        """Return a description, with the texts of tokens if there is a tokenizer, else their ids."""

    def __str__(self) -> str:
        return self.describe()

    @classmethod
    def accepts(cls, answer: Answer) -> bool:
        """Return whether the metric measures this kind of answer."""
        return answer.kind == cls.answer_kind

    def check(self, answer: Answer) -> None:
        """Raise an ArgumentError that names the suitable metrics if this one does not fit the answer."""
        if not self.accepts(answer):
            names = [kind.__name__ for kind in Metric.kinds.values() if kind.accepts(answer)]
            raise ArgumentError(
                f"this model outputs {ANSWER_NAMES[answer.kind]}, which {type(self).__name__} cannot measure; "
                f"use {', '.join(names)}"
            )

    def surrogate(self, clean: CleanLogits) -> Metric:
        """Return the metric whose gradient estimates effects: another one where ``direction`` is not 0."""
        return self

    @property
    def measured_position(self) -> int | None:
        """The single position that the metric reads; None where it reads several or has none."""
        return getattr(self, "position", None)

    @property
    def first_read_position(self) -> int | None:
        """The first position whose logits the metric reads, so that a model can omit the others; None means all."""
        return self.measured_position

    def resolve_tokens(self, tokenizer: TextTokenizer | None) -> Metric:
        """Return the same metric with token ids in place of tokens that were given as text."""
        texts = {name: field for name, field in vars(self).items() if isinstance(field, str)}
        return replace(self, **{name: encode_single_token(text, tokenizer) for name, text in texts.items()})

    @classmethod
    def list_needed_fields(cls) -> list[str]:
        """Return the fields that a user must give; the tokens of a text are those of the input."""
        return [field.name for field in fields(cls) if field.default is MISSING and field.name != "tokens"]

    def to_json(self) -> dict[str, Any]:
        """Return the metric as a dictionary for JSON."""
        return {"metric": type(self).__name__, **vars(self)}


@dataclass(frozen=True)
class LogProbability(Metric):
    """The log-probability of a token at a position."""

    name = "log-probability"
    token: int | str  # its id or text
    position: int = -1

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        return select_position(logits, self.position).log_softmax(-1)[:, _check_token(self.token, logits)]

    def describe(self, tokenizer: TextTokenizer | None = None) -> str:
        return f"log-probability of token {_name_token(self.token, tokenizer)} at position {self.position}"


@dataclass(frozen=True)
class LogitDifference(Metric):
    """The logit of one token minus the logit of another, for questions such as "Mary or John?"."""

    name = "logit-difference"
    right: int | str  # the expected token, its id or text
    wrong: int | str  # the other token, its id or text
    position: int = -1

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        selected = select_position(logits, self.position)
        return selected[:, _check_token(self.right, logits)] - selected[:, _check_token(self.wrong, logits)]

    def describe(self, tokenizer: TextTokenizer | None = None) -> str:
        right, wrong = _name_token(self.right, tokenizer), _name_token(self.wrong, tokenizer)
        return f"logit of token {right} minus that of token {wrong} at position {self.position}"


@dataclass(frozen=True)
class Loss(Metric):
    """The mean cross-entropy of a text's next tokens, in nats."""

    name = "loss"
    tokens: tuple[int, ...]  # at least two; each position predicts the next one

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

    def describe(self, tokenizer: TextTokenizer | None = None) -> str:
        return f"loss over {len(self.tokens)} tokens"


@dataclass(frozen=True)
class Divergence(Metric):
    """The Kullback-Leibler divergence KL(clean || edited) of the output distribution at a position; 0 without edits."""

    name = "kl"
    direction = 1
    position: int = -1

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        edited_log = select_position(logits, self.position).float().log_softmax(-1)
        clean_log = select_position(clean, self.position).float().log_softmax(-1)
        return (clean_log.exp() * (clean_log - edited_log)).sum(-1)

    def describe(self, tokenizer: TextTokenizer | None = None) -> str:
        return f"KL(clean || edited) at position {self.position}"

    def surrogate(self, clean: CleanLogits) -> Metric:
        """Return the log-probability of the most likely token."""
        return LogProbability(int(select_position(clean, self.position)[0].argmax()), self.position)


@dataclass(frozen=True)
class ClassScore(Metric):
    """The log-probability of a class, for classifiers."""

    name = "class"
    label: int

    @classmethod
    def accepts(cls, answer: Answer) -> bool:
        return super().accepts(answer) and answer.tensor.dim() == 2

    def check(self, answer: Answer) -> None:
        shape = list(answer.tensor.shape)
        if answer.kind == "logits" and len(shape) != 2:
            raise ArgumentError(f"this model has no classes, its logits are {shape}; use a metric of tokens")
        super().check(answer)

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        return logits.log_softmax(-1)[:, _check_token(self.label, logits)]

    def describe(self, tokenizer: TextTokenizer | None = None) -> str:
        return f"log-probability of class {self.label}"


@dataclass(frozen=True)
class Value(Metric):
    """A number of the output, for models that predict numbers."""

    name = "value"
    answer_kind = "numbers"
    position: int = -1  # which number, of a sequence or a vector

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        return logits.flatten(1)[:, self.position]

    @property
    def first_read_position(self) -> int | None:
        """None: numbers have no logits to omit."""
        return None

    def describe(self, tokenizer: TextTokenizer | None = None) -> str:
        return f"number at position {self.position}"


@dataclass(frozen=True)
class Similarity(Metric):
    """The cosine similarity to the clean output, averaged over positions, for models that output vectors."""

    name = "similarity"
    answer_kind = "hidden"
    direction = -1

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        edited_mean, clean_mean = _average_positions(logits), _average_positions(clean)
        return functional.cosine_similarity(edited_mean, clean_mean.expand_as(edited_mean))

    def describe(self, tokenizer: TextTokenizer | None = None) -> str:
        return "cosine to the clean answer"

    def surrogate(self, clean: CleanLogits) -> Metric:
        """Return the projection onto a random direction."""
        direction = torch.randn(clean.shape[-1], generator=torch.Generator().manual_seed(0)).to(clean)
        return FunctionMetric(lambda hidden: (hidden.flatten(0, -2).mean(0) * direction).sum())


@dataclass(frozen=True)
class FunctionMetric(Metric):
    """Any Python function as a metric.

    Attributes:
        function: Called once for each text with the model's output for this text: logits ``[position, token]`` or
            ``[class]``, numbers, or vectors ``[position, width]``. It returns one finite number, as a tensor or a
            float; ``over="edges"`` needs a tensor that was computed from the logits, for its gradient.
    """

    function: MetricFunction

    @classmethod
    def accepts(cls, answer: Answer) -> bool:
        return True

    def __call__(self, logits: Logits, clean: CleanLogits) -> Values:
        return torch.stack([self._measure(text) for text in logits])

    def _measure(self, text: Tensor) -> Tensor:
        """Call the function for one text and check what it returns."""
        number = self.function(text)
        try:
            scalar = torch.as_tensor(number, dtype=None if isinstance(number, Tensor) else torch.float32)
            scalar = scalar.to(text.device).reshape(())
        except (TypeError, ValueError, RuntimeError):
            shape = f"a tensor {list(number.shape)}" if isinstance(number, Tensor) else f"a {type(number).__name__}"
            raise ArgumentError(f"{self} must return one number for a text, not {shape}") from None
        if scalar.is_complex() or not bool(scalar.isfinite()):
            raise ArgumentError(f"{self} must return a finite number, not {scalar.item()}")
        return scalar if scalar.is_floating_point() else scalar.float()

    def to_json(self) -> dict[str, Any]:
        return {"metric": type(self).__name__, "function": str(self)}

    def describe(self, tokenizer: TextTokenizer | None = None) -> str:
        return f"metric {getattr(self.function, '__name__', type(self.function).__name__)}"


def read_metric(metric: Metric | MetricFunction | None) -> Metric | None:
    """Return the metric that a user passed; a function becomes a FunctionMetric."""
    if metric is None or isinstance(metric, Metric):
        return metric
    if not callable(metric) or isinstance(metric, type):
        names = ", ".join(kind.__name__ for kind in Metric.kinds.values())
        raise ArgumentError(
            f"{metric!r} is not a metric; use a value of jumok.lens.effects.metrics ({names}) "
            "or a function of the logits"
        )
    return FunctionMetric(metric)


def choose_default_metric(answer: Answer) -> Metric:
    """Return the default metric: the log-probability of the model's own answer, or its equivalent for other outputs."""
    if answer.kind == "numbers":
        return Value()
    if answer.kind == "hidden":
        return Similarity()
    if answer.tensor.dim() == 2:
        return ClassScore(int(answer.tensor[0].argmax()))
    return LogProbability(int(select_position(answer.tensor, -1)[0].argmax()))


def select_position(logits: Logits, position: int) -> Float[Tensor, "batch token"]:
    """Return the logits of one position; logits of classes have no positions and are returned as they are."""
    if logits.dim() == 2:
        return logits
    if logits.dim() != 3:
        raise ArgumentError(f"logits must have the shape [batch, position, token], not {list(logits.shape)}")
    if not -logits.shape[1] <= position < logits.shape[1]:
        raise ArgumentError(f"there are logits at {logits.shape[1]} positions; {position} is not one of them")
    return logits[:, position]


def encode_single_token(text: str, tokenizer: TextTokenizer | None) -> int:
    """Return the id of a text that is exactly one token, with a leading space where the vocabulary has one."""
    if tokenizer is None:
        raise _explain_missing_tokenizer(text)
    ids = tokenizer.encode(text, special=False)
    if len(ids) != 1:
        labels = " ".join(label_tokens(tokenizer, ids))
        raise ArgumentError(f"{text!r} is {len(ids)} tokens ({labels}); a metric needs a single token, with its space")
    if ids[0] == tokenizer.unknown:
        raise ArgumentError(f"{text!r} is unknown to this model's tokenizer; choose another token")
    return int(ids[0])


def _explain_missing_tokenizer(text: str) -> ArgumentError:
    return ArgumentError(
        f"{text!r} needs a tokenizer: use the model of jumok.load, pass tokenizer=..., or give the token's id"
    )


def _name_token(token: int | str, tokenizer: TextTokenizer | None) -> str:
    """Return the text of a token id in quotes, or the id without a tokenizer."""
    if tokenizer is None or isinstance(token, str):
        return str(token)
    return repr(label_tokens(tokenizer, [token])[0])


def _check_token(token: int | str, logits: Logits) -> int:
    """Return a token or class id after checking that it is in range."""
    if isinstance(token, str):
        raise _explain_missing_tokenizer(token)
    if not 0 <= token < logits.shape[-1]:
        raise ArgumentError(f"the logits have {logits.shape[-1]} entries, counted from 0; {token} is not one of them")
    return token


def _average_positions(hidden: Tensor) -> Tensor:
    """Average ``[batch, ..., width]`` over everything but batch and width."""
    return hidden.float().flatten(1, -2).mean(1) if hidden.dim() > 2 else hidden
