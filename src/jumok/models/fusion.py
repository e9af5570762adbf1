"""Fusion-in-Decoder (Izacard and Grave 2021): a question and passages in, an answer out.

    source  -> [separator] question passage 1 [separator] question passage 2 ... : one sequence of tokens
    encoder -> each passage attends to itself only, with positions from 0: mask.documents(passage ids)
    decoder -> the cross-attention reads all passages

It is a Transformer whose encoder has another mask: its time grows with the number of passages, not with the square of
it, and the order of the passages does not change the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from jumok.attention import mask
from jumok.attention.grid import Positions
from jumok.attention.weights import record_weights
from jumok.errors import ArgumentError
from jumok.fields import choice, integer
from jumok.layers.token_inputs import check_token_mask, check_tokens
from jumok.tap import has_listeners

from .encoder_decoder import BlockSettings
from .transformer import Transformer, TransformerConfig

# Passages that are encoded as a batch are padded to the longest one. With more padding than this, one sequence with a
# mask is faster.
MAX_PADDED_TOKENS = 2.0


@dataclass(frozen=True)
class FusionConfig(TransformerConfig):
    """The config of a Fusion-in-Decoder; the defaults are those of the Transformer, with pre-norm."""

    family: ClassVar[str] = "fusion"

    length: int = integer(512, "the longest passage or target, in tokens; the source may be longer")
    order: str = choice("pre", ("post", "pre"), "post-norm or pre-norm")
    separator: int = integer(3, "the token that begins a passage", least=0)

    def check(self) -> None:
        super().check()
        self.check_special_tokens(self.vocabulary, separator=self.separator)
        for name, token in (("start", self.start), ("end", self.end), ("pad", self.pad)):
            if token == self.separator:
                raise ArgumentError(f"separator and {name} must be different tokens; both are token {token}")


class Fusion(Transformer):
    """An encoder-decoder that reads several passages apart: ``model(source, target).logits`` is
    [batch, target, target vocabulary], at each position the logits of the next token. Tokens of the source before the
    first separator form a passage, too.

    Args:
        config: Sizes and variants.
    """

    family = "fusion"
    config_class = FusionConfig
    config: FusionConfig

    def _embed_source(self, source: Tensor, token_mask: Tensor | None) -> tuple[Tensor, BlockSettings]:
        embedded, settings = super()._embed_source(source, token_mask)
        inside = mask.documents(find_passages(source, self.config.separator))
        return embedded, {**settings, "mask": inside if token_mask is None else inside & mask.padding(token_mask)}

    def _locate_source(self, source: Tensor, token_mask: Tensor | None) -> Positions:
        """Return the positions of the tokens in their passages, counted over the real tokens."""
        is_real = torch.ones_like(source) if token_mask is None else token_mask.long()
        count = is_real.cumsum(1)
        # the number of real tokens before the passage: at its separator, the count without the separator itself
        before = torch.where(source == self.config.separator, count - is_real, 0).cummax(1).values
        positions = (count - 1 - before).clamp_min(0)
        # reading values would break the graph, and an empty batch has none
        if len(source) and not (positions.is_meta or torch.compiler.is_compiling()):
            self._check_length(int(positions.max()) + 1)
        return positions

    def encode(self, source: Tensor, *, source_token_mask: Tensor | None = None) -> Tensor:
        """Encode each passage by itself. A listener needs one sequence with a mask; otherwise the passages are encoded
        as a batch, which gives the same vectors of real tokens faster."""
        if has_listeners() or source.is_meta or torch.compiler.is_compiling():
            return super().encode(source, source_token_mask=source_token_mask)
        check_tokens(source, self.config.vocabulary)
        check_token_mask(source, source_token_mask)
        batch = _split_passages(source, source_token_mask, self.config.separator, self.config.pad)
        if batch is None:
            return super().encode(source, source_token_mask=source_token_mask)

        encoded = super().encode(batch.tokens, source_token_mask=batch.token_mask)
        hidden = encoded.new_zeros(*source.shape, encoded.shape[-1])  # padding stays 0
        hidden[batch.rows, batch.columns] = encoded[batch.passages, batch.offsets]
        return hidden


def find_passages(source: Tensor, separator: int) -> Tensor:
    """Return the passage of every token, [batch, source]: the number of separators up to it.

    >>> find_passages(torch.tensor([[9, 5, 6, 9, 7]]), 9)
    tensor([[1, 1, 1, 2, 2]])
    """
    return (source == separator).cumsum(1)


def score_without_passages(
    model: Fusion, source: Tensor, answer: Sequence[int], cuts: Sequence[Collection[int]]
) -> Tensor:
    """Return the log-probability of each token of an answer, [cut, token]: one row for each set of cut passages.

    The decoder may not read a cut passage. Passages are encoded apart, so that nothing else changes; they are counted
    from 0, and () cuts none.
    """
    passages = find_passages(source, model.config.separator)[0] - 1
    cut_rows = [torch.isin(passages, torch.tensor(list(cut), device=source.device)) for cut in cuts]
    target = torch.tensor([[model.config.start, *answer[:-1]]], device=source.device).expand(len(cuts), -1)
    encoded = model.encode(source).expand(len(cuts), -1, -1)
    logits = model.decode(target, encoded, source_token_mask=~torch.stack(cut_rows)).logits
    assert logits is not None
    chosen = torch.tensor([*answer], device=source.device)[None, :, None].expand(len(cuts), -1, -1)
    return logits.float().log_softmax(-1).gather(-1, chosen)[..., 0]


def measure_passage_attention(model: Fusion, source: Tensor, answer: Sequence[int]) -> list[float]:
    """Return for each passage the cross-attention on it, averaged over layers, heads and tokens of an answer."""
    passages = find_passages(source, model.config.separator)[0]
    target = torch.tensor([[model.config.start, *answer[:-1]]], device=source.device)
    encoded = model.encode(source)
    with record_weights() as calls:
        model.decode(target, encoded)
    weights = torch.stack(model.arrange_weights(calls)["cross"]).double().mean((0, 1, 2, 3))  # [key]
    sums = weights.new_zeros(int(passages.max()) + 1).index_add(0, passages, weights)
    return sums[1:].tolist()


class _PassageBatch(NamedTuple):
    """Passages as rows of a batch; the real token i is at [rows[i], columns[i]] of the source."""

    tokens: Tensor  # [passage, length]
    token_mask: Tensor
    rows: Tensor
    columns: Tensor
    passages: Tensor
    offsets: Tensor


def _split_passages(source: Tensor, token_mask: Tensor | None, separator: int, pad: int) -> _PassageBatch | None:
    """Return the passages of all sources as one batch; None if that does not save time."""
    real_tokens = torch.ones_like(source, dtype=torch.bool) if token_mask is None else token_mask
    rows, columns = real_tokens.nonzero(as_tuple=True)
    if not len(rows):
        return None

    ids = find_passages(source, separator)[rows, columns] + rows * (source.shape[1] + 1)
    _, passages, counts = torch.unique_consecutive(ids, return_inverse=True, return_counts=True)
    first_tokens = counts.cumsum(0) - counts
    offsets = columns - columns[first_tokens][passages]
    count, length = len(counts), int(offsets.max()) + 1
    if count == len(source) or count * length > MAX_PADDED_TOKENS * len(rows):
        return None

    tokens = source.new_full((count, length), pad)
    tokens[passages, offsets] = source[rows, columns]
    passage_mask = torch.zeros_like(tokens, dtype=torch.bool)
    passage_mask[passages, offsets] = True
    return _PassageBatch(tokens, passage_mask, rows, columns, passages, offsets)
