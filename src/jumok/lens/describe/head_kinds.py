"""What kind of head it is: how much of its weight lies where heads of a kind look.

Every score is a mean over rows of the weight on certain keys, from 0 to 1, over the rows that have such keys:

    previous     the token before                                      (Voita et al. 2019, "positional")
    own          the token itself
    first        the first token, from all others: an attention sink   (Xiao et al. 2023)
    local        keys at most 3 away
    duplicate    earlier tokens that are the same                      (Wang et al. 2022)
    induction    what stood behind earlier tokens that are the same    (Elhage et al. 2021, Olsson et al. 2022)
    separator    the given separators                                  (Clark et al. 2019)

Four are of another make:

    syntactic    weight at the other end of a given dependency (Voita et al. 2019), beyond what an even row puts there:
                 (weight - even) / (1 - even), for words of many tokens have long ends
    uniform      entropy of a row, divided by that of an even one
    positional   how far the distance alone tells the row: 1 less the total variation between a row and the mean profile
    semantic     correlation between weights and the cosines of given vectors, over keys that may be attended to
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.capture.capture import Capture

NEAR = 3
AT_ONCE = 2**22
#: from which score on a head is called so. Those that name certain keys come first, and the largest of them wins; then
#: the others, in this order
CERTAIN = dict.fromkeys(("induction", "previous", "duplicate", "own", "separator", "syntactic", "first"), 0.4)
OTHERS = {"uniform": 0.95, "local": 0.6, "positional": 0.8, "semantic": 0.5}


@dataclass(frozen=True)
class HeadKind:
    """One head: its scores (None where the text has no such place), mean entropy in nats and mean distance. shares: of
    all its weight, how much lies on the keys of each kind, whether rows have such keys or not; this is what
    TransformerLens' detect_head gives."""

    site: str
    head: int
    scores: dict[str, float | None]
    entropy: float
    distance: float
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The kind whose keys have the most weight, or another that fits, or "mixed"."""
        found = {name: score for name, score in self.scores.items() if score is not None}
        certain = [name for name, least in CERTAIN.items() if found.get(name, 0.0) >= least]
        others = [name for name, least in OTHERS.items() if found.get(name, 0.0) >= least]
        if "uniform" in others:  # it looks everywhere, and so at whatever a kind is named for
            return "uniform"
        return max(certain, key=lambda name: found[name], default=others[0] if others else "mixed")


def classify_heads(
    run: Capture,
    tokens: Sequence[int] | Tensor,
    *,
    separators: Iterable[int] = (),
    arcs: Iterable[tuple[int, int]] = (),
    vectors: Float[Tensor, "token width"] | None = None,
    sites: Iterable[str] | None = None,
    batch: int = 0,
) -> list[HeadKind]:
    """Every head of every self-attention of a run over ``tokens``, or of these sites alone.

    separators: positions of separators. arcs: pairs of positions, (dependent, governor); both directions count.
    vectors: what the tokens mean, for "semantic"; usually the embedding's rows.
    """
    if isinstance(tokens, str):
        raise ArgumentError("kinds compares tokens: give their numbers, as the run read them")
    ids = torch.as_tensor(tokens).cpu()
    if ids.dim() > 1 and len(ids) > 1:
        raise ArgumentError(f"kinds looks at one text at a time; {len(ids)} were given (batch= says which was run)")
    ids = ids.flatten()
    meant = None if vectors is None else vectors.detach().float().cpu()
    places = _Places(ids, sorted(set(separators)), list(arcs), meant)
    found = []
    for site in run.sites.names if sites is None else sites:
        attention = run.attentions[site]
        if attention.queries != len(ids) or attention.keys != len(ids):
            continue  # it looks at something else than this text
        found += [_kind(run, site, head, places, batch) for head in range(attention.heads)]
    if not found:
        raise ArgumentError(f"no attention of this run looks from {len(ids)} tokens at the same {len(ids)}")
    return found


def draw_repeated_tokens(
    vocabulary: int, length: int = 50, seed: int = 0, start: int | None = None
) -> Int[Tensor, " token"]:
    """Random tokens, and the same again: what induction and duplicate heads are tried on. ``start``: a first token."""
    if vocabulary < 1 or length < 1:
        raise ArgumentError(f"{length} of {vocabulary} tokens cannot be drawn; both are at least 1")
    draw = torch.Generator().manual_seed(seed)
    once = torch.randint(vocabulary, (length,), generator=draw)
    begin = [] if start is None else [torch.tensor([start])]
    return torch.cat([*begin, once, once])


def score_induction(run: Capture, layer: int | str, head: int, period: int, batch: int = 0) -> float:
    """On tokens that come again after ``period``: the mean weight on what lies one less than that behind (Olsson et al.
    2022; so TransformerLens' demonstrations have it, the row before the first repeat counted in)."""
    found = run.attention(layer)
    rows = range(period - 1, found.queries)
    if len(rows) < 2:
        raise ArgumentError(f"{found.queries} tokens do not repeat after {period}")
    weights = run.tile(layer, head, slice(rows.start, None), slice(None), batch)
    return float(weights.diagonal().mean())


@dataclass
class _Places:
    tokens: Tensor
    separators: list[int]
    arcs: list[tuple[int, int]]
    vectors: Tensor | None
    all_rows: dict[str, Tensor] | None = None

    def __post_init__(self) -> None:
        count = len(self.tokens)
        named = [*self.separators, *(end for arc in self.arcs for end in arc)]
        odd = next((one for one in named if not 0 <= one < count), None)
        if odd is not None:
            raise ArgumentError(f"there are {count} tokens, counted from 0; {odd} is none of them")
        if self.vectors is not None:
            if len(self.vectors) != count:
                raise ArgumentError(f"there are {count} tokens and {len(self.vectors)} vectors; give one for each")
            self.vectors = torch.nn.functional.normalize(self.vectors, dim=-1)

    def wanted(self, rows: Tensor) -> dict[str, Tensor]:
        """For these rows, which keys heads of each kind look at: [row, key]. Of a text that is one piece it is made
        once, for every head."""
        if len(rows) < len(self.tokens):
            return self._wanted(rows)
        if self.all_rows is None:
            self.all_rows = self._wanted(rows)
        return self.all_rows

    def _wanted(self, rows: Tensor) -> dict[str, Tensor]:
        columns = torch.arange(len(self.tokens))
        back = rows[:, None] - columns  # how far each key lies behind
        same = self.tokens[rows][:, None] == self.tokens
        behind_same = torch.zeros_like(same)
        behind_same[:, 1:] = same[:, :-1] & (back[:, :-1] > 0)
        found = {
            "previous": back == 1,
            "own": back == 0,
            "first": (columns == 0) & (rows[:, None] > 0),
            "local": back.abs() <= NEAR,
            "duplicate": same & (back > 0),
            "induction": behind_same & (back >= 0),
        }
        if self.separators:
            found["separator"] = torch.isin(columns, torch.tensor(self.separators)).expand_as(same)
        if self.arcs:
            ends = torch.zeros(len(self.tokens), len(self.tokens), dtype=torch.bool)
            for one, other in self.arcs:
                ends[one, other] = ends[other, one] = True
            found["syntactic"] = ends[rows]
        return found


def _kind(run: Capture, site: str, head: int, places: _Places, batch: int) -> HeadKind:
    count = len(places.tokens)
    step = max(1, AT_ONCE // count)
    blocks = [slice(begin, min(begin + step, count)) for begin in range(0, count, step)]
    sums: dict[str, float] = {}
    shares: dict[str, float] = {}
    rows_with: dict[str, int] = {}
    profile, reached = torch.zeros(2 * count - 1), torch.zeros(2 * count - 1)
    entropies = evenness = distances = 0.0
    several = 0
    pairs: list[Any] = []
    piece = _Pieces(run, site, head, batch, len(blocks) == 1)
    for block in blocks:
        rows = torch.arange(block.start, block.stop)
        tile, free = piece(block)
        for name, cells in places.wanted(rows).items():
            possible = (cells & free).any(-1)
            weight = (tile * cells).sum(-1)
            if name == "syntactic":
                weight, possible = subtract_uniform(weight, cells, free)
            sums[name] = sums.get(name, 0.0) + float(weight[possible].sum())
            shares[name] = shares.get(name, 0.0) + float((tile * cells).sum()) / count
            rows_with[name] = rows_with.get(name, 0) + int(possible.sum())
        back = rows[:, None] - torch.arange(count)
        entropy = torch.special.entr(tile).sum(-1)
        open_keys = free.sum(-1)
        entropies += float(entropy.sum())
        evenness += float((entropy / open_keys.clamp_min(2).log())[open_keys > 1].sum())
        several += int((open_keys > 1).sum())
        distances += float((tile * back.abs()).sum())
        profile.index_add_(0, (back + count - 1).flatten(), tile.flatten())
        reached.index_add_(0, (back + count - 1).flatten(), free.float().flatten())
        if places.vectors is not None:
            pairs.append(_moments(tile, places.vectors[rows] @ places.vectors.T, free))
    scores: dict[str, float | None] = {name: sums[name] / rows_with[name] if rows_with[name] else None for name in sums}
    scores["uniform"] = evenness / several if several else None
    scores["positional"] = _told_by_distance(piece, blocks, profile / reached.clamp_min(1))
    if pairs:
        scores["semantic"] = _correlation(torch.stack(pairs).sum(0))
    return HeadKind(site, head, scores, entropies / count, distances / count, shares)


def subtract_uniform(weight: Tensor, cells: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """By row: the weight on these cells beyond what an even row has there; and for which rows that means something."""
    here = (cells & free).sum(-1)
    even = here / free.sum(-1).clamp_min(1)
    return (weight - even) / (1 - even).clamp_min(1e-9), (here > 0) & (even < 1)


class _Pieces:
    """Rows of a head's map, and which of their cells are open; a map of one piece is made once."""

    def __init__(self, run: Capture, site: str, head: int, batch: int, once: bool) -> None:
        self.run, self.site, self.head, self.batch, self.once = run, site, head, batch, once
        self.kept: tuple[Tensor, Tensor] | None = None

    def __call__(self, block: slice) -> tuple[Tensor, Tensor]:
        if self.kept is not None:
            return self.kept
        tile = self.run.tile(self.site, self.head, block, slice(None), self.batch).float().cpu()
        free = self.run.attentions[self.site].allowed(self.batch, self.head, block, slice(None)).cpu()
        if self.once:
            self.kept = tile, free
        return tile, free


def _told_by_distance(piece: _Pieces, blocks: list[slice], profile: Tensor) -> float | None:
    count = (len(profile) + 1) // 2
    close, rows_counted = 0.0, 0
    for block in blocks:
        rows = torch.arange(block.start, block.stop)
        tile, free = piece(block)
        expected = profile[rows[:, None] - torch.arange(count) + count - 1] * free
        expected = expected / expected.sum(-1, keepdim=True).clamp_min(1e-12)
        several = free.sum(-1) > 1
        close += float((1 - (tile - expected).abs().sum(-1) / 2)[several].sum())
        rows_counted += int(several.sum())
    return close / rows_counted if rows_counted else None


def _moments(one: Tensor, other: Tensor, where: Tensor) -> Tensor:
    a, b = one[where].double(), other[where].double()
    return torch.stack([torch.tensor(float(len(a))).double(), a.sum(), b.sum(), a @ a, b @ b, a @ b])


def _correlation(moments: Tensor) -> float | None:
    n, a, b, aa, bb, ab = moments.tolist()
    spread = (n * aa - a * a) * (n * bb - b * b)
    return None if spread <= 0 else float((n * ab - a * b) / spread**0.5)
