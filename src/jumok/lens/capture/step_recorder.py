"""A recorder for generation: the calls of one attention share their keys, which grow by one row at each step."""

from __future__ import annotations

from typing import Any

import torch

from .captured_attention import CapturedAttention
from .recorder import Recorder


class StepRecorder(Recorder):
    """A recorder whose memory grows linearly with the length of a generated text."""

    def __call__(self, site: str, value: Any) -> Any:
        attention_site, _, word = site.rpartition(".")
        super().__call__(site, value)
        if word == "positions":  # they complete a call
            _share_keys(self.attentions[attention_site])
        return value


def _share_keys(attention: CapturedAttention) -> None:
    """Replace the keys of the last call but one by a part of those of the last call, where they are equal."""
    if len(attention.calls) < 2:
        return
    earlier, last = attention.calls[-2:]
    start = last.key[:, :, : earlier.keys]
    if torch.equal(start, earlier.key):
        for call in attention.calls[:-1]:
            if call.key.data_ptr() == earlier.key.data_ptr():
                call.key = last.key[:, :, : call.keys]
