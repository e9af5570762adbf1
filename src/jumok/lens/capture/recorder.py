"""What passed the door at a site: queries, keys and each row's log-sum-exp, and the mask, bias and score as values.

That is enough for any weight of any head, exactly, and grows with the length of the text, not with its square.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from jumok.attention.bias import Bias
from jumok.attention.grid import Grid, Positions, count_positions
from jumok.attention.mask import Mask
from jumok.attention.score import Score
from jumok.tap import Listener

#: what attend tells of itself, as the last word of a site
WHOLE = 4096  # keys; rows up to this long are made whole
HEARD = ("query", "key", "mask", "bias", "score", "positions", "logsumexp")


@dataclass
class CapturedCall:
    """One call of the door: [batch, head, query, width] and what belongs to it."""

    query: Tensor
    key: Tensor
    mask: Mask | None
    bias: Bias | None
    score: Score
    query_positions: Positions
    key_positions: Positions
    logsumexp: Tensor | None = None

    @property
    def rows(self) -> int:
        return self.query.shape[2]

    @property
    def keys(self) -> int:
        return self.key.shape[2]

    def tile(self, batch: int, head: int, queries: slice, keys: slice) -> Tensor:
        """Weights [query, key] of these rows and columns, counted from 0 in this call."""
        # the kernels' log-sum-exp is float32, and where scores are large its last bit is felt in the weights; short
        # rows are cheap to make whole in float64. The linear backend knows no log-sum-exp.
        if self.keys <= WHOLE or self.logsumexp is None:
            return self._whole_rows(batch, head, queries)[:, keys].to(
                torch.promote_types(self.query.dtype, torch.float32)
            )
        scores = self._scores(batch, head, queries, keys)
        total = self.logsumexp[batch, head, queries, None].to(scores)
        # a row that may attend to nothing has a sum of -inf, and weights of 0
        return torch.exp(scores - total).masked_fill(total == -torch.inf, 0.0)

    def _scores(self, batch: int, head: int, queries: slice, keys: slice, wide: torch.dtype | None = None) -> Tensor:
        """Masked scores [query, key], in float32 or wider."""
        several = getattr(self.score, "heads", 1) > 1  # parameters of every head: they must see every head
        heads = slice(None) if several else slice(head, head + 1)
        group = head // (self.query.shape[1] // self.key.shape[1])
        groups = slice(None) if several else slice(group, group + 1)
        wide = torch.promote_types(self.query.dtype, torch.float32) if wide is None else wide
        query = self.query[batch : batch + 1, heads, queries].to(wide)
        key = self.key[batch : batch + 1, groups, keys].to(wide)
        scores = self.score.evaluate(query, key)
        scores = scores[0, head if several else 0]
        grid = self._grid(batch, head, queries, keys)
        if self.bias is not None:
            scores = scores + self.bias.evaluate(grid).to(wide)[0, 0]
        if self.mask is not None:
            scores = scores.masked_fill(~self.mask.evaluate(grid)[0, 0].expand(scores.shape), -torch.inf)
        return scores

    def allowed(self, batch: int, head: int, queries: slice, keys: slice) -> Tensor:
        """Which of these cells the mask allows: [query, key]."""
        grid = self._grid(batch, head, queries, keys)
        if self.mask is None:
            return torch.ones(grid.shape[2:], dtype=torch.bool, device=self.query.device)
        return self.mask.evaluate(grid)[0, 0].expand(grid.shape[2:])

    def _grid(self, batch: int, head: int, queries: slice, keys: slice) -> Grid:
        return Grid(
            range(batch, batch + 1),
            range(head, head + 1),
            _cut(self.query_positions, batch, queries),
            _cut(self.key_positions, batch, keys),
            self.query.device,
        )

    def _whole_rows(self, batch: int, head: int, queries: slice) -> Tensor:
        double = torch.float32 if self.query.device.type == "mps" else torch.float64
        scores = self._scores(batch, head, queries, slice(None), double)
        if self.score.sink is not None:
            column = self.score.sink[head].to(scores).expand(scores.shape[0], 1)
            return torch.cat([scores, column], -1).softmax(-1)[:, :-1].nan_to_num(0.0)
        return scores.softmax(-1).nan_to_num(0.0)


def _cut(positions: Positions, batch: int, part: slice) -> Positions:
    if isinstance(positions, range):
        return positions[part]
    return positions[batch if len(positions) > 1 else 0, part] if positions.dim() == 2 else positions[part]


@dataclass
class CapturedAttention:
    """All calls of one site, one after another: rows of a decoding or of a recurrent network stand under each other."""

    site: str
    calls: list[CapturedCall] = field(default_factory=list)

    @property
    def heads(self) -> int:
        return self.calls[0].query.shape[1]

    @property
    def batch(self) -> int:
        return self.calls[0].query.shape[0]

    @property
    def queries(self) -> int:
        return sum(call.rows for call in self.calls)

    @property
    def keys(self) -> int:
        return max(begin + call.keys for begin, call in zip(self._begins, self.calls, strict=True))

    @property
    def _begins(self) -> list[int]:
        """At which column each call's keys begin: a cache with a window forgets the first ones."""
        first = [call.key_positions.start if isinstance(call.key_positions, range) else 0 for call in self.calls]
        return [one - min(first) for one in first]

    @property
    def query_positions(self) -> list[int]:
        """Where the rows stand, of the first batch row."""
        return [place for call in self.calls for place in _places(call.query_positions)]

    @property
    def key_positions(self) -> list[int]:
        if len(self.calls) == 1:
            return _places(self.calls[0].key_positions)
        return sorted({place for call in self.calls for place in _places(call.key_positions)})

    @property
    def bytes(self) -> int:
        kept = [one for call in self.calls for one in (call.query, call.key, call.logsumexp) if one is not None]
        storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in kept}
        return sum(storages.values())

    def tile(self, batch: int, head: int, queries: slice, keys: slice) -> Tensor:
        """Weights [query, key]; keys that a call did not have, yet or any more, get 0."""
        return self._joined(CapturedCall.tile, batch, head, queries, keys)

    def allowed(self, batch: int, head: int, queries: slice, keys: slice) -> Tensor:
        """Which of these cells the masks allow: [query, key]."""
        return self._joined(CapturedCall.allowed, batch, head, queries, keys)

    def _joined(self, part: Callable[..., Tensor], batch: int, head: int, queries: slice, keys: slice) -> Tensor:
        first, last, _ = queries.indices(self.queries)
        left, right, _ = keys.indices(self.keys)
        parts, begin = [], 0
        for column, call in zip(self._begins, self.calls, strict=True):
            low, high = max(first - begin, 0), min(last - begin, call.rows)
            begin += call.rows
            if low >= high:
                continue
            start, stop = (min(max(edge - column, 0), call.keys) for edge in (left, right))
            found = part(call, batch, head, slice(low, high), slice(start, stop))
            before = min(max(column - left, 0), right - left)  # columns of the tile that this call no longer had
            parts.append(torch.nn.functional.pad(found, (before, right - left - before - found.shape[1])))
        if not parts:
            return self.calls[0].query.new_zeros(0, max(0, right - left))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _alone(value: Tensor) -> Tensor:
    """Queries and keys may be parts of one large product; kept as such, they would keep the values too."""
    return value.clone() if value.untyped_storage().nbytes() > value.nbytes else value


