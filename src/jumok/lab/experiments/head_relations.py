"""Experiment ``relations``: whether heads of a trained model attend along the relations that textbooks name them after.

A model has hundreds of heads, and the best of them for any pair of words has a large weight. So each pair is compared
with the other pairs of its sentence at the same distance, and the best head with the best head of such random pairs.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.bilingual_text import Texts, join_texts
from jumok.checkpoint import Loaded, load
from jumok.data.tokenizers.token_labels import group_words
from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.lab.result import Result, build_table, count_steps
from jumok.lens import Lens
from jumok.lens.describe.head_statistics import drop_first_key, merge_into_words
from jumok.reporting import Progress

TEXTS = Texts(__file__)

DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
MARKED = re.compile(r"\*(\w+)\*")  # the two related words of a sentence
FULL: dict[str, Any] = {"draws": 1000}
MANY = 0.4  # a head with this mean weight on one position is named after it, as in head_kinds.py
CHANCE = 0.05  # the largest share of random choices that may be as good as the relation


class WordMaps(NamedTuple):
    """What a model has for the words of a sentence.

    Attributes:
        heads: The layer and the number of each head.
        weights: The weights between words, with all keys.
        without_first: The same without the first token, on which heads put what they do not need.
        vectors: The embedding of each word, of length 1; None if the model has no embedding that can be read.
    """

    heads: list[tuple[int, int]]
    weights: Float[Tensor, "head query key"]
    without_first: Float[Tensor, "head query key"]
    vectors: Float[Tensor, "key width"] | None


@dataclass(frozen=True)
class PairRow:
    """One pair of words of the article's sentence.

    Attributes:
        weight: The weight of the head that prefers this pair most to others at its distance.
        control: The mean weight of that head on the others.
        better: How many of the other pairs have a head that prefers them as much or more.
        other_pairs: How many other pairs there are.
    """

    pair: str
    relation: str
    head: tuple[int, int]
    weight: float
    control: float
    better: int
    other_pairs: int


@dataclass(frozen=True)
class RelationRow:
    """One relation over several sentences.

    Attributes:
        head: The head with the largest margin: its mean weight on the pairs, less that on others at equal distance.
        drawn: The largest margin that 95% of the random choices of other pairs do not exceed.
        chance: The share of the random choices with a margin that is as large.
        cosine: The mean cosine of the words' embeddings; None without embeddings.
        other_cosine: The same for the other pairs.
    """

    relation: str
    sentences: int
    head: tuple[int, int]
    margin: float
    drawn: float
    chance: float
    cosine: float | None
    other_cosine: float | None


@dataclass(frozen=True)
class PositionRow:
    """The positions that the heads of a model attend to.

    Attributes:
        first: The number of heads with a mean weight of at least 0.4 on the first token.
        last: The same for the last token.
        last_word: The same for the last word, which special tokens may follow.
        distances: The mean distance of each head in words without the first token, divided by that of equal weights.
    """

    model: str
    heads: int
    first: int
    last: int
    last_word: int
    distances: tuple[float, ...]


def measure_relations(
    models: Sequence[str | Loaded] = ("smollm2", "minilm"),
    *,
    draws: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Compare the weights on related words with those on other words at the same distance.

    Args:
        models: A language model, in which the relations are measured; then others of which only the positions are.
        draws: How many random choices of other pairs are the control.
    """
    if not models or draws < 1:
        raise ArgumentError("measure_relations needs a model and at least 1 draw")
    relations: dict[str, list[str]] = DATA["sentences"]
    sentences = [sentence for group in relations.values() for sentence in group]
    count_step = count_steps(len(models) * len(sentences), progress)
    positions: list[PositionRow] = []
    maps: dict[str, WordMaps] = {}
    for number, model in enumerate(models):
        loaded = load(model) if isinstance(model, str) else model
        name = model if isinstance(model, str) else str(number + 1)
        row, read = _read_model(name, loaded, sentences, count_step)
        positions.append(row)
        maps = maps or read
    chooser = random.Random(seed)
    rows = [_compare_relation(name, group, maps, draws, chooser) for name, group in relations.items()]
    article = DATA["article"]
    pairs = [
        _compare_pair(article["sentence"], later, earlier, relation, maps[article["sentence"]])
        for later, earlier, relation in article["pairs"]
    ]
    return describe_relations(seed, draws, tuple(pairs), tuple(rows), tuple(positions))


