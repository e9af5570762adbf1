"""Compare the weights between related words of annotated sentences with those between other words at equal distance.

Neighbouring words are often related, so a head that attends to the previous word has a large weight on dependencies
without following syntax. Clark et al. (2019) and Voita et al. (2019) compare heads with the best fixed offset; here
each pair has controls at its own distance:

    syntactic_margin    the weight from word to word along a relation (subject, object, ...), minus the mean weight of
                        unrelated words at the same distance; the largest over the relations
    semantic_margin     the correlation of weights with the cosine similarities of the words' embeddings, after the mean
                        of each distance has been subtracted from both

Both leave out the first token, on which heads put the weight that they do not need, and pairs of a word with itself.
The second leaves out repeated words too, which duplicate-token heads attend to.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .head_statistics import drop_first_key, merge_into_words

MIN_ARCS = 8  # a relation with fewer pairs is not scored by itself
MIN_CONTROLS = 3  # pairs at a distance with fewer controls are left out
MIN_SIMILARITIES = 50  # the correlation of fewer pairs is mostly chance

Head = tuple[str, int]  # site, head


class AnnotatedSentence(NamedTuple):
    """A sentence with the governor of each word."""

    words: tuple[str, ...]
    governors: tuple[int, ...]  # the index of the governor of each word; -1 for the root
    relations: tuple[str, ...]  # as in Universal Dependencies ("nsubj", "det", ...)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def arcs(self) -> list[tuple[int, int]]:
        """The pairs (dependent, governor), as word indices."""
        return [(word, governor) for word, governor in enumerate(self.governors) if governor >= 0]


def parse_annotation(annotation: str) -> AnnotatedSentence:
    """Parse a sentence such as ``"the>1:det cat>2:nsubj slept>-1:root"``: word, governor and relation."""
    pairs = [word.rpartition(">") for word in annotation.split()]
    governors, relations = zip(*(label.split(":") for _, _, label in pairs), strict=True)
    return AnnotatedSentence(tuple(word for word, _, _ in pairs), tuple(map(int, governors)), relations)


#: as they are written in the file
ANNOTATIONS: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("annotated_sentences.toml").read_text("utf-8")
)
ENGLISH_SENTENCES = tuple(map(parse_annotation, ANNOTATIONS["english"]))
KOREAN_SENTENCES = tuple(map(parse_annotation, ANNOTATIONS["korean"]))


class SentenceMargin(NamedTuple):
    """How much a head's weights on related words exceed those on other words at equal distance."""

    syntactic: float | None  # the largest margin of a relation; None without enough pairs
    relation: str  # that relation and its direction, for example "nsubj, backward"; "" if there is none
    semantic: float | None  # the correlation with similarities; None without enough pairs or embeddings


