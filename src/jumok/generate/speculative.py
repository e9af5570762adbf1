"""Speculative decoding: several tokens are guessed cheaply, and one step of the model checks them all.

Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding".

The output is that of plain greedy decoding: a guess is kept only where the model itself would have said it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from jumok.errors import ArgumentError
from jumok.models import Model

from .decoding import CausalDecoder, create_decoder


@runtime_checkable
class Guesser(Protocol):
    """Proposes what may come next."""

    def begin(self, tokens: list[int], limit: int) -> None: ...

    def guess(self, tokens: list[int], most: int) -> list[int]: ...


class PromptLookup:
    """Guesses that the text repeats itself: finds its last few tokens earlier on, and proposes what followed there
    (prompt lookup decoding)."""

    def __init__(self, longest: int = 3, count: int = 10) -> None:
        if longest < 1 or count < 1:
            raise ArgumentError(f"lookup needs at least 1 token to find and 1 to propose, not {longest} and {count}")
        self.longest, self.count = longest, count

    def begin(self, tokens: list[int], limit: int) -> None:
        pass

    def guess(self, tokens: list[int], most: int) -> list[int]:
        for size in range(min(self.longest, len(tokens) - 1), 0, -1):
            wanted = tokens[-size:]
            for start in range(len(tokens) - size - 1, -1, -1):  # the latest place first
                if tokens[start : start + size] == wanted:
                    told = list(tokens)
                    for place in range(start + size, start + size + min(self.count, most)):
                        told.append(told[place])  # past the end the guess goes on from itself: a loop is a loop
                    return told[len(tokens) :]
        return []


class DraftModel:
    """Guesses with a smaller model of the same tokens."""

    def __init__(self, model: Model, count: int = 4) -> None:
        if count < 1:
            raise ArgumentError(f"a draft proposes at least 1 token, not {count}")
        self.model, self.count = model, count
        self._steps: CausalDecoder | None = None
        self._told: list[int] = []

    def begin(self, tokens: list[int], limit: int) -> None:
        self._steps = CausalDecoder(self.model, [tokens[:1]], len(tokens) + limit + self.count)
        self._told = []

    def guess(self, tokens: list[int], most: int) -> list[int]:
        steps = self._steps
        assert steps is not None, "begin() comes first"
        agreed = 0
        while agreed < min(len(self._told), len(tokens)) and self._told[agreed] == tokens[agreed]:
            agreed += 1
        agreed = min(agreed, len(tokens) - 1)  # the last token is always put in again: its logits are needed
        steps.forget(len(self._told) - agreed)
        self._told = tokens[:]
        logits = steps.next(torch.tensor([tokens[agreed:]], device=self.model.device))
        guessed: list[int] = []
        for _ in range(min(self.count, most)):
            guessed.append(int(logits[0, -1].argmax()))
            if len(guessed) < min(self.count, most):
                logits = steps.next(torch.tensor([guessed[-1:]], device=self.model.device))
                self._told.append(guessed[-1])
        return guessed


@dataclass(frozen=True)
class SpeculationReport:
    """The new tokens, and how much the guesses saved."""

    tokens: list[int]
    steps: int  # how often the model ran after the prompt
    guessed: int
    kept: int


def speculate(
    model: Model, prompt: list[int], guesser: Guesser, *, limit: int = 64, ends: Iterable[int] = ()
) -> SpeculationReport:
    """Greedy decoding of one prompt, with guesses; equal to ``generate(model, [prompt])``."""
    stops = frozenset(ends)
    steps = create_decoder(model, [prompt], limit)
    with torch.inference_mode():
        logits = steps.first()[0, -1:]
        guesser.begin(prompt, limit)
        new: list[int] = []
        guess: list[int] = []
        runs = guessed = kept = 0
        while True:
            wanted = logits.argmax(-1).tolist()  # what the model says after the newest token and after each guess
            agreed = 0
            while agreed < len(guess) and guess[agreed] == wanted[agreed]:
                agreed += 1
            steps.forget(len(guess) - agreed)
            kept += agreed
            for token in [*guess[:agreed], wanted[agreed]]:
                new.append(token)
                if token in stops or len(new) == limit:
                    return SpeculationReport(new, runs, guessed, kept)
            room = limit - len(new) - 1  # the model's own next token takes a place too
            guess = guesser.guess(prompt + new, room) if room > 0 else []
            guessed += len(guess)
            logits = steps.next(torch.tensor([[new[-1], *guess]], device=logits.device))[0]
            runs += 1
