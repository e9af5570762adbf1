"""The recurrent parts of the years before 2017: an LSTM that skips padding, and an attention between its states."""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from jumok import axes
from jumok.attention import attend
from jumok.attention.mask import Mask
from jumok.attention.score import Score
from jumok.errors import ArgumentError, ShapeError
from jumok.tap import tap


def make_lstm(
    input_width: int, width: int, layers: int = 1, *, bidirectional: bool = False, dropout: float = 0.0
) -> nn.LSTM:
    """torch's LSTM (Hochreiter and Schmidhuber 1997), batch first; dropout between the layers, where there are several.

    width: of a state, both directions together.
    """
    if bidirectional and width % 2:
        raise ArgumentError(f"two directions share a state's width, so it must be even, not {width}")
    between = dropout if layers > 1 else 0.0  # torch warns of a dropout that has no place
    one_way = width // 2 if bidirectional else width
    return nn.LSTM(input_width, one_way, layers, batch_first=True, bidirectional=bidirectional, dropout=between)


class RecurrentEncoder(nn.Module):
    """An LSTM, one way or both, over the real tokens alone: padding on either side is never stepped through.

    >>> import torch
    >>> states, summary = RecurrentEncoder(5, 8)(torch.randn(2, 7, 5))
    >>> states.shape, summary.shape
    (torch.Size([2, 7, 8]), torch.Size([2, 8]))
    """

    def __init__(
        self, input_width: int, width: int, layers: int = 1, *, bidirectional: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.lstm = make_lstm(input_width, width, layers, bidirectional=bidirectional, dropout=dropout)

    def forward(
        self, inputs: Float[Tensor, "batch length input_width"], token_mask: Bool[Tensor, "row key"] | None = None
    ) -> tuple[Float[Tensor, "batch length width"], Float[Tensor, "batch width"]]:
        """The top layer's state at each place (0 at padding), and its last state: for two directions the forward
        one's at the last token beside the backward one's at the first.

        token_mask: True = a real token.
        """
        if token_mask is None:
            states, (last, _) = self.lstm(inputs)
            return states, self._summary(last)
        lengths = _lengths(inputs, token_mask)
        # The real tokens first, in their order: padding may then stand on either side. Packed, the LSTM ends each row
        # (and, going backward, begins it) at its own last token.
        order = token_mask.long().argsort(dim=1, descending=True, stable=True)
        packed = pack_padded_sequence(_taken(inputs, order), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, (last, _) = self.lstm(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=inputs.shape[1])
        return _taken(states, order.argsort(1)), self._summary(last)

    def _summary(self, last: Float[Tensor, "layer_way batch one_way"]) -> Float[Tensor, "batch width"]:
        ways = 2 if self.lstm.bidirectional else 1
        return torch.cat(list(last[-ways:]), -1)


class StateAttention(nn.Module):
    """One head without maps: the states of a decoder look at those of an encoder, by any score of the door.

    >>> import torch
    >>> from jumok.attention.score import Additive
    >>> context, weights = StateAttention(Additive(8, 6, 5))(torch.randn(2, 1, 8), torch.randn(2, 7, 6), weights=True)
    >>> context.shape, weights.shape
    (torch.Size([2, 1, 6]), torch.Size([2, 1, 1, 7]))
    """

    def __init__(self, score: Score, *, backend: str = "auto") -> None:
        super().__init__()
        self.score = score
        self.backend, self.site = backend, "attention"

    def forward(
        self,
        inputs: axes.Hidden,
        source: axes.Source,
        *,
        mask: Mask | None = None,
        query_offset: int = 0,
        weights: bool = False,
    ) -> tuple[Float[Tensor, "batch query source_width"], Float[Tensor, "batch 1 query key"] | None]:
        """The mixture of source states for each input, and the weights; None where they were not asked for.

        query_offset: how many inputs looked before these: the first stands there.
        """
        query, key = inputs[:, None], source[:, None]
        answer = attend(
            query,
            key,
            key,
            mask=mask,
            score=self.score,
            query_positions=range(query_offset, query_offset + inputs.shape[1]),
            backend=self.backend,
            site=self.site,
            weights=weights,
        )
        output, found = answer if weights else (answer, None)
        return tap(f"{self.site}.block_output", cast(Tensor, output)[:, 0]), found


def _lengths(inputs: Tensor, token_mask: Tensor) -> Tensor:
    if token_mask.shape != inputs.shape[:2]:
        raise ShapeError(
            f"token_mask is {list(token_mask.shape)}, tokens are {list(inputs.shape[:2])}; give one boolean per token"
        )
    lengths = token_mask.sum(1)
    empty = (lengths == 0).nonzero()
    if len(empty):
        raise ArgumentError(f"row {int(empty[0])} of the batch is padding alone: an LSTM needs at least one token")
    return lengths


def _taken(vectors: Tensor, order: Tensor) -> Tensor:
    """Along the length, by the order of each row."""
    return vectors.gather(1, order[..., None].expand(-1, -1, vectors.shape[-1]))
