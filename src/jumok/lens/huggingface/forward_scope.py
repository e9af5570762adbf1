"""Follow the forward passes of a transformers model: when one begins and ends, which module is executing, and how the
attention calls are named, also where one module is called several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from jumok.attention.attend import attend
from jumok.lens.sites import get_call_suffix, remove_call_suffix
from jumok.tap import Listener, is_listening

from .recognizer import AttentionRecognizer, RecognizedAttention


class SiteNames:
    """Names every attention call of a forward pass by its module.

    A module that is executed again, as ALBERT's only layer, is another layer: "layer.attention", "layer.attention#1",
    "layer.attention#2". A further attention in the same execution of a module, as in DiffLlama, belongs to the same
    layer: "layer.attention.call1". Calls whose positions continue those of an earlier call, as in decoding step by
    step, have one name, and their rows are appended.

    >>> names = SiteNames({})
    >>> [names.name_call("layer", range(3)), names.name_call("layer", range(3)), names.name_call("layer", range(3, 4))]
    ['layer', 'layer#1', 'layer']
    >>> names.executions["layer"] += 1  # it is known that the module is executed once
    >>> [names.name_call("layer", range(3)), names.name_call("layer", range(3))]
    ['layer#2', 'layer.call1#2']
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        """Create names from the name of each module by its ``id``."""
        self._names = names
        self._ends: dict[str, dict[str, int]] = {}  # for each module and site, the position behind its last query
        self._rounds: dict[str, list[int]] = {}  # for each module, the execution that began each layer; 0 if unknown
        self._inputs: Counter[str] = Counter()
        self._suffix = ""
        self.executions: Counter[str] = Counter()
        self.cached_length = 0

    def begin_forward(self, cached_length: int = 0) -> None:
        """Start to count the calls of a new forward pass."""
        for counted in (self._ends, self._rounds, self._inputs, self.executions):
            counted.clear()
        self._suffix = ""
        self.cached_length = cached_length

    def knows(self, module: nn.Module) -> bool:
        """Return whether a module is part of the model."""
        return id(module) in self._names

    def get_name(self, module: nn.Module) -> str:
        """Return the name of a module."""
        return self._names[id(module)]

    def name_call(self, name: str, query_positions: range) -> str:
        """Return the site of an attention call, and count the call."""
        ends = self._ends.setdefault(name, {})
        continued = next((site for site, end in ends.items() if end == query_positions.start), None)
        site = continued or self._name_new_call(name, ends)
        ends[site] = query_positions.stop
        self._suffix = get_call_suffix(site)
        return site

    def _name_new_call(self, name: str, sites: Iterable[str]) -> str:
        """Return the name of a call that continues no earlier one."""
        rounds, execution = self._rounds.setdefault(name, []), self.executions[name]
        if not execution or execution not in rounds:
            rounds.append(execution)
        suffix = f"#{len(rounds) - 1}" if len(rounds) > 1 else ""
        calls = sum(get_call_suffix(site) == suffix for site in sites)
        return f"{name}.call{calls}{suffix}" if calls else name + suffix

    def name_module_call(self, name: str) -> str:
        """Return the site of a block or MLP: its name, with the suffix of the last attention call."""
        return name + self._suffix

    def name_input(self, name: str) -> str:
        """Return the site of a block whose input is read, and count the call."""
        earlier = self._inputs[name]
        self._inputs[name] += 1
        return f"{name}#{earlier}" if earlier else name

    def locate_queries(self, queries: int) -> range:
        """Return the positions of queries that come without positions: behind the cached ones."""
        return range(self.cached_length, self.cached_length + queries)


