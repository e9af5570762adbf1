"""Extract the tensor that metrics read from a model's output."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from jumok.errors import ArgumentError

#: outputs of transformers whose logits are one number for each token instead of one for each class
TOKEN_SCORE_OUTPUTS = ("ElectraForPreTrainingOutput",)


class Answer(NamedTuple):
    """The part of a model's output that metrics read.

    Attributes:
        tensor: The logits, numbers or hidden states.
        kind: "logits", "numbers" or "hidden".
    """

    tensor: Tensor
    kind: str


def extract_answer(output: Any) -> Answer:
    """Return the part of a model's output that metrics read.

    Args:
        output: The output of a model of Jumok or transformers.

    Raises:
        ArgumentError: If the output has no logits, numbers or hidden states.
    """
    for name in ("logits", "numbers", "hidden", "last_hidden_state"):
        tensor = getattr(output, name, None)
        if isinstance(tensor, Tensor):
            if type(output).__name__ in TOKEN_SCORE_OUTPUTS:
                return Answer(tensor, "numbers")
            return Answer(tensor, "hidden" if name == "last_hidden_state" else name)
    raise ArgumentError(f"{type(output).__name__} has no logits, numbers or hidden states to measure")
