"""The base class of model configs."""

from __future__ import annotations

from dataclasses import dataclass

from jumok.errors import ArgumentError
from jumok.fields import Fields


@dataclass(frozen=True)
class Config(Fields):
    """Everything that decides a model's parameters and arithmetic. Each family has a subclass, which declares its
    fields with the functions of ``jumok.fields``; their defaults are a published model."""

    def check_heads(self, width: int, heads: int) -> None:
        """Raise ArgumentError if ``heads`` heads do not divide ``width``.

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
