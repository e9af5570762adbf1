"""The recorded calls of one attention, and the exact weights that follow from them.

A call stores queries, keys, each row's log-sum-exp, and the mask, bias and score objects. Any tile of any head's
weights can be computed from these exactly, and their size grows linearly with the length of the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.attention.bias import Bias
from jumok.attention.grid import Grid, Positions, convert_positions
from jumok.attention.mask import Mask
from jumok.attention.score import ScaledDot, Score

FULL_ROW_KEYS = 4096  # rows with at most this many keys are computed completely, in float64

WeightTile = Float[Tensor, "query key"]
AllowedTile = Bool[Tensor, "query key"]


@dataclass
class CapturedCall:
    """One call of ``attend()``; its methods count queries and keys from 0 within this call."""

    query: Tensor  # [batch, head, query, head_width]
    key: Tensor  # [batch, group, key, head_width]
    mask: Mask | None
    bias: Bias | None
    score: Score
    query_positions: Positions
    key_positions: Positions
    logsumexp: Tensor | None = None  # [batch, head, query]; None for the linear backend

    @property
    def queries(self) -> int:
        return self.query.shape[2]

    @property
    def keys(self) -> int:
        return self.key.shape[2]

    @property
    def tensors(self) -> list[Tensor]:
        """The captured tensors, for the memory that they take."""
        return [tensor for tensor in (self.query, self.key, self.logsumexp) if tensor is not None]

    def tile(self, row: int, head: int, queries: slice | Tensor, keys: slice) -> WeightTile:
        """Compute the weights of a tile; its rows are a slice of the queries, or some of them."""
        if self.logsumexp is None or self.needs_full_rows:
            rows = self._compute_full_rows(row, head, queries)
            return rows[:, keys].to(self._result_dtype)
        scores = self._compute_scores(row, head, queries, keys, self._result_dtype)
        total = self.logsumexp[row, head, queries, None].to(scores)
        # a row whose mask forbids every key has a log-sum-exp of -inf and weights of 0
        return torch.exp(scores - total).masked_fill(total == -torch.inf, 0.0)

    @property
    def needs_full_rows(self) -> bool:
        """Whether a tile is cut from complete rows, so that a narrow tile costs as much as a wide one."""
        # The kernels' log-sum-exp is float32; for large scores its last bit changes the weights noticeably. Short rows
        # are cheap to compute completely in float64. The linear backend has no log-sum-exp.
        return self.keys <= FULL_ROW_KEYS or self.logsumexp is None

    def bound_keys(self, queries: slice) -> tuple[int, int]:
        """Return the first and the end of the keys that these queries may attend to, as far as the mask's band says."""
        positions = self.key_positions
        if self.mask is None or not isinstance(self.query_positions, range) or not isinstance(positions, range):
            return 0, self.keys
        rows = self.query_positions[queries]
        if not rows or not positions or rows.step != 1 or positions.step != 1:
            return 0, self.keys
        behind, ahead = self.mask.band
        first = 0 if behind is None else rows[0] - behind - positions[0]
        end = self.keys if ahead is None else rows[-1] + ahead - positions[0] + 1
        first = min(max(first, 0), self.keys)
        return first, max(min(end, self.keys), first)

    def evaluate_mask(self, row: int, head: int, queries: slice | Tensor, keys: slice) -> AllowedTile:
        """Evaluate the mask of a tile: True where the query may attend to the key."""
        grid = self._build_grid(row, head, queries, keys)
        if self.mask is None:
            return torch.ones(grid.shape[2:], dtype=torch.bool, device=self.query.device)
        return self.mask.evaluate(grid)[0, 0].expand(grid.shape[2:])

    def evaluate_bias(self, row: int, head: int, queries: slice, keys: slice) -> WeightTile:
        """Evaluate the bias of a tile; zeros without a bias."""
        grid = self._build_grid(row, head, queries, keys)
        if self.bias is None:
            return torch.zeros(grid.shape[2:], device=self.query.device)
        return self.bias.evaluate(grid)[0, 0].expand(grid.shape[2:])

    @property
    def _result_dtype(self) -> torch.dtype:
        """The dtype of the queries, but at least float32."""
        return torch.promote_types(self.query.dtype, torch.float32)

    def _compute_scores(
        self, row: int, head: int, queries: slice | Tensor, keys: slice, dtype: torch.dtype
    ) -> WeightTile:
        """Compute the scores with bias, -inf where the mask forbids."""
        all_heads = self.score.differs_by_head
        group = head // (self.query.shape[1] // self.key.shape[1])
        heads = slice(None) if all_heads else slice(head, head + 1)
        groups = slice(None) if all_heads else slice(group, group + 1)

        query = self.query[row : row + 1, heads, queries].to(dtype)
        key = self.key[row : row + 1, groups, keys].to(dtype)
        scores = self.score.evaluate(query, key)[0, head if all_heads else 0]

        grid = self._build_grid(row, head, queries, keys)
        if self.bias is not None:
            scores = scores + self.bias.evaluate(grid).to(dtype)[0, 0]
        if self.mask is not None and not self.mask.allows_all(grid):
            scores = scores.masked_fill(~self.mask.evaluate(grid)[0, 0].expand(scores.shape), -torch.inf)
        return scores

    def _build_grid(self, row: int, head: int, queries: slice | Tensor, keys: slice) -> Grid:
        return Grid(
            range(row, row + 1),
            range(head, head + 1),
            _slice_row_positions(self.query_positions, row, queries),
            _slice_row_positions(self.key_positions, row, keys),
            self.query.device,
        )

    def _compute_full_rows(self, row: int, head: int, queries: slice | Tensor) -> WeightTile:
        """Compute complete rows by softmax, in float64 where the device supports it."""
        dtype = torch.float32 if self.query.device.type == "mps" else torch.float64
        scores = self._compute_scores(row, head, queries, slice(None), dtype)
        if self.score.sink is not None:
            sink = self.score.sink[head].to(scores).expand(scores.shape[0], 1)
            return torch.cat([scores, sink], -1).softmax(-1)[:, :-1].nan_to_num(0.0)
        return scores.softmax(-1).nan_to_num(0.0)


