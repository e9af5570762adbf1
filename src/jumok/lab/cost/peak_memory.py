"""Measure the memory of a calculation: the largest number of bytes that its new tensors take at one time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _StorageCounter(TorchDispatchMode):
    """Adds the size of each new storage, and subtracts it when the storage is freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages: set[int] = set()  # storages that exist
        self.bytes = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in _list_tensors((args, kwargs)):
            self._add(tensor, 0)  # existed before
        output = func(*args, **(kwargs or {}))
        for tensor in _list_tensors(output):
            self._add(tensor, tensor.untyped_storage().nbytes())
        return output

    def _add(self, tensor: Tensor, size: int) -> None:
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self.storages:
            return
        self.storages.add(address)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._remove, address, size)

    def _remove(self, address: int, size: int) -> None:
        self.storages.discard(address)
        self.bytes -= size


def measure_peak_memory(calculate: Callable[[], object]) -> int:
    """Return the largest number of bytes that tensors created by a function take at one time.

    Inputs and parameters that existed before are not counted, nor are the small buffers inside a kernel.

    Args:
        calculate: The function; it runs once, without gradients.
    """
    counter = _StorageCounter()
    with torch.no_grad(), counter:
        calculate()
    return counter.peak


def _list_tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