class ForwardScope(Listener):
    """The forward passes of one run under the lens.

    The scope is a listener that hears nothing: its hooks act only where it is open, so not in other threads nor in
    callbacks. Generation calls the parts of a model separately, so a forward pass of a part counts too.
    """

    only_reads = True

    def __init__(
        self, names: Mapping[int, str], compute: Callable[[RecognizedAttention, ForwardScope], Tensor] | None = None
    ) -> None:
        """Create a scope from the name of each module by its ``id``.

        ``compute`` computes the attentions that are found outside the registry; None looks for none.
        """
        self.sites = SiteNames(names)
        self.recognizer: AttentionRecognizer | None = None
        if compute is not None:
            self.recognizer = AttentionRecognizer(
                lambda attention: self._compute_recognized(attention, compute),
                lambda: not self._is_attending and is_listening(self),
                self._count_softmax,
            )
        self._softmaxes: Counter[str] = Counter()  # by attention module, those that no recorded attention contains
        self._is_attending = False
        self._executing: list[str] = []
        self._depth = 0
        self._active: ExitStack | None = None

    def accepts(self, site: str) -> bool:
        return False

    @property
    def module(self) -> str:
        """The name of the innermost module that is executing."""
        return self._executing[-1] if self._executing else ""

    def limit(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward hook or pre-hook that does nothing where this scope is not open."""

        def act(*arguments: object) -> Any:
            return hook(*arguments) if is_listening(self) else None

        return act

    def attend(self, *tensors: Tensor, **settings: Any) -> Tensor:
        """Call ``attend()``; the recognizer does not look for attentions in its operations."""
        self._is_attending = True
        try:
            return attend(*tensors, **settings)
        finally:
            self._is_attending = False

    @contextmanager
    def follow(self, model: nn.Module, parts: Iterable[nn.Module], attentions: Iterable[nn.Module]) -> Iterator[None]:
        """Follow the forward passes of a model, and the executions of its attentions, while the context is open."""
        with ExitStack() as hooks:
            for part in parts:
                hooks.callback(part.register_forward_pre_hook(self.limit(self._begin), with_kwargs=True).remove)
                hooks.callback(part.register_forward_hook(self.limit(self._end), always_call=True).remove)
            for module in attentions:
                hooks.callback(module.register_forward_pre_hook(self.limit(self._count_execution)).remove)
            if self.recognizer is not None:
                enter, leave = self.limit(self._enter_module), self.limit(self._leave_module)
                for module in model.modules():
                    hooks.callback(module.register_forward_pre_hook(enter).remove)
                    hooks.callback(module.register_forward_hook(leave, always_call=True).remove)
            hooks.callback(self._leave_forward)  # torch calls no hooks after a KeyboardInterrupt
            yield

    def _begin(self, module: nn.Module, inputs: tuple[Any, ...], settings: dict[str, Any]) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._executing.clear()
        self._softmaxes.clear()
        count_cached = getattr(settings.get("past_key_values"), "get_seq_length", None)
        self.sites.begin_forward(int(count_cached()) if callable(count_cached) else 0)
        if self.recognizer is not None:
            tensors = [
                argument
                for argument in (*inputs, *settings.values())
                if isinstance(argument, Tensor) and argument.dim()
            ]
            self.recognizer.batch = tensors[0].shape[0] if tensors else 1
            self._active = ExitStack()
            self._active.enter_context(self.recognizer)

    def _end(self, module: nn.Module, inputs: tuple[Any, ...], output: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._leave_forward()

    def _leave_forward(self) -> None:
        self._depth = 0
        if self._active is not None:
            self._active.close()
            self._active = None

    def list_incomplete_attentions(self, sites: Iterable[str]) -> list[str]:
        """Return the attention modules that computed something in the last forward pass that was not recorded."""
        recorded = {remove_call_suffix(site) for site in sites}
        return [
            name
            for name in self.sites.executions
            if self._softmaxes[name] > 0
            or not any(site == name or site.startswith(f"{name}.") or name.startswith(f"{site}.") for site in recorded)
        ]

    def _compute_recognized(
        self, attention: RecognizedAttention, compute: Callable[[RecognizedAttention, ForwardScope], Tensor]
    ) -> Tensor:
        if attention.scores is not None:
            name = next((name for name in reversed(self._executing) if name in self.sites.executions), "")
            self._softmaxes[name] -= 1
        return compute(attention, self)

    def _count_softmax(self) -> None:
        """Count a softmax of the attention module that is executing; that of a router inside it does not matter."""
        parent, _, word = self.module.rpartition(".")
        name = parent if "softmax" in word.lower() else self.module
        if name in self.sites.executions:
            self._softmaxes[name] += 1

    def _count_execution(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.sites.executions[self.sites.get_name(module)] += 1

    def _enter_module(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._executing.append(self.sites.get_name(module))

    def _leave_module(self, module: nn.Module, inputs: tuple[Any, ...], output: object) -> None:
        if self._executing:
            self._executing.pop()
