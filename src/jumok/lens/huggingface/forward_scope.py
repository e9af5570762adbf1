"""Follow the forward passes of a transformers model: when one begins and ends, and which module is executing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from .recognizer import AttentionRecognizer
from .site_names import SiteNames


class ForwardScope:
    """The forward pass that is executing.

    Generation calls the parts of a model separately, so a forward pass of a part counts too.

    Attributes:
        sites: Names the attention calls; told when a forward pass begins.
        recognizer: Active during forward passes; None recognises nothing.
        module: The name of the innermost module that is executing; known only with a recognizer.
    """

    def __init__(self, sites: SiteNames, recognizer: AttentionRecognizer | None = None) -> None:
        """Create a scope.

        Args:
            sites: Names the attention calls.
            recognizer: Finds attentions outside the registry, or None.
        """
        self.sites, self.recognizer = sites, recognizer
        self._executing: list[str] = []
        self._depth = 0
        self._active: ExitStack | None = None

    @property
    def module(self) -> str:
        """The name of the innermost module that is executing."""
        return self._executing[-1] if self._executing else ""

    @contextmanager
    def follow(self, model: nn.Module, parts: list[nn.Module]) -> Iterator[None]:
        """Follow the forward passes of a model while the context is open.

        Args:
            model: The model.
            parts: The model and the models inside it.
        """
        with ExitStack() as hooks:
            for part in parts:
                hooks.callback(part.register_forward_pre_hook(self._begin, with_kwargs=True).remove)
                hooks.callback(part.register_forward_hook(self._end, always_call=True).remove)
            if self.recognizer is not None:
                for module in model.modules():
                    hooks.callback(module.register_forward_pre_hook(self._enter_module).remove)
                    hooks.callback(module.register_forward_hook(self._leave_module, always_call=True).remove)
            hooks.callback(self._leave_forward)  # torch calls no hooks after a KeyboardInterrupt
            yield

    def _begin(self, module: nn.Module, inputs: tuple[Any, ...], settings: dict[str, Any]) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._executing.clear()
        self.sites.begin_forward(_count_cached_positions(settings.get("past_key_values")))
        if self.recognizer is not None:
            tensors = [
                argument
                for argument in (*inputs, *settings.values())
                if isinstance(argument, Tensor) and argument.dim()
            ]
            self.recognizer.batch = tensors[0].shape[0] if tensors else 1
            self._active = ExitStack()
            self._active.enter_context(self.recognizer)

    def _end(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._leave_forward()

    def _leave_forward(self) -> None:
        self._depth = 0
        if self._active is not None:
            self._active.close()
            self._active = None

    def _enter_module(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._executing.append(self.sites.get_name(module))

    def _leave_module(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if self._executing:
            self._executing.pop()


def _count_cached_positions(cache: Any) -> int:
    """Return how many positions a key/value cache of transformers holds."""
    length = getattr(cache, "get_seq_length", None)
    return int(length()) if callable(length) else 0
