"""Attention sites: resolve a layer argument to a site, and find the sequences that an attention connects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from numbers import Integral
from typing import NamedTuple, TypeGuard

from jumok.errors import ArgumentError

MAX_EXAMPLES = 6  # site names that an error message lists
SOURCE, TARGET = "source", "target"
#: words of the module names of cross-attentions: Jumok and GPT-2, BART and its descendants, T5
CROSS_WORDS = ("cross", "encoder_attn", "encdecattention")
CALL_SUFFIX = re.compile(r"#\d+$")  # of a module that is executed again, which is another layer


class AxisSides(NamedTuple):
    """The sequences that the queries and the keys of an attention belong to: "source" or "target"."""

    queries: str
    keys: str


class Sites:
    """The attention sites of a model in execution order, named by their modules ("decoder.blocks.0.cross").

    >>> sites = Sites(["encoder.blocks.0.attention", "decoder.blocks.0.attention", "decoder.blocks.0.cross"])
    >>> sites.find("decoder.0.cross"), Sites(["blocks.0.attention", "blocks.1.attention"]).find(1)
    ('decoder.blocks.0.cross', 'blocks.1.attention')
    """

    def __init__(self, names: Sequence[str]) -> None:
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

        A layer is a number where the model has a single stack, counted from 0, or from the end if it is negative; else
        a site name, or words of it in order ("decoder.0.cross").
        """
        if isinstance(layer, str):
            matches = self.find_matches(layer)
            if len(matches) == 1:
                return matches[0]
            problem = f"there is no attention {layer!r}"
            if matches:
                problem = f"{layer!r} is ambiguous: {', '.join(matches[:4])}"
            raise ArgumentError(f"{problem}; the sites are {self._list_examples()}")
        if not is_integer(layer):
            raise ArgumentError(f"a layer is a number or a name, not {layer!r}; the sites are {self._list_examples()}")
        stacks = self.stacks
        if len(stacks) != 1:
            raise ArgumentError(
                f"this model has {len(stacks)} stacks of attentions, so a number is ambiguous; "
                f"name a site: {self._list_examples()}"
            )
        count = len(self.names)
        if not -count <= layer < count:
            raise ArgumentError(
                f"layer {layer} does not exist; there are {count} layers, counted from 0 (-1 is the last)"
            )
        return self.names[layer]

    def find_all(self, layer: int | str | None) -> frozenset[str]:
        """Return the names of one site, as ``find`` does, or of all sites."""
        return frozenset(self.names) if layer is None else frozenset([self.find(layer)])

    def find_matches(self, layer: str) -> list[str]:
        """Return the names of all sites that a site name, or words of it in order, match, in execution order.

        >>> Sites(["decoder.0.attention", "decoder.0.cross", "decoder.1.cross"]).find_matches("decoder.0")
        ['decoder.0.attention', 'decoder.0.cross']
        """
        if layer in self.names:
            return [layer]
        words = layer.split(".")
        matches = []
        for name in self.names:
            remaining = iter(name.split("."))
            if all(word in remaining for word in words):  # in the same order
                matches.append(name)
        return matches

    def get_layer(self, site: str) -> int | str:
        """Return the shortest unambiguous layer of a site: its number in a single stack, else its name."""
        return self.names.index(site) if len(self.stacks) == 1 else site

    def get_sides(self, site: str) -> AxisSides:
        """Return the sequences that an attention connects. This never depends on the lengths of the sequences.

        A cross-attention reads the source and is queried by the target. The other attentions of its block and stack
        belong to the target, and so does every module of a decoder. A model without cross-attention reads a single
        sequence, the source.

        >>> sites = Sites(["encoder.0.attention", "decoder.0.attention", "decoder.0.cross"])
        >>> sites.get_sides("decoder.0.cross"), sites.get_sides("encoder.0.attention").keys
        (AxisSides(queries='target', keys='source'), 'source')
        """
        crosses = [name for name in self.names if _is_cross(name)]
        if not crosses:
            return AxisSides(SOURCE, SOURCE)
        if _is_cross(site):
            return AxisSides(TARGET, SOURCE)
        blocks = {name.rpartition(".")[0] for name in crosses} - {""}
        target_stacks = {_replace_numbers(name) for name in self.names if name.rpartition(".")[0] in blocks}
        is_target = "decoder" in site.split(".") or _replace_numbers(site) in target_stacks
        return AxisSides(TARGET, TARGET) if is_target else AxisSides(SOURCE, SOURCE)

    @property
    def has_target(self) -> bool:
        """Whether the model reads a source and a target: whether it has a cross-attention."""
        return any(_is_cross(name) for name in self.names)

    def _list_examples(self) -> str:
        """The first site names, as text for error messages."""
        more = ["..."] if len(self.names) > MAX_EXAMPLES else []
        return ", ".join([*self.names[:MAX_EXAMPLES], *more])


def is_integer(number: object) -> TypeGuard[int]:
    """Return whether the argument is an integer of Python or numpy; booleans are not."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def normalize_index(index: object, count: int, owner: str, kind: str) -> int:
    """Return an index counted from 0; a negative one counts from the end. ``owner`` is named in the error."""
    if not is_integer(index) or not -count <= index < count:
        raise ArgumentError(
            f"{owner} has {count} {kind}, counted from 0 (-1 is the last); {index!r} is not one of them"
        )
    return int(index) % count


def _is_cross(name: str) -> bool:
    """Return whether a site is a cross-attention, by the last words of its name."""
    words = name.lower().split(".")[-2:]  # BERT's decoders: "crossattention.self"
    return any(cross in word for word in words for cross in CROSS_WORDS)


def remove_call_suffix(site: str) -> str:
    """Return the name of the module of an attention call.

    >>> remove_call_suffix("layer.attention#11")
    'layer.attention'
    """
    return CALL_SUFFIX.sub("", site)


def get_call_suffix(site: str) -> str:
    """Return the suffix of a repeated call, such as "#1", or ""."""
    return site[len(remove_call_suffix(site)) :]


def _replace_numbers(name: str) -> str:
    """Replace the numbers in a site name: "blocks.3.attention" becomes "blocks.#.attention", without a suffix "#1"."""
    return ".".join("#" if word.isdigit() else word for word in remove_call_suffix(name).split("."))


def count_shared_words(name: str, other: str) -> int:
    """Count how many leading words two dotted names share, such as "encoder.layer.0"."""
    words = zip(name.split("."), other.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], words))
