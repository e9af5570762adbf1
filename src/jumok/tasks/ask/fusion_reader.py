"""Answer from passages with a Fusion-in-Decoder (Izacard and Grave 2021): each passage is encoded apart.

Passages never see each other in the encoder: cutting one removes its keys from the cross-attention, and nothing else
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from jumok.attention import Cache
from jumok.attention.weights import record_weights
from jumok.checkpoint import Loaded
from jumok.data.tokenizers.passage_tokens import encode_passages
from jumok.errors import ArgumentError
from jumok.models.fusion import Fusion, find_passages

from .reading import Reading, explain_split_characters, get_token_log_probabilities, list_words


class FusionReader:
    """Reads passages apart.

    Args:
        loaded: A model of the family fusion, with its tokenizer: a run of the recipe ``reader``.
    """

    def __init__(self, loaded: Loaded) -> None:
        if not isinstance(loaded.model, Fusion):
            raise ArgumentError(f"a {loaded.family} model does not read passages apart; train one: jumok train reader")
        self.model = loaded.model
        self.tokenizer = loaded.require_tokenizer()

    def explain_unreadable(self, question: str) -> str | None:
        """Return why the model cannot read a question; None if it can."""
        return explain_split_characters(self.tokenizer, question)

    @torch.inference_mode()
    def read(self, question: str, passages: Sequence[str], limit: int, cut: Collection[int] = ()) -> Reading:
        """Return the most probable text, token by token.

        Args:
            cut: The indices of passages that the decoder may not read.
        """
        source = self._encode_source(question, passages)
        tokens: list[int] = []
        log_probabilities: list[float] = []
        has_ended = False
        encoded = self.model.encode(source)
        is_kept = self._mask_passages(source, cut)
        cache, token = Cache(), self.model.config.start
        while len(tokens) < limit:
            logits = self._decode([token], encoded, is_kept, cache)[0]
            token = int(logits[-1].argmax())
            has_ended = token == self.model.config.end
            if has_ended:
                break
            tokens.append(token)
            log_probabilities += get_token_log_probabilities(logits, [token])
        text = self.tokenizer.decode(tokens).strip()
        words = list_words(self.tokenizer, tokens)
        return Reading(question, tuple(passages), tuple(tokens), text, tuple(log_probabilities), words, not has_ended)

    @torch.inference_mode()
    def score(self, question: str, passages: Sequence[str], token_ids: Sequence[int]) -> Reading:
        """Return the log-probabilities of a text that is given, token by token.

        Args:
            token_ids: The tokens of the text, at least one.
        """
        source = self._encode_source(question, passages)
        is_kept = self._mask_passages(source, ())
        logits = self._decode(self._shift(token_ids), self.model.encode(source), is_kept, None)[0]
        text = self.tokenizer.decode(token_ids).strip()
        log_probabilities = get_token_log_probabilities(logits, token_ids)
        words = list_words(self.tokenizer, token_ids)
        return Reading(question, tuple(passages), tuple(token_ids), text, log_probabilities, words)

    @torch.inference_mode()
    def score_cuts(self, reading: Reading) -> list[tuple[float, ...]]:
        """Return for each passage the log-probabilities of the text's tokens without that passage."""
        if not reading.token_ids:
            return [() for _ in reading.passages]
        source = self._encode_source(reading.question, reading.passages)
        encoded = self.model.encode(source)
        rows = [self._mask_passages(source, (index,)) for index in range(len(reading.passages))]
        logits = self._decode(self._shift(reading.token_ids), encoded, torch.cat(rows), None)
        return [get_token_log_probabilities(row, reading.token_ids) for row in logits]

    @torch.inference_mode()
    def measure_attention(self, reading: Reading) -> list[float]:
        """Return for each passage the cross-attention on it, averaged over layers, heads and tokens of the text."""
        if not reading.token_ids:
            return [0.0 for _ in reading.passages]
        source = self._encode_source(reading.question, reading.passages)
        target = torch.tensor([self._shift(reading.token_ids)], device=source.device)
        encoded = self.model.encode(source)
        with record_weights() as calls:
            self.model.decode(target, encoded)
        cross_weights = self.model.arrange_weights(calls)["cross"]
        mean_row = torch.stack(cross_weights).double().mean((0, 1, 2, 3))  # over layer, batch, head, query
        sums = mean_row.new_zeros(len(reading.passages)).index_add(0, self._number_passages(source)[0], mean_row)
        return sums.tolist()

    def _encode_source(self, question: str, passages: Sequence[str]) -> Tensor:
        """Return the tokens of all passages, [1, source]."""
        token_lists = encode_passages(self.tokenizer, self.model.config.separator, question, passages)
        tokens = [token for token_ids in token_lists for token in token_ids]
        return torch.tensor([tokens], device=self.model.device)

    def _number_passages(self, source: Tensor) -> Tensor:
        """Return the passage of each token, counted from 0."""
        return find_passages(source, self.model.config.separator) - 1

    def _mask_passages(self, source: Tensor, cut: Collection[int]) -> Tensor:
        """Return which tokens the decoder may read, [1, source]."""
        is_kept = torch.ones_like(source, dtype=torch.bool)
        for index in cut:
            is_kept &= self._number_passages(source) != index
        return is_kept

    def _shift(self, token_ids: Sequence[int]) -> list[int]:
        """Return what the decoder reads while it writes a text: the start token, and all tokens but the last."""
        return [self.model.config.start, *token_ids[:-1]]

    def _decode(self, tokens: list[int], encoded: Tensor, is_kept: Tensor, cache: Cache | None) -> Tensor:
        """Return logits [row, token, vocab], one row for each row of ``is_kept``."""
        rows = len(is_kept)
        target = torch.tensor([tokens], device=encoded.device).expand(rows, -1)
        output = self.model.decode(target, encoded.expand(rows, -1, -1), source_token_mask=is_kept, cache=cache)
        assert output.logits is not None
        return output.logits
