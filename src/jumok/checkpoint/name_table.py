"""One name table, applied both ways: from the names in a file to the names in a model, and back.

A family's table is a list of rules. A rule says which of our parameters is made of which of theirs; ``{}`` stands for
a number (the layer). Several of theirs are joined along the first axis; a transposed one is turned on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from jumok.errors import CheckpointError


@dataclass(frozen=True)
class Rule:
    """ours <-> theirs. ``sizes``: how many rows each of theirs has, needed to take ours apart again."""

    ours: str
    theirs: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    transposed: bool = False  # theirs is [in, out]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        turned = [part.T if self.transposed else part for part in parts]
        return turned[0] if len(turned) == 1 else torch.cat(turned)

    def split(self, tensor: Tensor) -> list[Tensor]:
        parts = [tensor] if len(self.theirs) == 1 else list(tensor.split(self.sizes))
        return [(part.T if self.transposed else part).contiguous() for part in parts]


def same(ours: str, theirs: str) -> list[Rule]:
    """A weight and a bias that only change their names."""
    return [Rule(f"{ours}.{end}", (f"{theirs}.{end}",)) for end in ("weight", "bias")]


def joined(ours: str, theirs: Iterable[str], sizes: Sequence[int]) -> list[Rule]:
    """Weights and biases of several maps that are one map here."""
    names = tuple(theirs)
    return [Rule(f"{ours}.{end}", tuple(f"{name}.{end}" for name in names), tuple(sizes)) for end in ("weight", "bias")]


class Table:
    """The rules of a family, and which names of theirs hold nothing that is learned."""

    def __init__(self, rules: Iterable[Rule], ignored: Iterable[str] = (), base: str = "") -> None:
        self.rules = [(re.compile(_pattern(rule.ours)), rule) for rule in rules]
        self.ignored = [re.compile(_pattern(name)) for name in ignored]
        self.base = base  # files saved without a head lack this in front of every name

    def _rule(self, name: str) -> tuple[Rule, tuple[str, ...]]:
        for pattern, rule in self.rules:
            found = pattern.fullmatch(name)
            if found:
                return rule, found.groups()
        raise CheckpointError(f"no rule says which name of theirs the parameter {name!r} has")

    def load(self, model: nn.Module, names: Iterable[str], read: Callable[[str], Tensor], what: str) -> None:
        """Fill ``model`` (its parameters may be on the meta device) from ``read(name)``, one parameter at a time."""
        theirs = self._full(names)
        used: set[str] = set()
        for name, parameter in list(model.named_parameters()):
            rule, numbers = self._rule(name)
            wanted = [_filled(one, numbers) for one in rule.theirs]
            missing = [one for one in wanted if one not in theirs]
            if missing:
                raise CheckpointError(f"{what} has no tensor {missing[0]!r}, which the parameter {name!r} is made of")
            tensor = rule.join([read(theirs[one]) for one in wanted])
            if tensor.shape != parameter.shape:
                raise CheckpointError(
                    f"{what}: {', '.join(wanted)} give {list(tensor.shape)}, but by its config {name!r} is "
                    f"{list(parameter.shape)}"
                )
            _set(model, name, tensor.to(parameter.dtype).contiguous())
            used.update(wanted)
        left = [name for name in theirs if name not in used and not any(one.fullmatch(name) for one in self.ignored)]
        if left:
            shown = ", ".join(sorted(left)[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
            raise CheckpointError(f"{what} holds what this model has no place for: {shown}")

    def dump(self, model: nn.Module) -> dict[str, Tensor]:
        """The parameters under their names."""
        told: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            rule, numbers = self._rule(name)
            for one, part in zip(rule.theirs, rule.split(parameter.detach()), strict=True):
                told[_filled(one, numbers)] = part
        return told

    def _full(self, names: Iterable[str]) -> Mapping[str, str]:
        """Their names as the rules write them, and as the file does."""
        listed = list(names)
        bare = bool(self.base) and not any(name.startswith(self.base) for name in listed)
        return {self.base + name if bare else name: name for name in listed}


class SameNames(Table):
    """Our own folders: every parameter under its own name."""

    def __init__(self) -> None:
        super().__init__([])

    def _rule(self, name: str) -> tuple[Rule, tuple[str, ...]]:
        return Rule(name, (name,)), ()


def _pattern(name: str) -> str:
    return r"(\d+)".join(re.escape(part) for part in name.split("{}"))


def _filled(name: str, numbers: tuple[str, ...]) -> str:
    return name.format(*numbers) if numbers else name


def _set(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Put a tensor in a parameter's place: no copy, and no second model in memory."""
    path, _, last = name.rpartition(".")
    owner = model.get_submodule(path)
    learned = getattr(owner, last).requires_grad
    setattr(owner, last, nn.Parameter(tensor, requires_grad=learned))
