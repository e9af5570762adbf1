"""Questions with passages as token ids: batches for training, and answers of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jumok.data.batches.batch_order import pad_sequences
from jumok.data.datasets.invented_facts import PassageQuestion
from jumok.data.tokenizers.passage_tokens import encode_passages
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.models import Model
from jumok.recipes.shared.batched_decoding import generate_by_length
from jumok.training import IGNORE_INDEX, Batch

SPECIAL_TOKENS = {"pad": "<pad>", "begin": "<s>", "end": "</s>", "separator": "<passage>"}
ANSWER_BATCH = 32


@dataclass(frozen=True)
class ReadingTexts:
    """The tokenizer of a reader, and its special tokens."""

    tokenizer: Tokenizer
    separator: int
    longest: int
    is_apart: bool = True

    def encode_source(self, example: PassageQuestion) -> list[int]:
        """Return the source of a model: all passages one after another."""
        passages = encode_passages(self.tokenizer, self.separator, example.question, example.passages)
        tokens = [token for passage in passages for token in passage[: self.longest]]
        return tokens if self.is_apart else tokens[: self.longest]

    def encode_answer(self, answer: str) -> list[int]:
        """Return the tokens of an answer and the end token."""
        # with the space before it, a name has the same tokens as inside a passage
        tokens = self.tokenizer.encode(f" {answer}", special=False)[: self.longest - 1]
        return [*tokens, self._require(self.tokenizer.end)]

    def create_batch(self, examples: Sequence[PassageQuestion]) -> Batch:
        """Return a batch for an encoder-decoder: the decoder reads the answer shifted by one position."""
        pad, begin = self._require(self.tokenizer.pad), self._require(self.tokenizer.begin)
        answers = [self.encode_answer(example.answer) for example in examples]
        source, token_mask = pad_sequences([self.encode_source(example) for example in examples], pad)
        target, _ = pad_sequences([[begin, *answer[:-1]] for answer in answers], pad)
        targets, _ = pad_sequences(answers, IGNORE_INDEX)
        inputs = {"source": source, "target": target}
        if not bool(token_mask.all()):
            inputs["source_token_mask"] = token_mask
        return Batch(inputs, targets, sum(map(len, answers)))

    def answer(self, model: Model, examples: Sequence[PassageQuestion], limit: int) -> list[str]:
        """Return the greedy answers of a model."""
        sources = [self.encode_source(example) for example in examples]
        ends = (self._require(self.tokenizer.end),)
        answers = generate_by_length(model, sources, limit=limit, ends=ends, size=ANSWER_BATCH)
        return [self.tokenizer.decode(tokens, special=False).strip() for tokens in answers]

    def _require(self, token: int | None) -> int:
        if token is None:
            raise ArgumentError("the tokenizer of a reader needs a padding, a begin and an end token")
        return token
