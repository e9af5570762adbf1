"""Resolve a layer argument (a layer number, a site name, or some words of one) to an attention site."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TypeGuard

from jumok.errors import ArgumentError

MAX_EXAMPLES = 6  # site names that an error message lists


class Sites:
    """The attention sites of a model in execution order, named by their modules ("decoder.blocks.0.cross").

    Attributes:
        names: The site names.

    >>> sites = Sites(["encoder.blocks.0.attention", "decoder.blocks.0.attention", "decoder.blocks.0.cross"])
    >>> sites.find("decoder.0.cross"), Sites(["blocks.0.attention", "blocks.1.attention"]).find(1)
    ('decoder.blocks.0.cross', 'blocks.1.attention')
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Store the site names.

        Args:
            names: The names in execution order.
        """
        self.names = list(names)

    @property
    def stacks(self) -> dict[str, list[str]]:
        """The sites grouped into stacks: names that differ only in their numbers belong to one stack."""
        stacks: dict[str, list[str]] = {}
        for name in self.names:
            stacks.setdefault(_replace_numbers(name), []).append(name)
        return stacks

    def find(self, layer: int | str) -> str:
        """Return the name of one site.

        Args:
            layer: The layer's number, counted from 0, where the model has a single stack; else a site name, or words of
                it in order ("decoder.0.cross").

        Raises:
            ArgumentError: If no site or several sites match.
        """
        if isinstance(layer, str):
            return self._find_by_partial_name(layer)
        if not is_integer(layer):
            raise ArgumentError(f"a layer is a number or a name, not {layer!r}; the sites are {self._list_examples()}")
        stacks = self.stacks
        if len(stacks) != 1:
            raise ArgumentError(
                f"this model has {len(stacks)} stacks of attentions, so a number is ambiguous; "
                f"name a site: {self._list_examples()}"
            )
        if not 0 <= layer < len(self.names):
            raise ArgumentError(f"layer {layer} does not exist; there are {len(self.names)} layers, counted from 0")
        return self.names[layer]

    def find_all(self, layer: int | str | None) -> frozenset[str]:
        """Return the names of one site or of all sites.

        Args:
            layer: A layer as in ``find``, or None for all sites.
        """
        return frozenset(self.names) if layer is None else frozenset([self.find(layer)])

    def get_layer(self, site: str) -> int | str:
        """Return the shortest unambiguous layer of a site: its number in a single stack, else its name.

        Args:
            site: A site name.
        """
        return self.names.index(site) if len(self.stacks) == 1 else site

    def _find_by_partial_name(self, layer: str) -> str:
        if layer in self.names:
            return layer
        words = layer.split(".")
        matches = [name for name in self.names if _contains_in_order(name.split("."), words)]
        if len(matches) == 1:
            return matches[0]
        problem = f"{layer!r} is ambiguous: {', '.join(matches[:4])}" if matches else f"there is no attention {layer!r}"
        raise ArgumentError(f"{problem}; the sites are {self._list_examples()}")

    def _list_examples(self) -> str:
        """The first site names, as text for error messages."""
        more = ["..."] if len(self.names) > MAX_EXAMPLES else []
        return ", ".join([*self.names[:MAX_EXAMPLES], *more])


def is_integer(number: object) -> TypeGuard[int]:
    """Return whether the argument is an integer of Python or numpy; booleans are not.

    Args:
        number: Anything.
    """
    return isinstance(number, Integral) and not isinstance(number, bool)


def _replace_numbers(name: str) -> str:
    """Replace the numeric parts of a site name: "blocks.3.attention" becomes "blocks.#.attention"."""
    return ".".join("#" if word.isdigit() else word for word in name.split("."))


def _contains_in_order(words: list[str], searched: list[str]) -> bool:
    """Return whether all searched words occur in ``words``, in the same order."""
    remaining = iter(words)
    return all(word in remaining for word in searched)
