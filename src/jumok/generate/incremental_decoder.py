"""The interface of incremental decoders, which every decoding loop uses, and how they report the context length."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor

from jumok.errors import ContextWarning

StepLogits = Float[Tensor, "batch step vocab"]
Report = Callable[[str], None]  # takes one sentence for the user


def warn_about_context(message: str) -> None:
    """Issue a ``ContextWarning``."""
    warnings.warn(message, ContextWarning, stacklevel=2)


class IncrementalDecoder(ABC):
    """A model in the middle of decoding.

    Args:
        report: Receives one sentence, at most once, when the model's context length changes what is read or written.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._has_reported = False

    @property
    def target_limit(self) -> int | None:
        """The largest number of new tokens that the model can write; None = unlimited."""
        return None

    @abstractmethod
    def prefill(self) -> StepLogits:
        """Read the prompt and return the logits of the first new token, [batch, 1, vocab]."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        """Append tokens to each text and return the logits after each of them."""

    @abstractmethod
    def select_rows(self, rows: Int[Tensor, " selected"]) -> None:
        """Continue with these batch rows, in this order."""

    @abstractmethod
    def remove_last(self, count: int) -> None:
        """Remove the last ``count`` tokens of each text."""

    def restrict(self, scores: Float[Tensor, "batch vocab"], texts: list[list[int]]) -> Float[Tensor, "batch vocab"]:
        """Return the scores of the next tokens, with those that may not come next at minus infinity. Here all may.

        Args:
            scores: Logits or log-probabilities.
            texts: The new tokens of each text so far.
        """
        return scores

    def clamp_limit(self, limit: int) -> int:
        """Return the number of new tokens after which decoding stops."""
        return limit if self.target_limit is None else min(limit, self.target_limit)

    def report_stop(self, limit: int) -> None:
        """Report that a text stops unfinished at ``target_limit``, if that is below the caller's limit."""
        if self.target_limit is not None and self.target_limit < limit:
            self.report_once(
                f"the answer stops unfinished at {self.target_limit:,} tokens, the most that this model can write"
            )

    def report_once(self, message: str) -> None:
        """Report a message, unless this decoder has already reported one."""
        if not self._has_reported:
            self._has_reported = True
            self._report(message)