@dataclass
class CapturedAttention:
    """All calls of one site during a forward pass; its methods count queries and keys over all calls.

    Decoding and recurrent networks call an attention once for each step; the rows of successive calls are stacked.
    """

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
        """The number of queries of all calls."""
        return sum(call.queries for call in self.calls)

    @property
    def keys(self) -> int:
        """The number of distinct key columns of all calls."""
        return max(first + call.keys for first, call in zip(self._first_columns, self.calls, strict=True))

    @property
    def query_positions(self) -> list[int]:
        """The positions of all queries, in the first batch row."""
        return [position for call in self.calls for position in list_positions(call.query_positions)]

    @property
    def key_positions(self) -> list[int]:
        """The positions of all keys, in the first batch row."""
        if len(self.calls) == 1:
            return list_positions(self.calls[0].key_positions)
        return sorted({position for call in self.calls for position in list_positions(call.key_positions)})

    @property
    def device(self) -> torch.device:
        return self.calls[0].query.device

    @property
    def bytes(self) -> int:
        """The memory of the captured tensors, in bytes."""
        storages = [tensor.untyped_storage() for call in self.calls for tensor in call.tensors]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def tile(self, row: int, head: int, queries: slice, keys: slice) -> WeightTile:
        """Compute the weights of a tile; keys that a call did not have get weight 0."""
        return self._join_calls(lambda call, *cells: call.tile(*cells), row, head, queries, keys)

    def read_rows(self, row: int, head: int, queries: Tensor) -> tuple[WeightTile, AllowedTile]:
        """Compute the complete rows of some queries, and evaluate their masks."""
        everything = slice(None)
        if len(self.calls) == 1:
            (call,) = self.calls
            return call.tile(row, head, queries, everything), call.evaluate_mask(row, head, queries, everything)
        weights = self.tile(row, head, everything, everything)
        return weights[queries], self.evaluate_mask(row, head, everything, everything)[queries]

    @property
    def needs_full_rows(self) -> bool:
        """Whether a tile of some call is cut from complete rows."""
        return any(call.needs_full_rows for call in self.calls)

    def bound_keys(self, queries: slice) -> tuple[int, int]:
        """Return the first and the end of the keys that these queries may attend to, as ``CapturedCall`` does."""
        return self.calls[0].bound_keys(queries) if len(self.calls) == 1 else (0, self.keys)

    def evaluate_mask(self, row: int, head: int, queries: slice, keys: slice) -> AllowedTile:
        """Evaluate the masks of a tile: True where the query may attend to the key."""
        return self._join_calls(lambda call, *cells: call.evaluate_mask(*cells), row, head, queries, keys).bool()

    @property
    def _first_columns(self) -> list[int]:
        """The column of each call's first key; a cache with a window drops the earliest keys."""
        starts = [call.key_positions.start if isinstance(call.key_positions, range) else 0 for call in self.calls]
        return [start - min(starts) for start in starts]

    def _join_calls(self, compute: Callable[..., Tensor], row: int, head: int, queries: slice, keys: slice) -> Tensor:
        """Compute a tile call by call, pad each part to the columns of the tile, and stack the rows."""
        first_row, last_row, _ = queries.indices(self.queries)
        left, right, _ = keys.indices(self.keys)
        parts = []
        call_start = 0
        for first_column, call in zip(self._first_columns, self.calls, strict=True):
            low, high = max(first_row - call_start, 0), min(last_row - call_start, call.queries)
            call_start += call.queries
            if low >= high:
                continue
            start, stop = (min(max(edge - first_column, 0), call.keys) for edge in (left, right))
            part = compute(call, row, head, slice(low, high), slice(start, stop))
            before = min(max(first_column - left, 0), right - left)  # columns whose keys this call no longer had
            after = right - left - before - part.shape[1]
            parts.append(torch.nn.functional.pad(part, (before, after)))
        if not parts:
            return self.calls[0].query.new_zeros(0, max(0, right - left))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class WeightTable(CapturedCall):
    """Weights [batch, head, query, key] that a model returned itself: they can be read, but not edited."""

    def __init__(self, table: Tensor) -> None:
        batch, heads, queries, keys = table.shape
        query, key = table.new_empty(batch, heads, queries, 0), table.new_empty(batch, heads, keys, 0)
        super().__init__(query, key, None, None, ScaledDot(), range(queries), range(keys))
        self.table = table

    @property
    def tensors(self) -> list[Tensor]:
        return [self.table]

    @property
    def needs_full_rows(self) -> bool:
        return False

    def tile(self, row: int, head: int, queries: slice | Tensor, keys: slice) -> WeightTile:
        return self.table[row, head, queries, keys].float()

    def evaluate_mask(self, row: int, head: int, queries: slice | Tensor, keys: slice) -> AllowedTile:
        return self.table[row, head, queries, keys] > 0


def list_positions(positions: Positions) -> list[int]:
    """Return positions as a list; for positions ``[batch, length]``, those of the first batch row."""
    if isinstance(positions, range):
        return list(positions)
    return (positions[0] if positions.dim() == 2 else positions).tolist()


def _slice_row_positions(positions: Positions, row: int, indices: slice | Tensor) -> Positions:
    """Return a slice of the positions of one batch row, or some of them."""
    if isinstance(positions, range):
        if isinstance(indices, Tensor):
            return convert_positions(positions, indices.device)[indices]
        return positions[indices]
    if positions.dim() == 2:
        return positions[row if len(positions) > 1 else 0, indices]
    return positions[indices]
