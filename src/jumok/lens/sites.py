"""Which attention a person means: by number where there is one stack, by name, or by the words of a name."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

from jumok.errors import ArgumentError


class Sites:
    """The sites of a model in order. Names are the model's own ("blocks.3.attention", "decoder.blocks.0.cross").

    >>> sites = Sites(["encoder.blocks.0.attention", "decoder.blocks.0.attention", "decoder.blocks.0.cross"])
    >>> sites.one("decoder.0.cross"), Sites(["blocks.0.attention", "blocks.1.attention"]).one(1)
    ('decoder.blocks.0.cross', 'blocks.1.attention')
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    @property
    def stacks(self) -> dict[str, list[str]]:
        """Sites whose names differ in one number alone belong together."""
        found: dict[str, list[str]] = {}
        for name in self.names:
            found.setdefault(_form(name), []).append(name)
        return found

    def stack(self) -> list[str]:
        return self.names

    def find(self, layer: int | str) -> str:
        if isinstance(layer, str):
            return self._named(layer)
        if not is_integer(layer):
            raise ArgumentError(
                f"a layer is a number or a name, not {layer!r}; there are {', '.join(self._examples())}"
            )
        stacks = self.stacks
        if len(stacks) != 1:
            raise ArgumentError(
                f"this model has {len(stacks)} stacks of attentions; name one: {', '.join(self._examples())}"
            )
        if not 0 <= layer < len(self.names):
            raise ArgumentError(f"there are {len(self.names)} layers, counted from 0; {layer} is none of them")
        return self.names[layer]

    def several(self, layer: int | str | None) -> frozenset[str]:
        return frozenset(self.names) if layer is None else frozenset([self.find(layer)])

    def get_layer(self, site: str) -> int | str:
        """The shortest way to say which one it is."""
        return self.names.index(site) if len(self.stacks) == 1 else site

    def _named(self, layer: str) -> str:
        if layer in self.names:
            return layer
        wanted = layer.split(".")
        found = [name for name in self.names if _in_order(wanted, name.split("."))]
        if len(found) == 1:
            return found[0]
        told = f"there is no attention {layer!r}" if not found else f"{layer!r} may mean {', '.join(found[:4])}"
        raise ArgumentError(f"{told}; there are {', '.join(self._examples())}")

    def _examples(self) -> list[str]:
        return [*self.names[:6], *(["..."] if len(self.names) > 6 else [])]


def is_integer(given: object) -> bool:
    """A whole number, numpy's too, which True and False are not."""
    return isinstance(given, Integral) and not isinstance(given, bool)


def _form(name: str) -> str:
    return ".".join("#" if word.isdigit() else word for word in name.split("."))


def _in_order(wanted: list[str], words: list[str]) -> bool:
    rest = iter(words)
    return all(word in rest for word in wanted)
