"""Recurrent layers: an LSTM encoder that skips padding, and attention between recurrent states."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from jumok import axes
from jumok.attention.mask import Mask
from jumok.attention.multihead import AttentionLayer
from jumok.attention.score import Score
from jumok.errors import ArgumentError, ShapeError
from jumok.tap import tap


def make_lstm(
    input_width: int, width: int, layers: int = 1, *, bidirectional: bool = False, dropout: float = 0.0
) -> nn.LSTM:
    """Make a batch-first LSTM (Hochreiter and Schmidhuber 1997).

    Args:
        input_width: Width of the inputs.
        width: Width of a state, both directions together.
        layers: Number of layers.
        bidirectional: Whether to read in both directions.
        dropout: Probability of dropping an output between layers in training.
    """
    if bidirectional and width % 2:
        raise ArgumentError(f"width must be even in a bidirectional LSTM, not {width}")
    dropout_between = dropout if layers > 1 else 0.0  # torch warns about dropout in a single layer
    direction_width = width // 2 if bidirectional else width
    return nn.LSTM(
        input_width, direction_width, layers, batch_first=True, bidirectional=bidirectional, dropout=dropout_between
    )


class RecurrentEncoder(nn.Module):
    """An LSTM over the real tokens; padding on either side is skipped.

    Args:
        input_width: Width of the inputs.
        width: Width of a state, both directions together.
        layers: Number of layers.
        bidirectional: Whether to read in both directions.
        dropout: Probability of dropping an output between layers in training.

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
        """Return the states of the top layer and its final state.

        Args:
            inputs: Input vectors, ``[batch, length, input_width]``.
            token_mask: True = real token, ``[batch, length]``; None if all are real.

        Returns:
            The state at each position (0 at padding), ``[batch, length, width]``; and the final state
            ``[batch, width]``: of the forward direction at the last token, and of the backward direction at the first.
        """
        if token_mask is None:
            states, (final, _) = self.lstm(inputs)
            return states, self._join_directions(final)

        if token_mask.shape != inputs.shape[:2]:
            shapes = f"token_mask is {list(token_mask.shape)}, tokens are {list(inputs.shape[:2])}"
            raise ShapeError(f"{shapes}; give one boolean per token")
        lengths = token_mask.sum(1)
        empty_rows = (lengths == 0).nonzero()
        if len(empty_rows):
            row = int(empty_rows[0])
            raise ArgumentError(f"row {row} of the batch has only padding; an LSTM needs at least one token")
        # The real tokens are moved to the front, in their order, so padding may be on either side. In a packed
        # sequence the LSTM ends each row (and starts it, going backward) at its own last token.
        order = token_mask.long().argsort(dim=1, descending=True, stable=True)
        packed = pack_padded_sequence(
            _reorder_positions(inputs, order), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        states, (final, _) = self.lstm(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=inputs.shape[1])
        return _reorder_positions(states, order.argsort(1)), self._join_directions(final)

    def _join_directions(self, final: Float[Tensor, "layer_direction batch width"]) -> Float[Tensor, "batch joined"]:
        directions = 2 if self.lstm.bidirectional else 1
        return torch.cat(list(final[-directions:]), -1)


class StateAttention(AttentionLayer):
    """One head without projections: decoder states attend to encoder states.

    Args:
        score: The formula, such as ``Additive``.
        backend: Backend of ``attend()``.

    >>> import torch
    >>> from jumok.attention.score import Additive
    >>> context, weights = StateAttention(Additive(8, 6, 5))(torch.randn(2, 1, 8), torch.randn(2, 7, 6), weights=True)
    >>> context.shape, weights.shape
    (torch.Size([2, 1, 6]), torch.Size([2, 1, 1, 7]))
    """

    def __init__(self, score: Score, *, backend: str = "auto") -> None:
        super().__init__(score, 0.0, backend, "attention")

    def forward(
        self, inputs: axes.Hidden, source: axes.Source, *, mask: Mask | None = None, query_offset: int = 0
    ) -> Float[Tensor, "batch query source_width"]:
        """Return the weighted sum of source states for each input. The call ``attention(inputs, source, weights=True)``
        returns the weights ``[batch, 1, query, key]`` too.

        Args:
            inputs: Decoder states, ``[batch, query, width]``.
            source: Encoder states, ``[batch, key, source_width]``.
            mask: Which source states each input may attend to; None allows all.
            query_offset: Position of the first input.
        """
        # under autocast the decoder's LSTM may return bfloat16 where the encoder's returns float32
        query, key = inputs[:, None].to(source.dtype), source[:, None]
        query_positions = range(query_offset, query_offset + inputs.shape[1])
        output = self._attend(query, key, key, mask, None, query_positions)
        return tap(f"{self.site}.block_output", output[:, 0])


def _reorder_positions(vectors: Tensor, order: Tensor) -> Tensor:
    """Reorder [batch, length, width] along the length, by the order of each row."""
    return vectors.gather(1, order[..., None].expand(-1, -1, vectors.shape[-1]))
