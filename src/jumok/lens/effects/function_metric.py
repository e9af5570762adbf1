"""Any Python function as a metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.errors import ArgumentError

from .metrics import CleanLogits, Logits, Metric, Values

MetricFunction = Callable[[Tensor], Tensor | float]


@dataclass(frozen=True)
class FunctionMetric(Metric):
    """Any Python function as a metric.

    Attributes:
        function: Called once for each text with the model's output for this text: logits ``[position, token]`` or
            ``[class]``, numbers, or vectors ``[position, width]``. It returns one finite number, as a tensor or a
            float; ``over="edges"`` needs a tensor that was computed from the logits, for its gradient.
    """

    function: MetricFunction

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

    def resolve_tokens(self, tokenizer: TextTokenizer | None) -> Metric:
        """Return the metric itself; a function has no tokens."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the name of the function as a dictionary for JSON."""
        return {"metric": type(self).__name__, "function": str(self)}

    def __str__(self) -> str:
        return f"metric {getattr(self.function, '__name__', type(self.function).__name__)}"
