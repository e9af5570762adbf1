"""Name the attention calls of a transformers model, also where one module is called several times."""

from __future__ import annotations

import re
from collections import Counter

from torch import nn

CALL_SUFFIX = re.compile(r"#\d+$")


class SiteNames:
    """Names every attention call of a forward pass by its module.

    A module that is called again, as ALBERT's only layer, is another layer: "layer.attention", "layer.attention#1",
    "layer.attention#2". Calls whose positions continue those of an earlier call, as in decoding step by step, have one
    name, and their rows are appended.

    Attributes:
        cached_length: The number of positions in the key/value cache at the start of the forward pass.

    >>> names = SiteNames(nn.Identity())
    >>> [names.name_call("layer", range(3)), names.name_call("layer", range(3)), names.name_call("layer", range(3, 4))]
    ['layer', 'layer#1', 'layer']
    """

    def __init__(self, model: nn.Module) -> None:
        """Read the names of the modules.

        Args:
            model: The model.
        """
        self._names = {id(module): name for name, module in model.named_modules()}
        self._ends: dict[str, list[int]] = {}  # for each layer of a module, the position behind its last query
        self._inputs: Counter[str] = Counter()
        self._suffix = ""
        self.cached_length = 0

    def begin_forward(self, cached_length: int = 0) -> None:
        """Start to count the calls of a new forward pass.

        Args:
            cached_length: The number of positions in the key/value cache.
        """
        self._ends.clear()
        self._inputs.clear()
        self._suffix = ""
        self.cached_length = cached_length

    def get_name(self, module: nn.Module) -> str:
        """Return the name of a module.

        Args:
            module: A module of the model.
        """
        return self._names[id(module)]

    def name_call(self, name: str, query_positions: range) -> str:
        """Return the site of an attention call, and count the call.

        Args:
            name: The name of the module.
            query_positions: The positions of the queries.
        """
        ends = self._ends.setdefault(name, [])
        continued = ends.index(query_positions.start) if query_positions.start in ends else len(ends)
        ends[continued : continued + 1] = [query_positions.stop]
        self._suffix = f"#{continued}" if continued else ""
        return name + self._suffix

    def name_module_call(self, name: str) -> str:
        """Return the site of a block or MLP: its name, with the suffix of the last attention call.

        Args:
            name: The name of the module.
        """
        return name + self._suffix

    def name_input(self, name: str) -> str:
        """Return the site of a block whose input is read, and count the call.

        Args:
            name: The name of the block.
        """
        earlier = self._inputs[name]
        self._inputs[name] += 1
        return f"{name}#{earlier}" if earlier else name

    def locate_queries(self, queries: int) -> range:
        """Return the positions of queries that come without positions: behind the cached ones.

        Args:
            queries: The number of queries.
        """
        return range(self.cached_length, self.cached_length + queries)


def remove_call_suffix(site: str) -> str:
    """Return the name of the module of an attention call.

    Args:
        site: The site of a call.

    >>> remove_call_suffix("layer.attention#11")
    'layer.attention'
    """
    return CALL_SUFFIX.sub("", site)


def get_call_suffix(site: str) -> str:
    """Return the suffix of a repeated call, such as "#1", or "".

    Args:
        site: The site of a call.
    """
    return site[len(remove_call_suffix(site)) :]
