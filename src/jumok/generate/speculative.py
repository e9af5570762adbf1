"""Speculative decoding: propose several tokens cheaply and verify them all in one step of the model.

Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding".

The output equals plain greedy decoding: a proposed token is accepted only if the model itself would have chosen it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Protocol, runtime_checkable

import torch

from jumok.errors import ArgumentError
from jumok.models import Model

from .decoding import (
    DEFAULT_LIMIT,
    CausalDecoder,
    IncrementalDecoder,
    compute_window_start,
    create_incremental_decoder,
    warn_about_context,
)
from .sampling import check_logits


@runtime_checkable
class Proposer(Protocol):
    """Proposes the tokens that may come next."""

    def begin(self, tokens: list[int], limit: int) -> None:
        """Prepare for a text with these prompt tokens and at most ``limit`` new ones."""
        ...

    def propose(self, tokens: list[int], count: int) -> list[int]:
        """Return at most ``count`` tokens that may follow ``tokens``."""
        ...


class PromptLookup:
    """Proposes that the text repeats itself (prompt lookup decoding).

    It searches the text for an earlier occurrence of its last few tokens and proposes the tokens that followed.

    Args:
        longest: The largest number of last tokens to search for; shorter matches are tried after longer ones.

    >>> PromptLookup(longest=2, count=3).propose([1, 2, 7, 8, 4, 1, 2], 10)
    [7, 8, 4]
    """

    def __init__(self, longest: int = 3, count: int = 10) -> None:
        if longest < 1 or count < 1:
            raise ArgumentError(f"longest and count must be at least 1, not {longest} and {count}")
        self.longest = longest
        self.count = count

    def begin(self, tokens: list[int], limit: int) -> None:
        """Do nothing: a lookup needs no preparation."""

    def propose(self, tokens: list[int], count: int) -> list[int]:
        """Return the tokens that followed the latest earlier occurrence of the last tokens."""
        for size in range(min(self.longest, len(tokens) - 1), 0, -1):
            suffix = tokens[-size:]
            for start in range(len(tokens) - size - 1, -1, -1):  # latest occurrence first
                if tokens[start : start + size] == suffix:
                    repeated = cycle(tokens[start + size :])  # past the end, the copy continues with its own tokens
                    return list(islice(repeated, min(self.count, count)))
        return []


class DraftModel:
    """Proposes the greedy tokens of a smaller model with the same vocabulary."""

    def __init__(self, model: Model, count: int = 4) -> None:
        if count < 1:
            raise ArgumentError(f"count must be at least 1, not {count}")
        self.model = model
        self.count = count
        self._decoder: CausalDecoder | None = None
        self._cached: list[int] = []  # the tokens in the decoder's cache

    def begin(self, tokens: list[int], limit: int) -> None:
        """Start an empty cache for a text."""
        # Silent: the draft model's window changes which tokens it proposes, but not the text.
        self._decoder = CausalDecoder(self.model, [tokens[:1]], len(tokens) + limit + self.count, lambda _: None)
        self._cached = []

    def propose(self, tokens: list[int], count: int) -> list[int]:
        """Return the draft model's greedy continuation."""
        decoder = self._decoder
        if decoder is None:
            raise ArgumentError("call begin() before propose()")

        # The last token is always read again, because its logits are needed.
        common = min(count_common_prefix(self._cached, tokens), len(tokens) - 1)
        decoder.remove_last(len(self._cached) - common)
        self._cached = tokens[:]
        logits = decoder.step(torch.tensor([tokens[common:]], device=self.model.device))

        proposed: list[int] = []
        count = min(self.count, count)
        for _ in range(count):
            proposed.append(int(logits[0, -1].argmax()))
            if len(proposed) < count:
                logits = decoder.step(torch.tensor([proposed[-1:]], device=self.model.device))
                self._cached.append(proposed[-1])
        return proposed


@dataclass(frozen=True)
class SpeculationReport:
    """The new tokens of speculative decoding, and how many proposals were accepted."""

    tokens: list[int]
    steps: int  # forward passes of the model after the prompt
    proposed: int
    accepted: int  # proposed tokens that the model confirmed


def speculate(
    model: Model, prompt: list[int], proposer: Proposer, *, limit: int = DEFAULT_LIMIT, ends: Iterable[int] = ()
) -> SpeculationReport:
    """Decode one prompt greedily with proposals; the tokens equal those of ``generate(model, [prompt])``.

    A ``ContextWarning`` says once if the text exceeds the model's context length; see ``generate``.
    """
    messages: list[str] = []
    decoder = create_incremental_decoder(model, [prompt], limit, messages.append)
    report = _decode_with_proposals(decoder, prompt, proposer, limit, frozenset(ends))

    # A rejected proposal may have exceeded the context length, but the text itself may not.
    read = len(prompt) + len(report.tokens) - 1
    if messages and (model.is_encoder_decoder or compute_window_start(read, model.context_length)):
        warn_about_context(messages[0])
    return report


def _decode_with_proposals(
    decoder: IncrementalDecoder, prompt: list[int], proposer: Proposer, limit: int, ends: frozenset[int]
) -> SpeculationReport:
    last = decoder.clamp_limit(limit)
    with torch.inference_mode():
        logits = decoder.prefill()[0, -1:]
        proposer.begin(prompt, limit)

        new: list[int] = []
        proposal: list[int] = []
        steps = proposed = accepted = 0
        while True:
            check_logits(logits)
            greedy_tokens = logits.argmax(-1).tolist()  # the model's choice after the newest token and each proposal
            agreed = count_common_prefix(proposal, greedy_tokens)
            decoder.remove_last(len(proposal) - agreed)
            accepted += agreed

            for token in [*proposal[:agreed], greedy_tokens[agreed]]:
                new.append(token)
                if token in ends or len(new) == last:
                    if token not in ends:
                        decoder.report_stop(limit)
                    return SpeculationReport(new, steps, proposed, accepted)

            room = last - len(new) - 1  # the model's own next token needs a position too
            proposal = proposer.propose(prompt + new, room) if room > 0 else []
            proposed += len(proposal)
            logits = decoder.step(torch.tensor([[new[-1], *proposal]], device=logits.device))[0]
            steps += 1


def count_common_prefix(first: list[int], second: list[int]) -> int:
    """Return the number of leading tokens that two lists share.

    >>> count_common_prefix([5, 3, 7], [5, 3, 8, 1])
    2
    """
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    return count