def describe_relations(
    seed: int,
    draws: int,
    pairs: tuple[PairRow, ...],
    relations: tuple[RelationRow, ...],
    positions: tuple[PositionRow, ...],
) -> Result:
    """Say which relations a head attends along more than along random pairs, and name those without such a head."""
    names = TEXTS.group("relations")
    model = positions[0]
    tables = [
        build_table(
            TEXTS, "pairs", ({"row": row, "name": names[row.relation]} for row in pairs), model=model.model, row=model
        ),
        build_table(
            TEXTS,
            "table",
            (
                {
                    "row": row,
                    "name": names[row.relation],
                    "cosine": "-" if row.cosine is None else f"{row.cosine:.2f}",
                    "other": "-" if row.other_cosine is None else f"{row.other_cosine:.2f}",
                }
                for row in relations
            ),
            draws=draws,
            model=model.model,
        ),
        build_table(TEXTS, "positions", ({"row": row, "far": _count_far(row)} for row in positions)),
    ]
    clear_rows = [row for row in relations if row.chance <= CHANCE]
    sentences = [
        TEXTS("many_heads", row=model, beaten=sum(row.better > 0 for row in pairs), count=len(pairs)),
        TEXTS("found", count=len(clear_rows), total=len(relations)),
        TEXTS("far", row=model, far=_count_far(model), largest=max(model.distances)),
    ]
    exceptions = [TEXTS("no_head", name=names[row.relation], row=row) for row in relations if row.chance > CHANCE]
    for head in dict.fromkeys(row.head for row in clear_rows):
        shared = [names[row.relation] for row in clear_rows if row.head == head]
        if len(shared) > 1:
            exceptions.append(TEXTS("same_head", head=head, names=join_texts(shared)))
    exceptions += [TEXTS("no_last", row=row) for row in positions if not row.last_word]
    numbers = {"seed": seed, "draws": draws, "pairs": pairs, "relations": relations, "positions": positions}
    return Result(numbers, tables, sentences, exceptions, partial(_draw_distances, positions))


def _count_far(row: PositionRow) -> int:
    return sum(distance > 1 for distance in row.distances)


def _draw_distances(positions: Sequence[PositionRow], target: str | Path, language: str) -> Path:
    labels = TEXTS.select("picture", language)
    lines = {
        row.model: [(number / len(row.distances), distance) for number, distance in enumerate(sorted(row.distances), 1)]
        for row in positions
    }
    return save_line_plot(lines, target, title=labels["title"], across=labels["across"], vertical=labels["vertical"])


def _read_model(
    name: str, loaded: Loaded, sentences: Sequence[str], count_step: Callable[[], None]
) -> tuple[PositionRow, dict[str, WordMaps]]:
    """Return where the heads of a model attend, and the maps of each sentence."""
    maps, first, last, last_word, distances = {}, [], [], [], []
    with Lens(loaded) as lens:
        tokenizer, embedding = lens.tokenizer, lens.facts.embedding
        if tokenizer is None:
            raise ArgumentError(f"{name} has no tokenizer, so it cannot read sentences")
        for sentence in sentences:
            text = sentence.replace("*", "")
            tokens = tokenizer.encode(text)
            words = [
                positions for word, positions in group_words(tokenizer, tokens) if word.lower() in text.lower().split()
            ]
            if len(words) != len(text.split()):
                raise ArgumentError(f"the tokenizer of {name} does not keep the words of {text!r} apart")
            capture = lens.run(tokens)
            heads = [
                (layer, head) for layer, site in enumerate(capture.sites.names) for head in range(capture.heads(site))
            ]
            weights = torch.stack([capture.weights(capture.sites.names[layer], head).float() for layer, head in heads])
            shortened = drop_first_key(weights)
            merged, without_first = (
                torch.stack([merge_into_words(table, words, words) for table in tables])
                for tables in (weights, shortened)
            )
            vectors = None
            if embedding is not None:
                read = embedding[torch.tensor(tokens)].float()
                averages = [read[word.start : word.stop].mean(0) for word in words]
                vectors = torch.nn.functional.normalize(torch.stack(averages), dim=-1)
            maps[sentence] = WordMaps(heads, merged, without_first, vectors)
            first.append(weights[:, 1:, 0].mean(-1))
            last.append(weights[:, :-1, -1].mean(-1))
            last_word.append(merged[:, :-1, -1].mean(-1))
            distances.append(_compute_distance(without_first, _find_allowed(weights, words)))
            count_step()
    firsts, lasts, last_words = (int((torch.stack(part).mean(0) >= MANY).sum()) for part in (first, last, last_word))
    means = tuple(torch.stack(distances).mean(0).tolist())
    return PositionRow(name, len(heads), firsts, lasts, last_words, means), maps


