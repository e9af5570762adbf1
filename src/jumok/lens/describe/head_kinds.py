"""Classify heads by the keys that their weights fall on.

Most scores are the mean weight on certain keys, from 0 to 1, over the rows that have such keys:

    previous     the previous token                                       (Voita et al. 2019, "positional")
    own          the token itself
    first        the first token, from all others: an attention sink      (Xiao et al. 2023)
    local        keys at a distance of at most 3
    duplicate    earlier occurrences of the same token                    (Wang et al. 2022)
    induction    the token after an earlier occurrence of the same token  (Elhage et al. 2021, Olsson et al. 2022)
    separator    the given separators                                     (Clark et al. 2019)

Four are defined differently:

    syntactic    the weight on the other end of a given dependency (Voita et al. 2019) in excess of uniform attention:
                 (weight - uniform) / (1 - uniform), because words with many tokens attract weight
    uniform      the entropy of a row, divided by that of a uniform row
    positional   how well the distance alone predicts a row: 1 minus the total variation distance between the row and
                 the mean profile over distances
    semantic     the correlation of weights with the cosine similarities of given vectors, over allowed keys other
                 than the token itself

Two are measured on annotated sentences and compared with control pairs (``sentence_margins.py``): syntactic_margin and
semantic_margin. A short text has too few pairs for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture

from .head_statistics import HeadStatistics, KeyPatterns, build_row_functions

MARGIN = "_margin"  # ends the name of a score that is compared with control pairs

#: the smallest score at which a head is named after a kind. Among the kinds that select certain keys, the largest
#: score wins; otherwise the other kinds are tried in this order. 0.4 for syntactic_margin and
#: 0.2 for semantic_margin are where random control pairs no longer reach (bench/results, "Kinds of heads")
KEY_KINDS = dict.fromkeys(
    ("induction", "previous", "duplicate", "own", "separator", "syntactic", "syntactic_margin", "first"), 0.4
)
OTHER_KINDS = {
    "uniform": 0.95,
    "semantic_margin": 0.2,
    "local": 0.6,
    "positional": 0.8,
    "semantic": 0.5,
}


@dataclass(frozen=True)
class HeadKind:
    """The scores of one head.

    Attributes:
        site: The attention's site name.
        head: The head.
        scores: The score of each kind; None where the text has no such keys.
        entropy: The mean entropy of the rows, in nats.
        distance: The mean distance between query and key, in tokens.
        shares: The share of all weight on the keys of each kind, over all rows; the same as ``detect_head`` in
            TransformerLens.
        scores_without_first: The scores of the same rows without the first key, normalised again: what an attention
            sink hides.
    """

    site: str
    head: int
    scores: dict[str, float | None]
    entropy: float
    distance: float
    shares: dict[str, float] = field(default_factory=dict)
    scores_without_first: dict[str, float | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The kind with the largest score on certain keys, else another kind that fits, else "mixed"."""
        return _name_kind(self.scores)

    @property
    def name_without_first(self) -> str:
        """The kind of the same rows without the first key."""
        return _name_kind(self.scores_without_first)


def _name_kind(all_scores: dict[str, float | None]) -> str:
    scores = {name: score for name, score in all_scores.items() if score is not None}
    key_kinds = [name for name, least in KEY_KINDS.items() if scores.get(name, 0.0) >= least]
    other_kinds = [name for name, least in OTHER_KINDS.items() if scores.get(name, 0.0) >= least]
    if "uniform" in other_kinds:  # uniform attention covers the keys of every kind
        return "uniform"
    name = max(key_kinds, key=lambda name: scores[name], default=other_kinds[0] if other_kinds else "mixed")
    return name.removesuffix(MARGIN)


