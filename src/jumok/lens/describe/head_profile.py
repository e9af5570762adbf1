"""What kind of heads a model has, tried on three texts: the given one, random tokens that repeat, and sentences whose
dependencies are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from jumok.errors import ArgumentError
from jumok.lens.capture.capture import Capture
from jumok.lens.lens import Lens

from .annotated_sentences import ENGLISH_SENTENCES, KOREAN_SENTENCES, AnnotatedSentence
from .head_kinds import HeadKind, classify_heads, draw_repeated_tokens, subtract_uniform

REPEATED = 50  # random tokens, twice
TokenizeWords = Callable[[str], tuple[list[int], list[range]]]  # a text's ids, and the places of each of its words


@dataclass(frozen=True)
class HeadProfile:
    """One head: on the text, and on random tokens that repeat (None where the model is too short for any)."""

    site: str
    head: int
    on_text: HeadKind
    on_repeats: HeadKind | None


class HeadProfiler:
    """Heads of a model with one stack over one text, tried on texts of ours. ``tokens_of``: how a text becomes tokens,
    for the sentences; without it no head is called syntactic. ``sites``: these attentions alone."""

    def __init__(
        self,
        lens: Lens,
        tokens_of: TokenizeWords | None = None,
        sites: Sequence[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        table = getattr(lens.model, "embedding", None)
        self.table = table.weight.detach() if isinstance(table, nn.Embedding) else None
        tell = progress or (lambda done, of: None)
        self.on_repeats = {(one.site, one.head): one for one in _on_repeats(lens, sites, tell)}
        self.syntactic = {} if tokens_of is None else _syntactic(lens, tokens_of, sites, tell)

    def on_text(self, run: Capture, ids: Sequence[int], site: str) -> list[HeadKind]:
        """The heads of one attention of a run over ``ids``."""
        vectors = None if self.table is None else self.table[torch.tensor(list(ids), device=self.table.device)]
        found = classify_heads(run, list(ids), vectors=vectors, sites=[site])
        return [
            replace(one, scores={**one.scores, "syntactic": self.syntactic[place]})
            if (place := (one.site, one.head)) in self.syntactic
            else one
            for one in found
        ]


def profile(lens: Lens, run: Capture, ids: Sequence[int], tokens_of: TokenizeWords | None = None) -> list[HeadProfile]:
    """Every head, on the text ``ids`` of this run and on the others."""
    if not isinstance(lens, Lens) or not isinstance(run, Capture):
        raise ArgumentError(
            "profile(lens, run, ids) takes an open lens, a run of it and the tokens which that run read"
        )
    tried = HeadProfiler(lens, tokens_of)
    return [
        HeadProfile(site, one.head, one, tried.on_repeats.get((site, one.head)))
        for site in run.sites.names
        for one in tried.on_text(run, ids, site)
    ]


def _longest(lens: Lens) -> int:
    """How many tokens the model reads at once."""
    return int(getattr(getattr(lens.model, "config", None), "length", None) or 2**31)


def _on_repeats(lens: Lens, sites: Sequence[str] | None, tell: Callable[[int, int], None]) -> list[HeadKind]:
    config: Any = getattr(lens.model, "config", None)
    half = min(REPEATED, _longest(lens) // 2)
    vocabulary = getattr(config, "vocabulary", None) or getattr(config, "vocab_size", None)
    if half < 2 or vocabulary is None:
        return []
    ids = draw_repeated_tokens(int(vocabulary), half).tolist()
    run = lens.run(ids)
    wanted = run.sites.names if sites is None else list(sites)
    found: list[HeadKind] = []
    for number, site in enumerate(wanted):
        found += classify_heads(run, ids, sites=[site])
        tell(number + 1, len(wanted))
    return found


def _syntactic(
    lens: Lens, tokens_of: TokenizeWords, sites: Sequence[str] | None, tell: Callable[[int, int], None]
) -> dict[tuple[str, int], float]:
    """The mean over sentences of what patterns.py calls so, each arc from every token of a word to every token of the
    other, both ways."""
    found: dict[tuple[str, int], list[float]] = {}
    texts = (*ENGLISH_SENTENCES, *KOREAN_SENTENCES)
    for number, sentence in enumerate(texts):
        tell(number, len(texts))
        ids, places = tokens_of(sentence.text)
        arcs = expand_arcs(sentence, places)
        if not arcs or len(ids) > _longest(lens):
            continue
        run = lens.run(ids)
        ends = torch.zeros(len(ids), len(ids), dtype=torch.bool)
        ends[tuple(torch.tensor(arcs).T)] = True
        ends |= ends.T.clone()
        for site in run.sites.names if sites is None else sites:
            free = run.attentions[site].allowed(0, 0, slice(None), slice(None)).cpu()
            for head in range(run.heads(site)):
                weight, rows = subtract_uniform((run.weights(site, head).float().cpu() * ends).sum(-1), ends, free)
                if rows.any():
                    found.setdefault((site, head), []).append(float(weight[rows].mean()))
    return {place: sum(some) / len(some) for place, some in found.items()}


def expand_arcs(sentence: AnnotatedSentence, places: Sequence[range]) -> list[tuple[int, int]]:
    """A sentence's arcs as pairs of tokens; none where its words are not those of the tokens."""
    if len(places) != len(sentence.words):
        return []
    return [
        (one, other) for dependent, governor in sentence.arcs for one in places[dependent] for other in places[governor]
    ]
