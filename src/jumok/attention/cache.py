"""Cached keys and values with their positions, so that a decoding step computes only the new tokens.

The cache is passed explicitly: ``output = attention(new, mask=mask.causal, cache=cache)``. One cache serves a model;
every attention has its own slot in it.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

from jumok import axes
from jumok.errors import ArgumentError, ShapeError


class Slot:
    """The keys and values of one attention, in one buffer."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.length = 0
        self.query_count = 0  # cross-attention: queries so far, which is the position of the next query
        self._key: Tensor | None = None
        self._value: Tensor | None = None

    @property
    def key(self) -> Tensor:
        """The cached keys, ``[batch, group, length, key_width]``."""
        return self._get_filled(self._key)

    @property
    def value(self) -> Tensor:
        """The cached values, ``[batch, group, length, value_width]``."""
        return self._get_filled(self._value)

    def _get_filled(self, buffer: Tensor | None) -> Tensor:
        if buffer is None:
            raise ArgumentError("this cache slot is empty; append keys and values first")
        return buffer[:, :, : self.length]

    def append(self, key: axes.Key, value: axes.Value) -> tuple[Tensor, Tensor]:
        """Append new keys and values."""
        if torch.is_grad_enabled() and (key.requires_grad or value.requires_grad):
            raise ArgumentError("a cache works without gradients; use torch.no_grad(), or run without a cache")

        start, end = self.length, self.length + key.shape[2]
        self._key = self._ensure_room(self._key, key, end)
        self._value = self._ensure_room(self._value, value, end)
        self._key[:, :, start:end] = key
        self._value[:, :, start:end] = value
        self.length = end
        return self._key[:, :, :end], self._value[:, :, :end]

    def select(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order."""
        if self._key is not None and self._value is not None:
            self._key = self._key.index_select(0, rows)
            self._value = self._value.index_select(0, rows)

    def _ensure_room(self, buffer: Tensor | None, new: Tensor, end: int) -> Tensor:
        if self.capacity is not None and end > self.capacity:
            raise ShapeError(
                f"the cache has capacity for {self.capacity} positions, but {end} are needed; increase capacity"
            )
        if buffer is None:
            return new.new_empty(*new.shape[:2], self.capacity or end, new.shape[3])

        batch, group, length, width = buffer.shape
        if (batch, group, width) != (new.shape[0], new.shape[1], new.shape[3]):
            raise ShapeError(f"the cache holds {list(buffer.shape)}; {list(new.shape)} cannot be appended to it")
        if end <= length:
            return buffer

        larger = buffer.new_empty(batch, group, max(end, 2 * length), width)
        larger[:, :, : self.length] = buffer[:, :, : self.length]
        return larger


class Cache:
    """One slot for every attention of a model.

    Args:
        capacity: Number of positions to allocate at once in every slot; exceeding it is an error. None lets the
            buffers grow.
    """

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise ArgumentError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self.slots: dict[Hashable, Slot] = {}
        self.sources: dict[Hashable, Slot] = {}

    def get_or_create_slot(self, owner: Hashable) -> Slot:
        """Return the self-attention slot of a module, creating it on first use.

        Args:
            owner: The attention module itself, so that two modules of one name stay separate.
        """
        if owner not in self.slots:
            self.slots[owner] = Slot(self.capacity)
        return self.slots[owner]

    def get_or_create_source_slot(self, owner: Hashable) -> Slot:
        """Return the cross-attention slot of a module: keys and values of the source, computed once.

        Args:
            owner: The attention module itself.
        """
        if owner not in self.sources:
            self.sources[owner] = Slot(None)
        return self.sources[owner]

    @property
    def length(self) -> int:
        """Number of cached tokens."""
        return max((slot.length for slot in self.slots.values()), default=0)

    def truncate(self, length: int) -> None:
        """Keep only the first ``length`` tokens, for example after a rejected draft.

        Args:
            length: Number of tokens to keep.
        """
        if length < 0:
            raise ArgumentError(f"length must be at least 0, not {length}")
        for slot in self.slots.values():
            slot.length = min(slot.length, length)
        for slot in self.sources.values():
            slot.query_count = min(slot.query_count, length)

    def select(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order, as beam search does between steps.

        Args:
            rows: Integer indices of batch rows; a row may occur several times.
        """
        for slot in (*self.slots.values(), *self.sources.values()):
            slot.select(rows)
