"""Count the operations of a model that must wait for each other: the longest chain in which each needs the one before.

Even with unlimited processors a model cannot be faster than this chain. The time on a CPU need not show it: one thread
computes everything in sequence, and PyTorch computes all steps of an LSTM in a single call.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary


def count_dependent_steps(function: Callable[[], object]) -> int:
    """Return the length of the longest chain of tensor operations in which each reads the output of the one before.

    Views do not count, because they compute nothing. LSTMs are computed step by step meanwhile.

    >>> numbers = torch.ones(3)
    >>> count_dependent_steps(lambda: numbers.exp() + numbers.sin())  # exp and sin do not wait for each other
    2
    """
    with disable_fused_lstm(), torch.no_grad(), _ChainCounter() as counter:
        function()
    return counter.longest


@contextmanager
def disable_fused_lstm() -> Iterator[None]:
    """Let PyTorch compute an LSTM as one operation after the other, instead of all steps in one call of oneDNN."""
    with warnings.catch_warnings():
        # PyTorch warns about a setting for Intel's GPUs that the context manager restores along with the others
        warnings.filterwarnings("ignore", "TF32 acceleration", UserWarning)
        with torch.backends.mkldnn.flags(enabled=False):
            yield


class _ChainCounter(TorchDispatchMode):
    """Records for every tensor the length of the longest chain that leads to it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.longest = 0
        self._chains: Any = WeakIdKeyDictionary()  # by tensor; an input has none

    def __torch_dispatch__(
        self, operation: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        chain = max((self._chains.get(tensor, 0) for tensor in _list_tensors((args, kwargs))), default=0)
        output = operation(*args, **kwargs)
        if not operation.is_view:
            chain += 1
        for tensor in _list_tensors(output):
            self._chains[tensor] = chain
        self.longest = max(self.longest, chain)
        return output


def _list_tensors(values: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
