"""Tap listeners that record what ``attend()`` computes at every site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from jumok.attention.grid import count_positions
from jumok.errors import ArgumentError
from jumok.tap import Listener

from .captured_attention import CapturedAttention, CapturedCall

#: the last word of the sites at which ``attend()`` passes its values, in this order
RECORDED = ("query", "key", "mask", "bias", "score", "positions", "logsumexp")
#: further values that a recorder keeps on request, by the last word of their sites
KEEP_OPTIONS = ("output", "value", "block_output", "feedforward_output", "input")


def check_keep(keep: str | Sequence[str]) -> tuple[str, ...]:
    """Return one or several of ``KEEP_OPTIONS`` as a tuple, or raise an ArgumentError for an unknown one."""
    words = (keep,) if isinstance(keep, str) else tuple(keep)
    unknown = next((word for word in words if word not in KEEP_OPTIONS), None)
    if unknown is not None:
        raise ArgumentError(f"unknown keep {unknown!r}; choose from {', '.join(KEEP_OPTIONS)}")
    return words


class Recorder(Listener):
    """Records the values that ``attend()`` passes to ``tap()``."""

    only_reads = True

    def __init__(self, keep: tuple[str, ...] = ()) -> None:
        self.keep = frozenset(keep)
        self.attentions: dict[str, CapturedAttention] = {}  # by site, in execution order
        self.activations: dict[str, Tensor] = {}  # by full site name ("blocks.0.attention.output")
        self._incomplete_calls: dict[str, dict[str, Any]] = {}

    def accepts(self, site: str) -> bool:
        word = site.rpartition(".")[2]
        return word in RECORDED or word in self.keep

    def __call__(self, site: str, value: Any) -> Any:
        attention_site, _, word = site.rpartition(".")
        if word in self.keep:
            if isinstance(value, Tensor) and not value.requires_grad:
                value = _copy_view(value)
            earlier = self.activations.get(site)
            if earlier is not None and value.dim() >= 3:  # rows of later calls at the same site are appended
                self.activations[site] = torch.cat([earlier, value], -2)
            else:
                self.activations[site] = value
        if word in RECORDED:
            self._record_call(attention_site, word, value)
        return value

    def _record_call(self, site: str, word: str, value: Any) -> None:
        """Collect the values of a call; the positions arrive last and complete it."""
        if word == "logsumexp":  # computed by the backend, so it arrives after the other values
            self.attentions[site].calls[-1].logsumexp = value.detach()
            return
        incomplete = self._incomplete_calls.setdefault(site, {})
        if isinstance(value, Tensor):
            value = _copy_view(value.detach())
        incomplete[word] = value
        if word == "positions":
            arguments = self._incomplete_calls.pop(site)
            query_positions, key_positions = arguments.pop("positions")
            assert count_positions(query_positions) == arguments["query"].shape[2]
            call = CapturedCall(**arguments, query_positions=query_positions, key_positions=key_positions)
            self.attentions.setdefault(site, CapturedAttention(site)).calls.append(call)


def _copy_view(value: Tensor) -> Tensor:
    """Copy a tensor that is a part of another one, which it would keep in memory."""
    return value.clone() if value.untyped_storage().nbytes() > value.nbytes else value


class StepRecorder(Recorder):
    """A recorder of a generation, whose calls share their keys, so that its memory grows linearly with the text."""

    def __call__(self, site: str, value: Any) -> Any:
        attention_site, _, word = site.rpartition(".")
        super().__call__(site, value)
        if word != "positions" or len(self.attentions[attention_site].calls) < 2:
            return value
        # the positions complete a call: where its keys begin with those of earlier ones, these become a part of them
        *earlier_calls, last = self.attentions[attention_site].calls
        before = earlier_calls[-1].key
        if torch.equal(last.key[:, :, : before.shape[2]], before):
            for call in earlier_calls:
                if call.key.data_ptr() == before.data_ptr():
                    call.key = last.key[:, :, : call.keys]
        return value
