"""Rerun a model from an intermediate block.

An edit inside a block does not change the blocks before it, so their outputs of the unedited forward pass are reused:

1. ``record()`` stores the output of every block while the model runs once.
2. ``skip(blocks, batch)`` makes blocks return their stored outputs, repeated for a batch of copies of the text, at no
   cost; ``list_blocks_before`` says which. The rest of the model runs as usual.

Blocks are the elements of the model's ``nn.ModuleList``s, as in every Transformer of Jumok and transformers. Both
replace ``forward`` of the blocks. The hooks of a block itself run in both passes, each time on the output of
``forward``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn

from jumok.tap import Listener, listen

from .model_state import change_lock, replace_forward

Input = TypeVar("Input")
BlockOutput = Tensor | tuple[Any, ...]  # a tuple may contain weights or a bias besides the hidden states


class Restart(Listener):
    """Stores the outputs of a model's blocks, and reruns the model from one of them.

    Attributes:
        outputs: The output of each block by its name, in execution order; None for a block that cannot be skipped: one
            that ran several times in one forward pass (a decoder step by step), or whose output is not a tensor or a
            tuple.
    """

    only_reads = True

    def __init__(self, model: nn.Module) -> None:
        """Prepare a model.

        Args:
            model: A model of Jumok or transformers.
        """
        self.model = model
        self.outputs: dict[str, BlockOutput | None] = {}

    @property
    def bytes(self) -> int:
        """The memory of the stored outputs, in bytes."""
        return sum(count_bytes(output) for output in self.outputs.values())

    @contextmanager
    def record(self) -> Iterator[None]:
        """Store the outputs of all blocks that run while the context is open; run one text inside."""
        blocks = find_blocks(self.model)
        with self._replace_forwards(
            {block: self._create_recording_forward(name, block) for name, block in blocks.items()}
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

    def _create_recording_forward(self, name: str, block: nn.Module) -> Callable[..., Any]:
        compute = block.forward

        def forward(*arguments: Any, **settings: Any) -> Any:
            output = compute(*arguments, **settings)
            self.outputs[name] = copy_output(output) if name not in self.outputs else None
            return output

        return forward

    @contextmanager
    def skip_before(self, site: str, batch: int) -> Iterator[None]:
        """Skip every block before the one that contains a site, while the context is open."""
        with self.skip(self.list_blocks_before([site]), batch):
            yield

    @contextmanager
    def skip(self, names: Sequence[str], batch: int = 1) -> Iterator[None]:
        """Make blocks return their stored outputs while the context is open.

        Args:
            names: The names of the blocks, from ``list_blocks_before``.
        """
        constants = {name: _create_constant_forward(self.outputs[name], batch) for name in names}
        with self._replace_forwards({self.model.get_submodule(name): forward for name, forward in constants.items()}):
            yield

    def accepts(self, site: str) -> bool:
        return False

    def list_blocks_before(self, modules: Iterable[str]) -> list[str]:
        """Return the blocks that can be skipped because they ran before all of the named modules.

        Args:
            modules: Names of modules: attentions, MLPs or blocks, or parts of them. A name outside all blocks may be
                executed anywhere, so that nothing can be skipped.
        """
        names = list(self.outputs)
        end = len(names)
        for module in modules:
            related = [index for index, name in enumerate(names) if _is_part(module, name) or _is_part(name, module)]
            end = min(end, min(related, default=0))
        return [name for name in names[:end] if self.outputs[name] is not None]


def _is_part(module: str, other: str) -> bool:
    """Return whether a module is another module or inside it, by their names."""
    return module == other or module.startswith(f"{other}.")


def find_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return the blocks of a model by name: the elements of module lists that are not themselves parts of a block.

    Args:
        model: A model of Jumok or transformers.
    """
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


def copy_output(output: Any) -> BlockOutput | None:
    """Copy the output of a block, because the model may go on to change it in place; None if it is of another type."""
    return _copy_parts(output) if _is_plain(output) and output is not None else None


def _is_plain(output: Any) -> bool:
    """Return whether an output consists of tensors and numbers; other objects, such as a cache, may change later."""
    if type(output) is tuple:
        return all(_is_plain(part) for part in output)
    return output is None or isinstance(output, Tensor | int | float)


def _copy_parts(output: Any) -> Any:
    """Copy all tensors of an output."""
    if isinstance(output, tuple):
        return tuple(_copy_parts(part) for part in output)
    return output.clone() if isinstance(output, Tensor) else output


def count_bytes(output: BlockOutput | None) -> int:
    """Return the memory of a stored output, in bytes.

    Args:
        output: A tensor, a tuple of tensors, or None.
    """
    if isinstance(output, tuple):
        return sum(count_bytes(part) for part in output if isinstance(part, Tensor | tuple))
    return 0 if output is None else output.nbytes


def repeat_output(output: BlockOutput, batch: int) -> BlockOutput:
    """Repeat the output of a block, recorded for one text, for a batch of copies of this text.

    Args:
        output: A tensor ``[part, ...]`` or a tuple of tensors. An image fills several parts with its windows; the parts
            of one copy stay adjacent. Where a second axis of size 1 follows several parts, it is the batch: Gemma 3n
            has several streams, and XLNet puts positions first.
    """
    if isinstance(output, tuple):
        return tuple(repeat_output(part, batch) if isinstance(part, Tensor | tuple) else part for part in output)
    is_batch_second = output.dim() > 2 and output.shape[0] > 1 and output.shape[1] == 1
    return _repeat(output, batch, 1 if is_batch_second else 0)


def repeat_input(model_input: Input, batch: int) -> Input | Tensor:
    """Repeat a model input of one text for a batch of copies; other inputs are returned unchanged.

    Args:
        model_input: A tensor ``[1, ...]``, or any other argument of ``forward``.
    """
    if isinstance(model_input, Tensor) and model_input.dim() and model_input.shape[0] == 1:
        return _repeat(model_input, batch, 0)
    return model_input


def _repeat(tensor: Tensor, batch: int, axis: int) -> Tensor:
    """Return copies of a tensor along one axis; not a view, because the model may change it in place."""
    counts = [1] * tensor.dim()
    counts[axis] = batch
    return tensor.repeat(counts)


def _create_constant_forward(output: BlockOutput | None, batch: int) -> Callable[..., BlockOutput]:
    """Create a ``forward`` that ignores its arguments and returns copies of a stored output."""
    assert output is not None

    def forward(*_: Any, **__: Any) -> BlockOutput:
        return repeat_output(output, batch)

    return forward
