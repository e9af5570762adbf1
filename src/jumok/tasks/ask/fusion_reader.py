"""Answer from passages with a Fusion-in-Decoder (Izacard and Grave 2021): each passage is encoded apart.

Passages never see each other in the encoder: cutting one removes its keys from the cross-attention, and nothing else
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.tokenizers.passage_tokens import encode_passages
from jumok.errors import ArgumentError
from jumok.generate.decoding import CrossAttentionDecoder
from jumok.models.fusion import Fusion, find_passages, measure_passage_attention, score_without_passages

from .reading import Reader, Reading


class FusionReader(Reader):
    """Reads passages apart, with a model of the family fusion: a run of the recipe ``reader``."""

    def __init__(self, loaded: Loaded) -> None:
        if not isinstance(loaded.model, Fusion):
            raise ArgumentError(f"a {loaded.family} model does not read passages apart; train one: jumok train reader")
        super().__init__(loaded)
        self.model = loaded.model

    @torch.inference_mode()
    def read(self, question: str, passages: Sequence[str], limit: int, cut: Collection[int] = ()) -> Reading:
        source = self.encode_source(question, passages)
        numbers = find_passages(source, self.model.config.separator) - 1
        is_kept = ~torch.isin(numbers, torch.tensor(list(cut), device=source.device))
        decoder = CrossAttentionDecoder(self.model, self.model.encode(source), limit, is_kept, is_encoded=True)

        def step(tokens: list[int]) -> Tensor:
            return decoder.step(torch.tensor([tokens[-1:]], device=source.device))[0]

        return self._write(question, passages, limit, decoder.prefill()[0], step)

    def _is_end(self, token: int, tokens: list[int]) -> bool:
        return token == self.model.config.end

    def score(self, question: str, passages: Sequence[str], token_ids: Sequence[int]) -> Reading:
        (scores,) = self.score_without(question, passages, token_ids, [()])
        return self._build_reading(question, passages, token_ids, scores)

    def score_cuts(self, reading: Reading) -> list[tuple[float, ...]]:
        if not reading.token_ids:
            return [() for _ in reading.passages]
        cuts = [(index,) for index in range(len(reading.passages))]
        return self.score_without(reading.question, reading.passages, reading.token_ids, cuts)

    @torch.inference_mode()
    def score_without(
        self, question: str, passages: Sequence[str], token_ids: Sequence[int], cuts: Sequence[Collection[int]]
    ) -> list[tuple[float, ...]]:
        """Return the log-probabilities of a text's tokens without some passages, for each of several cuts."""
        source = self.encode_source(question, passages)
        return [tuple(row.tolist()) for row in score_without_passages(self.model, source, token_ids, cuts)]

    @torch.inference_mode()
    def measure_attention(self, reading: Reading) -> list[float]:
        if not reading.token_ids:
            return [0.0 for _ in reading.passages]
        source = self.encode_source(reading.question, reading.passages)
        return measure_passage_attention(self.model, source, reading.token_ids)

    def encode_source(self, question: str, passages: Sequence[str]) -> Tensor:
        """Return the tokens of all passages, each with the question before it, [1, source]."""
        token_lists = encode_passages(self.tokenizer, self.model.config.separator, question, passages)
        tokens = [token for token_ids in token_lists for token in token_ids]
        return torch.tensor([tokens], device=self.model.device)
