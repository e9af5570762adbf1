"""Rerun a model from an intermediate block.

An edit inside a block does not change the blocks before it, so their outputs of the unedited forward pass are reused:

1. ``record()`` runs the model once and stores the output of every block.
2. ``skip_before(site, batch)`` makes the blocks before an edited attention return their stored outputs, repeated for a
   batch of copies of the text, at no cost. The rest of the model runs as usual.

Blocks are the elements of the model's ``nn.ModuleList``s, as in every Transformer of Jumok and transformers. Forward
hooks cannot prevent a module's computation, and replacing the module would lose attributes that transformers reads from
its blocks. Therefore ``skip_before`` sets ``forward`` on the block instance, where Python finds it before the method of
the class, and deletes it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn

Input = TypeVar("Input")
BlockOutput = Tensor | tuple[Any, ...]  # a tuple may contain weights or a cache besides the hidden states


class Restart:
    """Stores the outputs of a model's blocks, and reruns the model from one of them.

    Attributes:
        model: The model.
        outputs: The output of each block by its name, in execution order; None for a block that ran several times in
            one forward pass (a decoder step by step), which cannot be skipped.
    """

    def __init__(self, model: nn.Module) -> None:
        """Prepare a model.

        Args:
            model: A model of Jumok or transformers.
        """
        self.model = model
        self.outputs: dict[str, BlockOutput | None] = {}

    @contextmanager
    def record(self) -> Iterator[None]:
        """Store the outputs of all blocks that run while the context is open; run one text inside."""
        with ExitStack() as hooks:
            for name, block in find_blocks(self.model).items():
                handle = block.register_forward_hook(self._create_recording_hook(name))
                hooks.callback(handle.remove)
            yield

    def _create_recording_hook(self, name: str) -> Callable[[nn.Module, tuple[Any, ...], BlockOutput], None]:
        def store_output(module: nn.Module, inputs: tuple[Any, ...], output: BlockOutput) -> None:
            self.outputs[name] = output if name not in self.outputs else None

        return store_output

    @contextmanager
    def skip_before(self, site: str, batch: int) -> Iterator[None]:
        """Skip every block before the one that contains a site, while the context is open.

        Args:
            site: The name of the edited attention.
            batch: The number of copies of the text in the batch.
        """
        skipped = self._find_blocks_before(site)
        try:
            for block, output in skipped:
                block.forward = _create_constant_forward(repeat_output(output, batch))
            yield
        finally:
            for block, _ in skipped:
                vars(block).pop("forward", None)

    def _find_blocks_before(self, site: str) -> list[tuple[nn.Module, BlockOutput]]:
        """Return the blocks that ran before the one that contains a site, with their outputs."""
        names = list(self.outputs)
        containing = [name for name in names if site == name or site.startswith(f"{name}.")]
        if not containing:
            return []
        first_rerun = names.index(max(containing, key=len))
        return [
            (self.model.get_submodule(name), output)
            for name in names[:first_rerun]
            if (output := self.outputs[name]) is not None
        ]


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


def repeat_output(output: BlockOutput, batch: int) -> BlockOutput:
    """Repeat the output of a block, recorded for one text, for a batch of copies of this text.

    Args:
        output: A tensor ``[part, ...]`` or a tuple of tensors. An image fills several parts with its windows; the parts
            of one copy stay adjacent.
        batch: The number of copies.
    """
    if isinstance(output, tuple):
        return tuple(repeat_output(part, batch) if isinstance(part, Tensor | tuple) else part for part in output)
    return output[None].expand(batch, *output.shape).flatten(0, 1)


def repeat_input(model_input: Input, batch: int) -> Input | Tensor:
    """Repeat a model input of one text for a batch of copies; other inputs are returned unchanged.

    Args:
        model_input: A tensor ``[1, ...]``, or any other argument of ``forward``.
        batch: The number of copies.
    """
    if isinstance(model_input, Tensor) and model_input.dim() and model_input.shape[0] == 1:
        return model_input.expand(batch, *model_input.shape[1:])
    return model_input


def _create_constant_forward(output: BlockOutput) -> Callable[..., BlockOutput]:
    """Create a ``forward`` that ignores its arguments and returns a stored output."""

    def forward(*_: Any, **__: Any) -> BlockOutput:
        return output

    return forward
