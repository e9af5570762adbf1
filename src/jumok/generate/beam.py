"""Beam search: the likeliest text, not the likeliest next token; several beginnings are kept at each step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from jumok.errors import ArgumentError
from jumok.models import Model

from .decoding import IncrementalDecoder, create_decoder


@dataclass
class _Search:
    """The beams of one text."""

    running: list[tuple[float, list[int]]]  # (log-probability, tokens)
    finished: list[tuple[float, list[int]]] = field(default_factory=list)  # (score by length, tokens)
    open: bool = True


def beam_search(
    model: Model,
    prompts: list[list[int]],
    *,
    beams: int = 4,
    limit: int = 64,
    length_penalty: float = 1.0,
    ends: Iterable[int] = (),
) -> list[list[int]]:
    """The best text for each prompt. A finished text scores its log-probability / length ** length_penalty; a search
    ends when the best running beam, scored so at its present length, is below the worst of ``beams`` finished ones."""
    if beams < 1:
        raise ArgumentError(f"beam search needs at least 1 beam, not {beams}")
    return search_beams(
        create_decoder(model, prompts, limit), len(prompts), beams, limit, length_penalty, frozenset(ends)
    )


def search_beams(
    steps: IncrementalDecoder, texts: int, beams: int, limit: int, length_penalty: float, ends: frozenset[int]
) -> list[list[int]]:
    searches = [_Search([(0.0, [])]) for _ in range(texts)]
    kept = max(2, 1 + len(ends)) * beams  # so many that all-but-`beams` of them may have ended
    with torch.inference_mode():
        logits = steps.first()[:, -1]
        for length in range(1, limit + 1):
            shares = logits.float().log_softmax(-1)
            vocabulary = shares.shape[-1]
            rows: list[int] = []
            first_row = 0
            for one in searches:
                count = len(one.running)
                if not count:  # every candidate was an end: nothing runs any more
                    continue
                before = torch.tensor([score for score, _ in one.running], device=shares.device)
                total = (shares[first_row : first_row + count] + before[:, None]).flatten()
                best = total.topk(min(kept, total.numel()))
                candidates = [
                    (score, place // vocabulary, place % vocabulary)
                    for score, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)
                ]
                rows += [
                    first_row + row for row in _advance(one, candidates, beams, length, limit, length_penalty, ends)
                ]
                first_row += count
            if length == limit or not any(one.open for one in searches):
                break
            steps.select(torch.tensor(rows, device=shares.device))
            newest = [[tokens[-1]] for one in searches for _, tokens in one.running]
            logits = steps.next(torch.tensor(newest, device=shares.device))[:, -1]
    return [max(one.finished, key=lambda told: told[0])[1] for one in searches]


def _advance(
    one: _Search,
    candidates: list[tuple[float, int, int]],
    beams: int,
    length: int,
    limit: int,
    penalty: float,
    ends: frozenset[int],
) -> list[int]:
    """One step of one text; gives the rows that its new running beams continue."""
    running: list[tuple[float, list[int]]] = []
    rows: list[int] = []
    for place, (score, row, token) in enumerate(candidates):
        tokens = [*one.running[row][1], token]
        ended = token in ends or length == limit
        if ended and place < beams and one.open:
            one.finished.append((score / length**penalty, tokens))
        if token not in ends and len(running) < beams:
            running.append((score, tokens))
            rows.append(row)
    one.finished = sorted(one.finished, key=lambda told: -told[0])[:beams]
    one.running = running
    if not running or (len(one.finished) == beams and running[0][0] / length**penalty <= one.finished[-1][0]):
        one.open = False
    return rows
