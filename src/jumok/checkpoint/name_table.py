"""Translate between the parameter names of a model and the tensor names in a file, with one table for both directions.

A table says which tensors of the file make up a layer or a parameter of the model; ``{}`` stands for a number (the
layer). Several tensors are concatenated along the first axis; a rule can also transpose them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from jumok.errors import CheckpointError
from jumok.models import Config, Model


def check_depth(fields: Mapping[str, object], tensor_count: int, origin: str, layers_per_tensor: int = 1) -> None:
    """Refuse a config, of ours or of transformers, with more layers than there are tensors: building a million layers
    takes hours, even without memory."""
    for name, field in fields.items():
        if isinstance(field, Mapping):
            check_depth(field, tensor_count, origin, layers_per_tensor)
        numbers = field if isinstance(field, list | tuple) else [field]
        count = sum(number for number in numbers if isinstance(number, int) and not isinstance(number, bool))
        if name.endswith(("layers", "layer", "depths")) and count > max(tensor_count, 1) * layers_per_tensor:
            raise CheckpointError(f"config.json has {name} = {count:,}, but {origin} holds {tensor_count} tensors")


def build_on_meta(family: type[Model], config: Config, dtype: torch.dtype, origin: str) -> Model:
    """Build a model on the meta device, so that only the parameters that are read from a file take memory."""
    try:
        with torch.device("meta"):
            model = family(config)
    except (RuntimeError, OverflowError, MemoryError) as error:
        raise CheckpointError(f"{origin} describes an impossible model: {str(error)[:200]}") from None
    return model.to(dtype)


@dataclass(frozen=True)
class Rule:
    """How a layer or a parameter is stored."""

    tensors: Sequence[str]  # the names in the file, concatenated along the first axis
    sizes: Sequence[int] = ()  # the number of rows of each tensor, needed to split the parameter when saving
    transposed: bool = False  # the file stores [in, out] instead of [out, in]
    added: float = 0.0  # to what the file stores

    def build_parameter(self, tensors: Sequence[Tensor]) -> Tensor:
        """Build the parameter from the tensors of the file."""
        turned = [self._turn(tensor) + self.added if self.added else self._turn(tensor) for tensor in tensors]
        return turned[0] if len(turned) == 1 else torch.cat(turned)

    def split_parameter(self, parameter: Tensor) -> list[Tensor]:
        """Split the parameter into the tensors of the file."""
        parts = [parameter] if len(self.tensors) == 1 else list(parameter.split(list(self.sizes)))
        return [self._turn(part - self.added if self.added else part).contiguous() for part in parts]

    def _turn(self, tensor: Tensor) -> Tensor:
        return tensor.T if self.transposed and tensor.dim() == 2 else tensor


Rules = Mapping[str, str | Rule]


class NameTable:
    """The rules of an architecture.

    Args:
        rules: For a parameter of the model, or a layer (its weight and its bias), the tensor or layer of the file.
        ignored: Tensors and layers of the file that the model does not need.
        base: The prefix that is missing from every name in files saved without a head.
        copies: Tensors that may repeat another one, with the name of that tensor. If the two differ the file is
            refused, because transformers would use the copy.
        substitutes: For a tensor that the file may lack, the name to read instead.
    """

    def __init__(
        self,
        rules: Rules,
        ignored: Iterable[str] = (),
        base: str = "",
        *,
        copies: Mapping[str, str] | None = None,
        substitutes: Mapping[str, str] | None = None,
    ) -> None:
        self.rules = [
            (_compile(name), Rule((rule,)) if isinstance(rule, str) else rule) for name, rule in rules.items()
        ]
        self.copies = copies or {}
        self.substitutes = substitutes or {}
        self.ignored = [_compile(name) for name in (*ignored, *self.copies)]
        self.base = base

    def load_parameters(
        self, model: nn.Module, names: Iterable[str], read: Callable[[str], Tensor], origin: str
    ) -> None:
        """Load the parameters one at a time, so that no second copy of the model is in memory."""
        stored = self._find_stored_names(names)
        for copy, original in self.copies.items():
            if copy in stored and original in stored and not torch.equal(read(stored[copy]), read(stored[original])):
                raise CheckpointError(
                    f"{origin}: config.json ties {copy!r} to {original!r}, but the two tensors differ"
                )
        substituted = {
            name: stored[original]
            for name, original in self.substitutes.items()
            if name not in stored and original in stored
        }

        def read_floating_point(tensor: str) -> Tensor:
            # a clone: two parameters may not share memory
            loaded = read(substituted[tensor]).clone() if tensor in substituted else read(stored[tensor])
            if loaded.is_floating_point():
                return loaded
            kind = str(loaded.dtype).removeprefix("torch.")
            raise CheckpointError(
                f"{origin}: {tensor[:80]!r} holds {kind} numbers, but parameters are floating-point numbers; the file "
                "is quantized in a way that is not supported, or damaged"
            )

        used: set[str] = set()
        for name, parameter in list(model.named_parameters()):
            rule, tensors = self._find_rule(name)
            missing = [tensor for tensor in tensors if tensor not in stored and tensor not in substituted]
            if missing:
                raise CheckpointError(f"{origin} has no tensor {missing[0]!r}, which parameter {name!r} needs")

            parts = [read_floating_point(tensor) for tensor in tensors]
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

        unused = [name for name in stored if not any(pattern.fullmatch(name) for pattern in self.ignored)]
        unused = [name for name in unused if name not in used]
        if unused:
            more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
            raise CheckpointError(
                f"{origin} holds tensors that match no parameter of this model: "
                f"{', '.join(name[:80] for name in sorted(unused)[:3])}{more}"
            )

    def collect_tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the model's parameters as the file stores them."""
        collected: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            rule, tensors = self._find_rule(name)
            collected |= zip(tensors, rule.split_parameter(parameter.detach()), strict=True)
        return collected

    def _find_rule(self, name: str) -> tuple[Rule, list[str]]:
        """Return the rule of a parameter, and the names of its tensors in the file."""
        for pattern, rule in self.rules:
            match = pattern.fullmatch(name)
            if match:
                *numbers, end = match.groups(default="")
                return rule, [tensor.format(*numbers) + end for tensor in rule.tensors]
        raise CheckpointError(f"the name table has no rule for the parameter {name!r}")

    def _find_stored_names(self, stored_names: Iterable[str]) -> Mapping[str, str]:
        """Return the stored name of each tensor by the name that the rules use."""
        listed = list(stored_names)
        without_base = bool(self.base) and not any(name.startswith(self.base) for name in listed)
        return {self.base + name if without_base else name: name for name in listed}


class IdentityTable(NameTable):
    """A name table that stores every parameter under its name in the model, as jumok folders do."""

    def __init__(self) -> None:
        super().__init__({})

    def _find_rule(self, name: str) -> tuple[Rule, list[str]]:
        return Rule((name,)), [name]


def _compile(name: str) -> re.Pattern[str]:
    """Return the pattern of a parameter, or of the weight and the bias of a layer."""
    return re.compile(r"(\d+)".join(re.escape(part) for part in name.split("{}")) + r"(\.weight|\.bias)?")


def _set_parameter(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Replace a parameter without copying it, so that no second copy of the model is in memory."""
    path, _, attribute = name.rpartition(".")
    learned = model.get_parameter(name).requires_grad
    setattr(model.get_submodule(path), attribute, nn.Parameter(tensor, requires_grad=learned))
