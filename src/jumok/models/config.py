"""The base class of model configs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jumok.errors import ArgumentError
from jumok.fields import Fields, choice
from jumok.layers.feedforward import ACTIVATIONS


def declare_activation(default: str) -> Any:
    """Declare the field of the activation of the feed-forward networks."""
    return choice(default, tuple(ACTIVATIONS), "activation of the feed-forward network")


@dataclass(frozen=True)
class Config(Fields):
    """Base class of the configs, which define a model's sizes and variants. Each family declares the fields of its
    subclass with the functions of ``jumok.fields``; the defaults are those of a published model."""

    def check_heads(self, width: int, heads: int) -> None:
        """Raise ArgumentError if ``width`` is not a multiple of ``heads``.

        Args:
            width: The width of the model.
            heads: The number of attention heads.
        """
        if width % heads:
            raise ArgumentError(f"width {width} cannot be split evenly into {heads} heads")

    def check_special_tokens(self, vocabulary: int, **tokens: int) -> None:
        """Raise ArgumentError if a special token is not in the vocabulary.

        Args:
            vocabulary: The number of tokens.
            **tokens: Token ids by the name of their field, such as ``start=1``.
        """
        for name, token in tokens.items():
            if token >= vocabulary:
                raise ArgumentError(f"{name} is token {token}, but the vocabulary has {vocabulary} tokens")
