"""Rerun a model from an intermediate block, so that the blocks before the first edit are not computed again.

An edit inside a block does not change the blocks before it, so their outputs of the unedited forward pass are reused:

1. ``Restart.record()`` stores the output of every block while the model runs once.
2. ``Restart.skip(blocks, batch)`` makes blocks return their stored outputs, repeated for a batch of copies of the text,
   at no cost; ``list_blocks_before`` says which. The rest of the model runs as usual.

Blocks are the elements of the model's ``nn.ModuleList``s, as in every Transformer of Jumok and transformers. Both
replace ``forward`` of the blocks. The hooks of a block itself run in both passes, each time on the output of
``forward``. ``lens.run(..., reusable=True)`` keeps a ``Restart`` in its capture, as a ``ReusableRun``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from jumok.errors import ArgumentError, describe_type
from jumok.tap import Listener, listen, may_change_values

from .capture.model_capture import Capture
from .capture.recorder import Recorder
from .lens_inputs import ModelArguments
from .running.model_state import change_lock, replace_forward

if TYPE_CHECKING:
    from .lens import Lens

#: arguments with a fixed content, which can be compared
PLAIN_TYPES = (str, int, float, bool, type(None), torch.dtype, torch.device)

Input = TypeVar("Input")
BlockOutput = Tensor | tuple[Any, ...]  # a tuple may contain weights or a bias besides the hidden states


class Restart(Listener):
    """Stores the outputs of a model's blocks, and reruns the model from one of them."""

    only_reads = True

    def __init__(self, model: nn.Module, every: int = 1) -> None:
        """``every``: 1 stores the output of each block; n that of every n-th block, and of the last one of a list."""
        self.model = model
        self.every = every
        self.omitted: set[str] = set()  # the blocks between those that are stored
        # by the name of the block, in execution order; None for one that cannot be skipped: it ran several times in one
        # forward pass (a decoder step by step), or its output is not a tensor or a tuple
        self.outputs: dict[str, BlockOutput | None] = {}

    @property
    def bytes(self) -> int:
        """The memory of the stored outputs, in bytes."""
        return sum(part.nbytes for part in tree_leaves(list(self.outputs.values())) if isinstance(part, Tensor))

    @contextmanager
    def record(self) -> Iterator[None]:
        """Store the outputs of all blocks that run while the context is open; run one text inside."""
        blocks = find_blocks(self.model)
        with self._replace_forwards(
            {block: partial(self._compute_and_store, name, block.forward) for name, block in blocks.items()}
        ):
            yield

    @contextmanager
    def _replace_forwards(self, forwards: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(change_lock)
            stack.enter_context(listen(self))
            for block, forward in forwards.items():
                stack.enter_context(replace_forward(block, forward, self))
            yield

    def _compute_and_store(self, name: str, compute: Callable[..., Any], /, *arguments: Any, **settings: Any) -> Any:
        output = compute(*arguments, **settings)
        if self._is_omitted(name):
            self.omitted.add(name)
            self.outputs[name] = None
        else:
            self.outputs[name] = copy_output(output) if name not in self.outputs else None
        return output

    def _is_omitted(self, name: str) -> bool:
        blocks, _, index = name.rpartition(".")
        number = int(index) + 1
        return number % self.every > 0 and number < len(self.model.get_submodule(blocks))  # type: ignore[arg-type]

    @contextmanager
    def skip(self, names: Sequence[str], batch: int = 1) -> Iterator[None]:
        """Make blocks of ``list_blocks_before`` return their stored outputs while the context is open."""

        def create_constant_forward(output: BlockOutput | None) -> Callable[..., BlockOutput]:
            assert output is not None
            return lambda *_, **__: repeat_output(output, batch)

        outputs: dict[str, BlockOutput | None] = {}
        following = None
        for name in reversed(names):  # of an omitted block the output is not read: the next stored one replaces it
            following = outputs[name] = following if name in self.omitted else self.outputs[name]
        with self._replace_forwards(
            {self.model.get_submodule(name): create_constant_forward(outputs[name]) for name in names}
        ):
            yield

    def accepts(self, site: str) -> bool:
        return False

    def list_blocks_before(self, modules: Iterable[str]) -> list[str]:
        """Return the blocks that can be skipped because they ran before all of the named modules.

        A module outside all blocks may be executed anywhere, so that nothing can be skipped.
        """
        names = list(self.outputs)
        end = len(names)
        for module in modules:
            related = [index for index, name in enumerate(names) if _is_part(module, name) or _is_part(name, module)]
            end = min(end, min(related, default=0))
        while end and names[end - 1] in self.omitted:
            end -= 1
        return [name for name in names[:end] if self.outputs[name] is not None or name in self.omitted]


def _is_part(module: str, other: str) -> bool:
    """Return whether a module is another module or inside it, by their names."""
    return module == other or module.startswith(f"{other}.")


def find_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return the blocks of a model by name: the elements of module lists that are not themselves parts of a block."""
    lists = {name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)}
    blocks = {
        name: module
        for name, module in model.named_modules()
        if name.rpartition(".")[0] in lists and not any(isinstance(part, nn.ModuleList) for part in module.modules())
    }
    # a list inside a block (heads, experts) belongs to its block
    return {
        name: module for name, module in blocks.items() if not any(name.startswith(f"{other}.") for other in blocks)
    }


def copy_output(output: object) -> BlockOutput | None:
    """Copy the output of a block, because the model may go on to change it in place; None if it is of another type."""
    is_plain = output is not None and _is_plain(output)
    return tree_map_only(Tensor, torch.clone, output) if is_plain else None


def _is_plain(output: object) -> bool:
    """Return whether an output consists of tensors and numbers; other objects, such as a cache, may change later."""
    if type(output) is tuple:
        return all(map(_is_plain, output))
    return output is None or isinstance(output, Tensor | int | float)


def repeat_output(output: BlockOutput, batch: int) -> BlockOutput:
    """Repeat the output of a block, recorded for one text, for a batch of copies; the model may change it in place.

    An image fills several parts of the first axis with its windows; the parts of one copy stay adjacent. Where a second
    axis of size 1 follows several parts, it is the batch: Gemma 3n has several streams, and XLNet puts positions first.
    """

    def repeat(tensor: Tensor) -> Tensor:
        has_parts = tensor.dim() > 2 and tensor.shape[0] > 1 and tensor.shape[1] == 1
        return torch.cat([tensor] * batch, 1 if has_parts else 0)

    return tree_map_only(Tensor, repeat, output)


def repeat_input(model_input: Input, batch: int) -> Input | Tensor:
    """Repeat a model input of one text, ``[1, ...]``, for a batch of copies; other inputs are returned unchanged."""
    if isinstance(model_input, Tensor) and model_input.dim() and model_input.shape[0] == 1:
        return torch.cat([model_input] * batch)
    return model_input


@dataclass(frozen=True)
class ReusableRun:
    """What a later run of the same inputs needs besides the capture."""

    restart: Restart
    arguments: ModelArguments  # copies
    versions: tuple[tuple[int, int], ...]  # of the model's parameters and buffers, and its hooks
    keep: frozenset[str]  # the further tensors that the capture recorded


def prepare_reuse(
    lens: Lens,
    arguments: ModelArguments,
    keep: tuple[str, ...],
    *,
    reusable: int,
    reuse: object,
    has_edits: bool,
    gradients: bool,
) -> ReusableRun | None:
    """Return what stores the blocks of a reusable run, or the stored blocks of the run to reuse; else None."""
    if not reusable and reuse is None:
        return None
    if reusable and (has_edits or reuse is not None):
        raise ArgumentError("a reusable run has no edits and reuses nothing; make it first, with reusable=True")
    if gradients:
        raise ArgumentError("gradients need the complete forward pass; omit reuse and reusable")
    if arguments.settings.get("use_cache"):
        raise ArgumentError("a reusable run builds no key/value cache; omit use_cache")
    if reusable:
        if may_change_values():
            raise ArgumentError(
                "a listener is open that may change what the blocks compute, so this run cannot be reusable; close it"
            )
        copied = ModelArguments(_copy_argument(arguments.inputs), _copy_argument(arguments.settings))
        return ReusableRun(Restart(lens.model, int(reusable)), copied, read_versions(lens.model), frozenset(keep))
    if not isinstance(reuse, Capture):
        raise ArgumentError(f"reuse must be a capture: lens.run(..., reusable=True), not {describe_type(reuse)}")
    stored = reuse.reusable
    if stored is None:
        raise ArgumentError(
            "the capture to reuse has no outputs of blocks; create it with lens.run(..., reusable=True)"
        )
    if stored.restart.model is not lens.model:
        raise ArgumentError("the capture to reuse is of another model; create it with a lens on this model")
    if stored.versions != read_versions(lens.model):
        raise ArgumentError(
            "the parameters or hooks of the model have changed since the capture to reuse; create it again with "
            "reusable=True"
        )
    _check_same_arguments(stored.arguments, arguments, lens.facts.last_logits_argument)
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
