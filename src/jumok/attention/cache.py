"""Keys and values seen so far, with their positions: a decoding step computes only what is new.

The state is passed, not hidden: ``output = attention(new, mask=mask.causal, cache=cache)``. One cache serves a
whole model; each attention keeps its own slot in it.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

from jumok import axes
from jumok.errors import ArgumentError, ShapeError


class Slot:
    """The keys and values of one attention, in one buffer that grows by doubling or was made large enough."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.length = 0
        self.asked = 0  # how many queries have read a source: the next one stands there
        self._key: Tensor | None = None
        self._value: Tensor | None = None

    @property
    def positions(self) -> range:
        """Where the keys stand; the next token stands at ``len(positions)``."""
        return range(self.length)

    @property
    def key(self) -> Tensor:
        return self._seen(self._key)

    @property
    def value(self) -> Tensor:
        return self._seen(self._value)

    def _seen(self, buffer: Tensor | None) -> Tensor:
        if buffer is None:
            raise ArgumentError("nothing has been put into this cache yet")
        return buffer[:, :, : self.length]

    def append(self, key: axes.Key, value: axes.Value) -> tuple[Tensor, Tensor]:
        """Put new keys and values behind those seen; gives all of them, as views."""
        if torch.is_grad_enabled() and (key.requires_grad or value.requires_grad):
            raise ArgumentError("a cache is for generation: run the model under torch.no_grad(), or without a cache")
        start, end = self.length, self.length + key.shape[2]
        self._key = self._room(self._key, key, end)
        self._value = self._room(self._value, value, end)
        self._key[:, :, start:end] = key
        self._value[:, :, start:end] = value
        self.length = end
        return self._key[:, :, :end], self._value[:, :, :end]

    def select(self, rows: Tensor) -> None:
        if self._key is not None and self._value is not None:
            self._key, self._value = self._key.index_select(0, rows), self._value.index_select(0, rows)

    def _room(self, buffer: Tensor | None, new: Tensor, end: int) -> Tensor:
        if self.capacity is not None and end > self.capacity:
            raise ShapeError(f"the cache holds {self.capacity} positions, and {end} are needed; make it larger")
        if buffer is None:
            return new.new_empty(*new.shape[:2], self.capacity or end, new.shape[3])
        same = (buffer.shape[0], buffer.shape[1], buffer.shape[3]) == (new.shape[0], new.shape[1], new.shape[3])
        if not same:
            raise ShapeError(f"the cache holds {list(buffer.shape)} and cannot take {list(new.shape)}")
        if end <= buffer.shape[2]:
            return buffer
        larger = buffer.new_empty(*buffer.shape[:2], max(end, 2 * buffer.shape[2]), buffer.shape[3])
        larger[:, :, : self.length] = buffer[:, :, : self.length]
        return larger


class Cache:
    """A slot for each attention that asks for one.

    ``capacity=n`` makes every buffer that large at once (nothing is copied later, and more is refused); without it
    buffers grow.
    """

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise ArgumentError(f"a cache holds at least 1 position, not {capacity}")
        self.capacity = capacity
        self.slots: dict[Hashable, Slot] = {}
        self.sources: dict[Hashable, Slot] = {}

    def slot(self, owner: Hashable) -> Slot:
        """The slot of this attention (the module itself is the key: two of one name do not mix)."""
        if owner not in self.slots:
            self.slots[owner] = Slot(self.capacity)
        return self.slots[owner]

    def source(self, owner: Hashable) -> Slot:
        """The slot for keys and values of a source: put in once, then only read."""
        if owner not in self.sources:
            self.sources[owner] = Slot(None)
        return self.sources[owner]

    @property
    def length(self) -> int:
        """How many tokens have been seen."""
        return max((slot.length for slot in self.slots.values()), default=0)

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` tokens: what a wrong guess put in."""
        if length < 0:
            raise ArgumentError(f"a cache keeps at least 0 tokens, not {length}")
        for slot in self.slots.values():
            slot.length = min(slot.length, length)
        for slot in self.sources.values():
            slot.asked = min(slot.asked, length)

    def select(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order: what beam search does between steps."""
        for slot in (*self.slots.values(), *self.sources.values()):
            slot.select(rows)