def _places(positions: Positions) -> list[int]:
    if isinstance(positions, range):
        return list(positions)
    return (positions[0] if positions.dim() == 2 else positions).tolist()


class Recorder(Listener):
    """A listener that keeps what attend tells, site by site. ``keep``: further words to keep as they are ("output",
    "value", "block_output", "input", "feedforward_output")."""

    def __init__(self, keep: tuple[str, ...] = (), sites: frozenset[str] | None = None) -> None:
        self.keep, self.sites = frozenset(keep), sites
        self.attentions: dict[str, CapturedAttention] = {}
        self.kept: dict[str, Tensor] = {}
        self._coming: dict[str, dict[str, Any]] = {}

    def accepts(self, site: str) -> bool:
        place, _, word = site.rpartition(".")
        return (word in HEARD or word in self.keep) and (self.sites is None or place in self.sites)

    def __call__(self, site: str, value: Any) -> Any:
        place, _, word = site.rpartition(".")
        if word in self.keep:
            before = self.kept.get(site)
            self.kept[site] = value if before is None or value.dim() < 3 else torch.cat([before, value], -2)
        if word in HEARD:
            self._hear(place, word, value)
        return value

    def _hear(self, place: str, word: str, value: Any) -> None:
        if word == "logsumexp":  # told last, where it is told
            self.attentions[place].calls[-1].logsumexp = value.detach()
            return
        coming = self._coming.setdefault(place, {})
        coming[word] = _alone(value.detach()) if isinstance(value, Tensor) else value
        if word == "positions":
            made = self._coming.pop(place)
            (queries, keys) = made.pop("positions")
            assert count_positions(queries) == made["query"].shape[2]
            self.attentions.setdefault(place, CapturedAttention(place)).calls.append(
                CapturedCall(**made, query_positions=queries, key_positions=keys)
            )
