"""Find the largest memory that the tensors of a computation take at one time, also on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(TorchDispatchMode):
    """A context that adds up the memory of all tensors created inside it, as long as they are in use.

    Attributes:
        peak: The largest sum so far, in bytes.

    >>> with PeakMemory() as memory:
    ...     numbers = torch.zeros(10, device="meta")
    ...     numbers = numbers + 1
    ...     numbers = numbers.sum()
    >>> memory.peak  # two tensors of ten float32 numbers
    80
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._sizes: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation and count its new tensors; PyTorch calls this.

        Args:
            types: The tensor classes of the arguments.
        """
        inputs = {
            leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        }
        outputs = func(*args, **(kwargs or {}))
        self._sizes = {key: entry for key, entry in self._sizes.items() if not entry[0].expired()}
        for leaf in tree_leaves(outputs):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                if storage._cdata not in inputs:  # a view of an input is no new memory
                    self._sizes.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.peak = max(self.peak, sum(size for _, size in self._sizes.values()))
        return outputs


def measure_peak_memory(calculate: Callable[[], object]) -> int:
    """Return the largest number of bytes that tensors created by a function take at one time.

    Inputs and parameters that existed before are not counted, nor are the small buffers inside a kernel.

    Args:
        calculate: The function; it runs once, without gradients.
    """
    with torch.no_grad(), PeakMemory() as memory:
        calculate()
    return memory.peak
