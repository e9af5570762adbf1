"""Name the attention calls of a transformers model, also where one module is called several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from torch import nn

from jumok.lens.sites import get_call_suffix


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