def classify_heads(
    capture: Capture,
    tokens: Sequence[int] | Tensor,
    *,
    separators: Iterable[int] = (),
    arcs: Iterable[tuple[int, int]] = (),
    vectors: Float[Tensor, "token width"] | None = None,
    sites: Iterable[str] | None = None,
    batch: int = 0,
    queries: Int[Tensor, " query"] | None = None,
) -> list[HeadKind]:
    """Compute the scores of every head of every self-attention over a text.

    Args:
        capture: A capture of the text.
        tokens: The token ids of the text.
        separators: The positions of separators, for "separator".
        arcs: Dependencies as pairs of positions (dependent, governor), for "syntactic"; both directions count.
        vectors: A vector for each token, for "semantic"; usually the rows of the embedding.
        sites: Only these attentions; default: all over this text.
        batch: The batch row.
        queries: Only the rows of these queries, such as ``sample_queries`` draws of a long text; default: all.

    Returns:
        The heads, in execution order.

    Raises:
        ArgumentError: If no attention has the length of the tokens, or a position does not exist.
    """
    if isinstance(tokens, str):
        raise ArgumentError("classify_heads compares token ids; give the ids that the capture read, not a text")
    token_ids = torch.as_tensor(tokens).cpu()
    if token_ids.dim() > 1 and len(token_ids) > 1:
        raise ArgumentError(f"classify_heads reads one text at a time, not {len(token_ids)}; select it with batch=")
    token_ids = token_ids.flatten()
    count = len(token_ids)
    token_vectors = None if vectors is None else vectors.detach().float().cpu()
    patterns = KeyPatterns(token_ids, sorted(set(separators)), list(arcs), token_vectors, queries)

    kinds: list[HeadKind] = []
    for site in capture.sites.names if sites is None else sites:
        attention = capture.attentions[site]
        if attention.queries != count or attention.keys != count:
            continue  # a cross-attention, or an attention over something else
        for head in range(attention.heads):
            read_rows, read_without_first = build_row_functions(capture, site, head, patterns, batch)
            statistics = HeadStatistics.collect(read_rows, patterns)
            without_first = HeadStatistics.collect(read_without_first, patterns)
            kinds.append(HeadKind(site, head, *statistics, without_first.scores))
    if not kinds:
        raise ArgumentError(f"this capture has no self-attention over {count} tokens; give the tokens that it read")
    return kinds


def sample_queries(count: int, size: int, seed: int = 0) -> Int[Tensor, " query"]:
    """Draw ``size`` queries of a text, one from each of as many equal parts; all of them if there are not more.

    >>> sample_queries(10, 3).tolist(), len(sample_queries(2, 3))
    ([3, 5, 8], 2)
    """
    if count <= size:
        return torch.arange(count)
    # equal parts: scores change along a text, and parts of it drawn more often would shift their means
    shares = torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return ((torch.arange(size) + shares) * count / size).long()


def sample_repeated_tokens(
    vocabulary: int, length: int = 50, seed: int = 0, start: int | None = None
) -> Int[Tensor, " token"]:
    """Draw random tokens and repeat them once, a text that reveals induction and duplicate-token heads.

    Args:
        vocabulary: The number of tokens to choose from.
        length: The length of the repeated part.
        seed: The seed.
        start: A token to put first; default: none.

    >>> sample_repeated_tokens(256, length=3).shape
    torch.Size([6])
    """
    if vocabulary < 1 or length < 1:
        raise ArgumentError(f"vocabulary and length must be at least 1, not {vocabulary} and {length}")
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (length,), generator=generator)
    prefix = [] if start is None else [torch.tensor([start])]
    return torch.cat([*prefix, tokens, tokens])


def score_induction(capture: Capture, layer: int | str, head: int, period: int, batch: int = 0) -> float:
    """Compute the induction score on repeated tokens (Olsson et al. 2022).

    It is the mean weight on the key ``period - 1`` positions back, as in the demonstrations of TransformerLens, which
    include the row before the first repetition.

    Args:
        capture: A capture of tokens that repeat.
        layer: The layer's number or site name.
        head: The head.
        period: The number of tokens after which the text repeats.
        batch: The batch row.

    Raises:
        ArgumentError: If the text is too short to repeat.
    """
    attention = capture.attention(layer)
    first_row = period - 1
    if attention.queries - first_row < 2:
        raise ArgumentError(f"{attention.queries} tokens are too few to repeat after {period}")
    weights = capture.tile(layer, head, slice(first_row, None), slice(None), batch)
    return float(weights.diagonal().mean())