@dataclass
class WordPairs:
    """The pairs of different words in sentences of one language, and the weight of every head on each of them."""

    heads: list[Head] = field(default_factory=list)
    distances: list[int] = field(default_factory=list)  # of each pair, in words; negative for later keys
    relations: list[str] = field(default_factory=list)  # with the direction; "" for unrelated words
    similarities: list[float] = field(default_factory=list)  # cosines; NaN for equal words and without embeddings
    weights: list[Float[Tensor, "head pair"]] = field(default_factory=list)  # of each sentence

    def add_sentence(
        self,
        sentence: AnnotatedSentence,
        words: Sequence[range],
        weights: dict[Head, Float[Tensor, "query key"]],
        allowed: Bool[Tensor, "query key"],
        vectors: Float[Tensor, "token width"] | None,
    ) -> None:
        """Add the pairs of a sentence; ``vectors`` are the embeddings of its tokens."""
        reachable = merge_into_words(allowed.float(), words, words) > 0
        word_vectors = None
        if vectors is not None:
            means = torch.stack([vectors[word.start : word.stop].mean(0) for word in words])
            word_vectors = torch.nn.functional.normalize(means, dim=-1)

        relations = {}
        for dependent, governor in sentence.arcs:
            for query, key in ((dependent, governor), (governor, dependent)):
                direction = "backward" if key < query else "forward"
                relations[query, key] = f"{sentence.relations[dependent]}, {direction}"
        pairs = [
            (query, key)
            for query in range(len(words))
            for key in range(len(words))
            # without the first token, a word that consists of it has no weight
            if query != key and reachable[query, key] and words[key] != range(1)
        ]
        self.heads = list(weights)
        self.distances += [query - key for query, key in pairs]
        self.relations += [relations.get(pair, "") for pair in pairs]
        for query, key in pairs:
            similarity = float("nan")
            is_repeated = sentence.words[query].lower() == sentence.words[key].lower()
            if word_vectors is not None and not is_repeated:
                similarity = float(word_vectors[query] @ word_vectors[key])
            self.similarities.append(similarity)
        rows, columns = torch.tensor(pairs).T
        merged = [merge_into_words(drop_first_key(table), words, words)[rows, columns] for table in weights.values()]
        self.weights.append(torch.stack(merged))

    def compute_margins(self) -> dict[Head, SentenceMargin]:
        """Compute the margins of every head."""
        if not self.weights:
            return {}
        names = sorted(set(self.relations) - {""})
        weights, distances = torch.cat(self.weights, 1), torch.tensor(self.distances)
        syntactic = compute_syntactic_margins(weights, distances, self.number_relations(), len(names))
        semantic = compute_semantic_margins(weights, distances, torch.tensor(self.similarities))
        margins = {}
        for index, head in enumerate(self.heads):
            largest = syntactic[:, index].nan_to_num(-torch.inf).max(0) if names else None
            has_relation = largest is not None and bool(largest.values > -torch.inf)
            margins[head] = SentenceMargin(
                float(largest.values) if largest is not None and has_relation else None,
                names[int(largest.indices)] if largest is not None and has_relation else "",
                None if semantic is None else float(semantic[index]),
            )
        return margins

    def number_relations(self) -> Int[Tensor, " pair"]:
        """Return the number of each pair's relation in alphabetical order; -1 for unrelated words."""
        names = sorted(set(self.relations) - {""})
        return torch.tensor([names.index(name) if name else -1 for name in self.relations])


def compute_syntactic_margins(
    weights: Float[Tensor, "head pair"],
    distances: Int[Tensor, " pair"],
    relations: Int[Tensor, " pair"],
    count: int,
) -> Float[Tensor, "relation head"]:
    """Compute, for each relation, the mean weight minus that of unrelated pairs at equal distance.

    The relation of unrelated words is -1; the margin of a relation with too few pairs is NaN.
    """
    excess = weights.clone()
    has_controls = torch.zeros(len(distances), dtype=torch.bool)
    for distance in distances.unique():
        is_equal = distances == distance
        controls = is_equal & (relations < 0)
        if int(controls.sum()) >= MIN_CONTROLS:
            has_controls |= is_equal
            excess[:, is_equal] -= weights[:, controls].mean(1, keepdim=True)
    margins = torch.full((count, len(weights)), torch.nan)
    for relation in range(count):
        members = has_controls & (relations == relation)
        if int(members.sum()) >= MIN_ARCS:
            margins[relation] = excess[:, members].mean(1)
    return margins


def compute_semantic_margins(
    weights: Float[Tensor, "head pair"], distances: Int[Tensor, " pair"], similarities: Float[Tensor, " pair"]
) -> Float[Tensor, " head"] | None:
    """Correlate weights with similarities after subtracting from both their mean at each distance.

    Pairs whose similarity is NaN are left out; None with fewer than 50 pairs.
    """
    is_usable = similarities.isfinite()
    if int(is_usable.sum()) < MIN_SIMILARITIES:
        return None
    x, y, distances = weights[:, is_usable].double(), similarities[is_usable].double(), distances[is_usable]
    for distance in distances.unique():
        is_equal = distances == distance
        x[:, is_equal] -= x[:, is_equal].mean(1, keepdim=True)
        y[is_equal] -= y[is_equal].mean()
    return ((x @ y) / (x.norm(dim=1) * y.norm()).clamp_min(1e-12)).float()
