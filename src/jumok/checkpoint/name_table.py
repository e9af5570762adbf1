"""Translate between the parameter names of a model and the tensor names in a file, with one table for both directions.

A table is a list of rules. A rule says which tensors of the file make up a parameter of the model; ``{}`` stands for a
number (the layer). Several tensors are concatenated along the first axis; a rule can also transpose them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from jumok.errors import CheckpointError
from jumok.models import Config, Model


def build_on_meta(family: type[Model], config: Config, dtype: torch.dtype, origin: str) -> Model:
    """Build a model on the meta device, so that only the parameters that are read from a file take memory.

    Args:
        origin: The file that contains the config, for error messages.

    Raises:
        CheckpointError: If a size in the config is too large for any tensor.
    """
    try:
        with torch.device("meta"):
            model = family(config)
    except (RuntimeError, OverflowError, MemoryError) as error:
        raise CheckpointError(f"{origin} describes an impossible model: {str(error)[:200]}") from None
    return model.to(dtype)


@dataclass(frozen=True)
class Rule:
    """How one parameter is stored.

    Args:
        parameter: The name in the model; ``{}`` stands for a layer number.
        tensors: The names in the file, concatenated along the first axis.
        sizes: The number of rows of each tensor, needed to split the parameter when saving.
        transposed: True if the file stores [in, out] instead of [out, in].
    """

    parameter: str
    tensors: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    transposed: bool = False

    def build_parameter(self, tensors: Sequence[Tensor]) -> Tensor:
        """Build the parameter.

        Args:
            tensors: The tensors of the file, in the order of ``self.tensors``.
        """
        turned = [tensor.T if self.transposed else tensor for tensor in tensors]
        return turned[0] if len(turned) == 1 else torch.cat(turned)

    def split_parameter(self, parameter: Tensor) -> list[Tensor]:
        """Split the parameter into the tensors of the file."""
        parts = [parameter] if len(self.tensors) == 1 else list(parameter.split(self.sizes))
        return [(part.T if self.transposed else part).contiguous() for part in parts]


def rename_layer(parameter: str, tensor: str) -> list[Rule]:
    """Return rules for the weight and bias of a layer that has a different name in the file.

    Args:
        parameter: The layer's name in the model, without ".weight".
    """
    return [Rule(f"{parameter}.{end}", (f"{tensor}.{end}",)) for end in ("weight", "bias")]


def concatenate_layers(parameter: str, tensors: Iterable[str], sizes: Sequence[int]) -> list[Rule]:
    """Return rules for several linear layers of the file that are one layer in the model.

    Args:
        parameter: The layer's name in the model, without ".weight".
    """
    names = tuple(tensors)
    return [
        Rule(f"{parameter}.{end}", tuple(f"{name}.{end}" for name in names), tuple(sizes)) for end in ("weight", "bias")
    ]


class NameTable:
    """The rules of an architecture.

    Args:
        rules: One rule for each parameter name.
        ignored: Names in the file that the model does not need.
        base: The prefix that is missing from every name in files saved without a head.
    """

    def __init__(self, rules: Iterable[Rule], ignored: Iterable[str] = (), base: str = "") -> None:
        self.rules = [(re.compile(_build_pattern(rule.parameter)), rule) for rule in rules]
        self.ignored = [re.compile(_build_pattern(name)) for name in ignored]
        self.base = base

    def load_parameters(
        self, model: nn.Module, names: Iterable[str], read: Callable[[str], Tensor], origin: str
    ) -> None:
        """Load the parameters one at a time, so that no second copy of the model is in memory.

        Args:
            model: The model; its parameters may be on the meta device.
            read: Returns a tensor of the file by its name.
            origin: The file's name, for error messages.

        Raises:
            CheckpointError: If a tensor is missing, has the wrong shape, or matches no parameter.
        """
        stored = self._find_stored_names(names)
        used: set[str] = set()
        for name, parameter in list(model.named_parameters()):
            rule, numbers = self._find_rule(name)
            tensors = [_insert_numbers(tensor, numbers) for tensor in rule.tensors]
            missing = [tensor for tensor in tensors if tensor not in stored]
            if missing:
                raise CheckpointError(f"{origin} has no tensor {missing[0]!r}, which parameter {name!r} needs")

            parts = [_read_floating_point(stored[tensor], read, origin) for tensor in tensors]
            try:
                loaded = rule.build_parameter(parts)
            except RuntimeError:  # their shapes do not fit together
                shapes = ", ".join(f"{tensor} {list(part.shape)}" for tensor, part in zip(tensors, parts, strict=True))
                raise CheckpointError(
                    f"{origin}: {shapes} cannot be joined to {name!r}, which by its config has shape "
                    f"{list(parameter.shape)}"
                ) from None
            if loaded.shape != parameter.shape:
                raise CheckpointError(
                    f"{origin}: {', '.join(tensors)} give {list(loaded.shape)}, but by its config {name!r} has shape "
                    f"{list(parameter.shape)}"
                )
            _set_parameter(model, name, loaded.to(parameter.dtype).contiguous())
            used.update(tensors)

        unused = [name for name in stored if name not in used and not self._is_ignored(name)]
        if unused:
            more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
            raise CheckpointError(
                f"{origin} holds tensors that match no parameter of this model: "
                f"{', '.join(name[:80] for name in sorted(unused)[:3])}{more}"
            )

    def collect_tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the model's parameters as the file stores them."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            rule, numbers = self._find_rule(name)
            for tensor, part in zip(rule.tensors, rule.split_parameter(parameter.detach()), strict=True):
                tensors[_insert_numbers(tensor, numbers)] = part
        return tensors

    def _find_rule(self, name: str) -> tuple[Rule, tuple[str, ...]]:
        """Return the rule of a parameter, and the numbers in its name."""
        for pattern, rule in self.rules:
            match = pattern.fullmatch(name)
            if match:
                return rule, match.groups()
        raise CheckpointError(f"the name table has no rule for the parameter {name!r}")

    def _is_ignored(self, name: str) -> bool:
        return any(pattern.fullmatch(name) for pattern in self.ignored)

    def _find_stored_names(self, stored_names: Iterable[str]) -> Mapping[str, str]:
        """Return the stored name of each tensor by the name that the rules use."""
        listed = list(stored_names)
        without_base = bool(self.base) and not any(name.startswith(self.base) for name in listed)
        return {self.base + name if without_base else name: name for name in listed}


class IdentityTable(NameTable):
    """A name table that stores every parameter under its name in the model, as jumok folders do."""

    def __init__(self) -> None:
        super().__init__([])

    def _find_rule(self, name: str) -> tuple[Rule, tuple[str, ...]]:
        return Rule(name, (name,)), ()


def _read_floating_point(name: str, read: Callable[[str], Tensor], origin: str) -> Tensor:
    """Return a tensor of the file; integers and booleans are quantised weights or masks, not parameters."""
    tensor = read(name)
    if not tensor.is_floating_point():
        kind = str(tensor.dtype).removeprefix("torch.")
        raise CheckpointError(
            f"{origin}: {name[:80]!r} holds {kind} numbers, but parameters are floating-point numbers; the file is "
            "quantised in a way that is not supported, or damaged"
        )
    return tensor


def _build_pattern(name: str) -> str:
    return r"(\d+)".join(re.escape(part) for part in name.split("{}"))


def _insert_numbers(name: str, numbers: tuple[str, ...]) -> str:
    return name.format(*numbers) if numbers else name


def _set_parameter(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Replace a parameter without copying it, so that no second copy of the model is in memory."""
    path, _, attribute = name.rpartition(".")
    learned = model.get_parameter(name).requires_grad
    setattr(model.get_submodule(path), attribute, nn.Parameter(tensor, requires_grad=learned))
