"""Change a model while a run executes, so that other runs and plain calls of the model do not notice.

A run changes a model by replacing the ``forward`` of modules, by hooks, and by the config of a model of transformers.
Such a change acts only where a listener of the run is open: not in other threads, nor in callbacks of the run. Runs
that change models take turns, so that each finds and restores what it replaced.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from jumok.tap import Listener, is_listening

#: held by a run while it changes a model; a run in a callback of another run belongs to the same thread
change_lock = threading.RLock()

_mode_lock = threading.Lock()
_evaluated: Counter[nn.Module] = Counter()  # modules in training mode, with the number of runs that interrupt it


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Keep a model in evaluation mode while the context is open; the last of several contexts restores its modes."""
    with _mode_lock:
        interrupted = [module for module in model.modules() if module.training or module in _evaluated]
        _evaluated.update(interrupted)
        for module in interrupted:
            module.training = False
    try:
        yield
    finally:
        with _mode_lock:
            _evaluated.subtract(interrupted)
            for module in interrupted:
                if not _evaluated[module]:
                    del _evaluated[module]
                    module.training = True


@contextmanager
def replace_forward(module: nn.Module, forward: Callable[..., Any], scope: Listener) -> Iterator[None]:
    """Replace the forward pass of one module while the context is open; hold ``change_lock``.

    Forward hooks cannot prevent a module's computation, and another module would lack attributes that transformers
    reads. Therefore ``forward`` is set on the instance, where Python finds it before the method of the class.
    """
    previous, replaced = module.forward, vars(module).get("forward")

    def choose_forward(*inputs: Any, **settings: Any) -> Any:
        return (forward if is_listening(scope) else previous)(*inputs, **settings)

    module.forward = choose_forward
    try:
        yield
    finally:
        if replaced is None:
            del module.forward
        else:
            module.forward = replaced
