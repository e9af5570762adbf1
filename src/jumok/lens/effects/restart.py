"""Running a model again from the middle. What blocks gave in a clean run is kept; an edit inside a block changes
nothing before it, so those before it give what they gave, at no cost, and many edits are run as one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn


class Restart:
    """``blocks``: the model's blocks (parts of its lists of modules) in the order in which they ran, each with what it
    gave for one text."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.blocks: dict[str, Any] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While open, what the blocks give is kept."""
        with ExitStack() as stack:
            for name, block in _blocks(self.model):
                handle = block.register_forward_hook(self._keeping(name))
                stack.callback(handle.remove)
            yield

    def _keeping(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            # a block that runs twice in one forward (a decoder step by step) cannot be left out
            self.blocks[name] = output if name not in self.blocks else None

        return hook

    def block_of(self, site: str) -> str | None:
        """The block that holds an attention, where it can be restarted from."""
        found = [name for name in self.blocks if site == name or site.startswith(f"{name}.")]
        return max(found, key=len) if found else None

    @contextmanager
    def before(self, site: str, batch: int) -> Iterator[None]:
        """While open, every block that ran before the one of this attention gives what it gave, for each row of a
        batch of copies."""
        last = self.block_of(site)
        names = list(self.blocks)
        skipped = names[: names.index(last)] if last is not None else []
        modules = dict(self.model.named_modules())
        try:
            for name in skipped:
                if self.blocks[name] is not None:
                    kept = _repeated(self.blocks[name], batch)
                    # on the instance: found before the class's own, and gone when deleted
                    modules[name].forward = _giving(kept)
            yield
        finally:
            for name in skipped:
                modules[name].__dict__.pop("forward", None)


def _blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """What stands in lists of modules, but lists of lists: blocks, as every family here and elsewhere has them."""
    parents = {name: module for name, module in model.named_modules() if isinstance(module, nn.ModuleList)}
    found = []
    for name, module in model.named_modules():
        parent = name.rpartition(".")[0]
        if parent in parents and not any(isinstance(one, nn.ModuleList) for one in module.modules()):
            found.append((name, module))
    # parts of blocks (heads in lists, experts) are left to their blocks
    names = {name for name, _ in found}
    return [(name, module) for name, module in found if not any(_inside(name, other) for other in names)]


def _inside(name: str, other: str) -> bool:
    return name.startswith(f"{other}.")


def _giving(kept: Any) -> Callable[..., Any]:
    def forward(*_: Any, **__: Any) -> Any:
        return kept

    return forward


def _repeated(kept: Any, batch: int) -> Any:
    """The same for every row of a batch."""
    if isinstance(kept, Tensor):
        return kept.expand(batch * kept.shape[0], *kept.shape[1:]) if kept.shape[0] == 1 else _tiled(kept, batch)
    if isinstance(kept, tuple):
        return tuple(_repeated(one, batch) for one in kept)
    return kept


def _tiled(kept: Tensor, batch: int) -> Tensor:
    """What one text fills several rows with (windows of a picture), text after text."""
    return kept[None].expand(batch, *kept.shape).flatten(0, 1)


def repeat_for_batch(given: Any, batch: int) -> Any:
    """A model's own inputs, for a batch of copies of one text."""
    if isinstance(given, Tensor) and given.dim() and given.shape[0] == 1:
        return given.expand(batch, *given.shape[1:])
    return given


def disable_cache(model: nn.Module) -> dict[str, Any]:
    """Nobody goes on from these runs: a cache would keep their keys for nothing."""
    return {"use_cache": False} if hasattr(getattr(model, "config", None), "use_cache") else {}
