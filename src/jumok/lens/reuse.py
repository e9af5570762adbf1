"""Reuse a capture: the blocks before the first edit are not computed again.

``Lens.run(..., reusable=True)`` stores the outputs of all blocks. A run of the same inputs with edits restarts at the
first edited block; the attentions and activations before it are those of the stored run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from jumok.errors import ArgumentError, describe_type
from jumok.tap import may_change_values

from .capture.model_capture import Capture
from .capture.recorder import Recorder
from .huggingface.site_names import remove_call_suffix
from .restart import Restart
from .text_inputs import ModelArguments

#: arguments with a fixed content, which can be compared
PLAIN_TYPES = (str, int, float, bool, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class ReusableRun:
    """What a later run of the same inputs needs besides the capture.

    Attributes:
        arguments: Copies of the arguments of ``forward``.
        versions: The versions of the model's parameters and buffers, and its hooks.
        keep: The further tensors that the capture recorded.
    """

    restart: Restart
    arguments: ModelArguments
    versions: tuple[tuple[int, int], ...]
    keep: frozenset[str]

    @staticmethod
    def prepare(model: nn.Module, arguments: ModelArguments, keep: Iterable[str]) -> ReusableRun:
        """Prepare to store a run; ``restart.record()`` stores its blocks.

        Args:
            arguments: The arguments of ``forward``.
            keep: The further tensors that the capture records.
        """
        if may_change_values():
            raise ArgumentError(
                "a listener is open that may change what the blocks compute, so this run cannot be reusable; close it"
            )
        copied = ModelArguments(_copy_argument(arguments.inputs), _copy_argument(arguments.settings))
        return ReusableRun(Restart(model), copied, read_versions(model), frozenset(keep))

    def list_skipped_blocks(self, taps: Iterable[str]) -> list[str]:
        """Return the blocks that are not computed again if the values at some taps are edited."""
        if may_change_values():  # an open listener may edit any block
            return []
        return self.restart.list_blocks_before(remove_call_suffix(tap.rpartition(".")[0]) for tap in taps)


def get_reusable_run(
    capture: object, model: nn.Module, arguments: ModelArguments, keep: Iterable[str], ignored: str | None
) -> ReusableRun:
    """Return the stored run of a capture, or raise an ArgumentError that says why it cannot be reused.

    Args:
        arguments: The arguments of ``forward`` of the new run.
        keep: The further tensors that the new run records.
        ignored: The argument that limits the logits; no block reads it.
    """
    if not isinstance(capture, Capture):
        raise ArgumentError(f"reuse must be a capture: lens.run(..., reusable=True), not {describe_type(capture)}")
    stored = capture.reusable
    if stored is None:
        raise ArgumentError(
            "the capture to reuse has no outputs of blocks; create it with lens.run(..., reusable=True)"
        )
    if stored.restart.model is not model:
        raise ArgumentError("the capture to reuse is of another model; create it with a lens on this model")
    if stored.versions != read_versions(model):
        raise ArgumentError(
            "the parameters or hooks of the model have changed since the capture to reuse; create it again with "
            "reusable=True"
        )
    _check_same_arguments(stored.arguments, arguments, ignored)
    missing = sorted(set(keep) - stored.keep)
    if missing:
        raise ArgumentError(
            f"the capture to reuse did not keep {', '.join(missing)}; create it with "
            f"keep={tuple(sorted(stored.keep | set(missing)))!r} too"
        )
    return stored


def merge_reused(capture: Capture, recorder: Recorder) -> None:
    """Add the attentions and activations of a capture that were not computed again, in execution order."""
    activations = {
        site: tensor for site, tensor in capture.activations.items() if site.rpartition(".")[2] in recorder.keep
    }
    recorder.attentions = {**capture.attentions, **recorder.attentions}
    recorder.activations = {**activations, **recorder.activations}


def read_versions(model: nn.Module) -> tuple[tuple[int, int], ...]:
    """Return the identity and the version of each parameter and buffer, and the number of each hook.

    torch counts in-place changes as versions. The lens registers hooks of its own, which read.
    """
    tensors = [*model.parameters(), *model.buffers()]
    versions = [(id(tensor), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]
    for index, module in enumerate(model.modules()):
        for number, hook in (*module._forward_pre_hooks.items(), *module._forward_hooks.items()):
            if not getattr(hook, "__module__", "").startswith("jumok."):
                versions.append((index, number))
    return tuple(versions)


def _check_same_arguments(stored: ModelArguments, arguments: ModelArguments, ignored: str | None) -> None:
    """Raise an ArgumentError if the arguments of two runs differ."""
    if not _are_equal(stored.inputs, arguments.inputs):
        raise ArgumentError("the capture to reuse is of other inputs; run these inputs with reusable=True first")
    for name in dict.fromkeys([*stored.settings, *arguments.settings]):
        is_same = name in stored.settings and name in arguments.settings
        if name != ignored and not (is_same and _are_equal(stored.settings[name], arguments.settings[name])):
            raise ArgumentError(
                f"the capture to reuse was made with another {name}; run these inputs with reusable=True first"
            )


def _are_equal(first: Any, second: Any) -> bool:
    """Compare two arguments by their contents; tensors must also have the same dtype and device."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        same_kind = first.dtype == second.dtype and first.device == second.device and first.shape == second.shape
        return same_kind and bool(((first == second) | ((first != first) & (second != second))).all())
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_are_equal(part, second[name]) for name, part in first.items())
    if type(first) is not type(second):
        return False
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_are_equal, first, second))
    return bool(first == second)


def _copy_argument(argument: Any) -> Any:
    """Copy the tensors of an argument, which their owner may change, or raise an ArgumentError for another object."""
    if isinstance(argument, Tensor):
        return argument.detach().clone()
    if isinstance(argument, Mapping):
        return {name: _copy_argument(part) for name, part in argument.items()}
    if type(argument) in (list, tuple):
        return type(argument)([_copy_argument(part) for part in argument])
    if not isinstance(argument, PLAIN_TYPES):
        raise ArgumentError(
            f"a reusable run needs inputs that can be compared: tensors, numbers and texts, not "
            f"{describe_type(argument)}"
        )
    return argument