def _find_allowed(weights: Tensor, words: Sequence[range]) -> Float[Tensor, "query key"]:
    """Return equal weights for the words that each word may attend to, without the first token."""
    reachable = drop_first_key(merge_into_words((weights.amax(0) > 0).float(), words, words).bool().float())
    return reachable / reachable.sum(-1, keepdim=True).clamp_min(1)


def _compute_distance(weights: Float[Tensor, "head query key"], equal: Float[Tensor, "query key"]) -> Tensor:
    count = weights.shape[-1]
    distance = (torch.arange(count)[:, None] - torch.arange(count)).abs()
    return (weights * distance).sum((-2, -1)) / (equal * distance).sum()


def _compute_margins(
    maps: WordMaps, later: int, earlier: int
) -> tuple[list[tuple[int, int]], Float[Tensor, "head pair"], Float[Tensor, "head pair"]]:
    """Return a pair and the others at its distance, their weights, and these less the mean of the others."""
    gap, count = later - earlier, maps.weights.shape[-1]
    other_pairs = [(query, query - gap) for query in range(gap + 1, count) if query != later]
    pairs = [(later, earlier), *other_pairs]
    weights = torch.stack([maps.without_first[:, query, key] for query, key in pairs], 1)
    means = (weights.sum(1, keepdim=True) - weights) / max(1, len(other_pairs))
    return pairs, weights, weights - means


def _compare_pair(sentence: str, later: str, earlier: str, relation: str, maps: WordMaps) -> PairRow:
    words = sentence.replace("*", "").split()
    pairs, weights, margins = _compute_margins(maps, words.index(later), words.index(earlier))
    best = int(margins[:, 0].argmax())
    better = int((margins[:, 1:].amax(0) >= margins[best, 0]).sum())
    control = float(weights[best, 1:].mean())
    return PairRow(
        f"{later} -> {earlier}", relation, maps.heads[best], float(weights[best, 0]), control, better, len(pairs) - 1
    )


def _compare_relation(
    relation: str, sentences: Sequence[str], maps: dict[str, WordMaps], draws: int, chooser: random.Random
) -> RelationRow:
    margins, cosines, other_cosines = [], [], []
    for sentence in sentences:
        earlier, later = (index for index, word in enumerate(sentence.split()) if MARKED.fullmatch(word))
        pairs, _, excess = _compute_margins(maps[sentence], later, earlier)
        margins.append(excess)
        if (vectors := maps[sentence].vectors) is not None:
            similarities = [float(vectors[query] @ vectors[key]) for query, key in pairs]
            cosines.append(similarities[0])
            other_cosines += similarities[1:]
    means = torch.stack([excess[:, 0] for excess in margins]).mean(0)
    best = int(means.argmax())
    drawn = sorted(
        float(torch.stack([excess[:, chooser.randrange(1, excess.shape[1])] for excess in margins]).mean(0).max())
        for _ in range(draws)
    )
    return RelationRow(
        relation,
        len(sentences),
        maps[sentences[0]].heads[best],
        float(means[best]),
        drawn[min(draws - 1, int(0.95 * draws))],
        sum(number >= float(means[best]) for number in drawn) / draws,
        mean(cosines) if cosines else None,
        mean(other_cosines) if other_cosines else None,
    )
