"""Beam search: find the most probable text by extending several candidates at each step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.models import Model

from .decoding import DEFAULT_LIMIT, IncrementalDecoder, StepLogits, create_incremental_decoder
from .sampling import check_logits

Candidate = tuple[float, int, int]  # log-probability, beam, token


@dataclass(frozen=True)
class BeamSettings:
    """The settings of one beam search."""

    beams: int
    limit: int
    length_penalty: float
    ends: frozenset[int]

    def score(self, log_probability: float, length: int) -> float:
        """Return the score of a text of this log-probability and length."""
        return log_probability / length**self.length_penalty


@dataclass
class _TextSearch:
    """The beams of one text."""

    running: list[tuple[float, list[int]]]  # (log-probability, tokens), best first
    finished: list[tuple[float, list[int]]] = field(default_factory=list)  # (score, tokens), best first
    is_open: bool = True  # a running beam may still beat the finished ones

    def advance(self, candidates: list[Candidate], length: int, settings: BeamSettings) -> list[int]:
        """Replace the running beams by the best candidates and return the beam that each of them extends."""
        running: list[tuple[float, list[int]]] = []
        parents: list[int] = []
        for rank, (log_probability, beam, token) in enumerate(candidates):
            tokens = [*self.running[beam][1], token]
            is_finished = token in settings.ends or length == settings.limit
            if is_finished and rank < settings.beams and self.is_open:
                self.finished.append((settings.score(log_probability, length), tokens))
            if token not in settings.ends and len(running) < settings.beams:
                running.append((log_probability, tokens))
                parents.append(beam)

        self.finished = sorted(self.finished, key=lambda scored: -scored[0])[: settings.beams]
        self.running = running
        if not running:
            self.is_open = False
        elif len(self.finished) == settings.beams:
            best_running = settings.score(running[0][0], length)
            worst_finished = self.finished[-1][0]
            self.is_open = self.is_open and best_running > worst_finished
        return parents


def beam_search(
    model: Model,
    prompts: list[list[int]],
    *,
    beams: int = 4,
    limit: int = DEFAULT_LIMIT,
    length_penalty: float = 1.0,
    ends: Iterable[int] = (),
) -> list[list[int]]:
    """Return the best text that beam search finds for each prompt.

    A finished text scores log-probability / length ** length_penalty. The search of a text ends when its best running
    beam, scored at its present length, is below the worst of ``beams`` finished texts.

    The arguments are those of ``generate``, and a ``length_penalty``: above 0 favours long texts, below 0 short ones.
    """
    if beams < 1:
        raise ArgumentError(f"beam search needs at least 1 beam, not {beams}")
    settings = BeamSettings(beams, limit, length_penalty, frozenset(ends))
    return search_beams(create_incremental_decoder(model, prompts, limit), len(prompts), settings)


def search_beams(decoder: IncrementalDecoder, text_count: int, settings: BeamSettings) -> list[list[int]]:
    """Run beam search on a decoder that has not read its prompts yet."""
    with torch.inference_mode():
        return [tokens for _, tokens in search_scored_beams(decoder, text_count, settings, decoder.prefill())]


def search_scored_beams(
    decoder: IncrementalDecoder, text_count: int, settings: BeamSettings, first_logits: StepLogits
) -> list[tuple[float, list[int]]]:
    """Run beam search on a decoder that has read its prompts; return the score and the tokens of each best text."""
    searches = [_TextSearch([(0.0, [])]) for _ in range(text_count)]
    limit = settings.limit
    settings = replace(settings, limit=decoder.clamp_limit(limit))

    with torch.inference_mode():
        logits = first_logits[:, -1]
        for length in range(1, settings.limit + 1):
            running = [tokens for search in searches for _, tokens in search.running]
            check_logits(logits)
            log_probabilities = decoder.restrict(logits.float().log_softmax(-1), running)
            parents = _advance_all(searches, log_probabilities, length, settings)
            if length == settings.limit or not any(search.is_open for search in searches):
                break
            decoder.select_rows(torch.tensor(parents, device=logits.device))
            newest = [[tokens[-1]] for search in searches for _, tokens in search.running]
            logits = decoder.step(torch.tensor(newest, device=logits.device))[:, -1]

    best = [search.finished[0] for search in searches]
    if any(tokens[-1] not in settings.ends for _, tokens in best):
        decoder.report_stop(limit)
    return best


def _advance_all(
    searches: list[_TextSearch], log_probabilities: Tensor, length: int, settings: BeamSettings
) -> list[int]:
    """Advance every text by one token and return the batch row that each running beam extends."""
    parents: list[int] = []
    first_row = 0
    for search in searches:
        beam_count = len(search.running)
        if not beam_count:  # every candidate ended
            continue
        rows = log_probabilities[first_row : first_row + beam_count]
        candidates = _rank_candidates(search, rows, settings)
        parents += [first_row + beam for beam in search.advance(candidates, length, settings)]
        first_row += beam_count
    return parents


def _rank_candidates(search: _TextSearch, log_probabilities: Tensor, settings: BeamSettings) -> list[Candidate]:
    """Return the most probable extensions of a text's beams, best first."""
    # Each beam has at most len(ends) ending tokens, so this many candidates always include `beams` that continue.
    count = max(2, 1 + len(settings.ends)) * settings.beams

    previous = torch.tensor([total for total, _ in search.running], device=log_probabilities.device)
    totals = (log_probabilities + previous[:, None]).flatten()
    best = totals.topk(min(count, totals.numel()))

    vocabulary = log_probabilities.shape[-1]
    return [
        (total, index // vocabulary, index % vocabulary)
        for total, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
