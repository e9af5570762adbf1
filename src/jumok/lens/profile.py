"""What kind of heads a model has, tried on three texts: the given one, random tokens that repeat, and sentences whose
dependencies are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from .lens import Lens
from .patterns import Kind, kinds, repeated
from .run import Run
from .sentences import ENGLISH, KOREAN, Sentence

REPEATED = 50  # random tokens, twice
TokensOf = Callable[[str], tuple[list[int], list[range]]]  # a text's ids, and the places of each of its words


@dataclass(frozen=True)
class Profile:
    """One head: on the text, and on random tokens that repeat (None where the model is too short for any)."""

    site: str
    head: int
    on_text: Kind
    on_repeats: Kind | None


def profile(lens: Lens, run: Run, ids: Sequence[int], tokens_of: TokensOf | None = None) -> list[Profile]:
    """Of a model with one stack over one text. ``run``: over ``ids``. ``tokens_of``: how a text becomes tokens, for the
    sentences; without it no head is called syntactic."""
    table = getattr(lens.model, "embedding", None)
    vectors = table.weight[torch.tensor(list(ids))] if isinstance(table, nn.Embedding) else None
    on_text = kinds(run, list(ids), vectors=vectors)
    syntactic = {} if tokens_of is None else _syntactic(lens, tokens_of)
    on_repeats = {(one.site, one.head): one for one in _on_repeats(lens)}
    found = []
    for one in on_text:
        place = one.site, one.head
        if place in syntactic:
            one = replace(one, scores={**one.scores, "syntactic": syntactic[place]})
        found.append(Profile(one.site, one.head, one, on_repeats.get(place)))
    return found


def _on_repeats(lens: Lens) -> list[Kind]:
    config: Any = getattr(lens.model, "config", None)
    length = getattr(config, "length", None) or 2 * REPEATED
    half = min(REPEATED, length // 2)
    vocabulary = getattr(config, "vocabulary", None) or getattr(config, "vocab_size", None)
    if half < 2 or vocabulary is None:
        return []
    ids = repeated(int(vocabulary), half).tolist()
    return kinds(lens.run(ids), ids)


def _syntactic(lens: Lens, tokens_of: TokensOf) -> dict[tuple[str, int], float]:
    """The mean over sentences, each arc from every token of a word to every token of the other."""
    found: dict[tuple[str, int], list[float]] = {}
    for sentence in (*ENGLISH, *KOREAN):
        ids, places = tokens_of(sentence.text)
        arcs = arcs_of(sentence, places)
        if not arcs:
            continue
        for one in kinds(lens.run(ids), ids, arcs=arcs):
            score = one.scores["syntactic"]
            if score is not None:
                found.setdefault((one.site, one.head), []).append(score)
    return {place: sum(some) / len(some) for place, some in found.items()}


def arcs_of(sentence: Sentence, places: Sequence[range]) -> list[tuple[int, int]]:
    """A sentence's arcs as pairs of tokens; none where its words are not those of the tokens."""
    if len(places) != len(sentence.words):
        return []
    return [
        (one, other) for dependent, governor in sentence.arcs for one in places[dependent] for other in places[governor]
    ]
