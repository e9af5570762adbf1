"""Mask tokens of paragraphs (Devlin et al. 2019), build batches of them, and score a masked language model."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional

from jumok.data.batches.batch_order import pad_sequences
from jumok.data.token_shards import TokenShards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.models import Model
from jumok.recipes.shared.seq2seq import batch_by_length
from jumok.training import Batch

EVALUATION_BATCH = 64
SHARE = 0.15  # of each example's tokens: 80 % become the mask token, 10 % a random token, 10 % stay unchanged
EVALUATION_SEED = 2**41  # held-out texts are masked in the same way in every run

TokenIds = Int[Tensor, "batch length"]
TokenFlags = Bool[Tensor, "batch length"]


class PaddedExamples(NamedTuple):
    """Examples of equal length: the tokens, the token mask, and True where a token may be masked."""

    tokens: TokenIds
    token_mask: TokenFlags
    maskable: TokenFlags


class MaskedExamples:
    """Builds padded batches of paragraphs and scores a model on them.

    Args:
        padding_id: The padding token id to use if the tokenizer has none.
        joined: Whether an example consists of several paragraphs, with the tokens that end a text between them.
    """

    def __init__(self, tokenizer: Tokenizer, padding_id: int, *, joined: bool = False) -> None:
        self.tokenizer = tokenizer
        self.joined = joined
        self.before, self.after = find_surrounding_tokens(tokenizer)
        self.padding_id = padding_id if tokenizer.pad is None else tokenizer.pad

    @property
    def special_count(self) -> int:
        """The number of special tokens around each example."""
        return len(self.before) + len(self.after)

    def read_and_pad(self, paragraphs: TokenShards, numbers: Iterable[int]) -> PaddedExamples:
        """Read examples, and pad them to the longest."""
        rows = [[*self.before, *paragraphs.read_list(number).tolist(), *self.after] for number in numbers]
        tokens, token_mask = pad_sequences(rows, self.padding_id)
        lengths = token_mask.sum(-1, keepdim=True)
        positions = torch.arange(tokens.shape[1])
        maskable = (positions >= len(self.before)) & (positions < lengths - len(self.after))
        if self.joined:
            maskable &= ~torch.isin(tokens, torch.tensor(self.after, dtype=torch.long))
        return PaddedExamples(tokens, token_mask, maskable)

    def create_batch(
        self, paragraphs: TokenShards, numbers: list[int], generator: torch.Generator, part: int, parts: int
    ) -> Batch:
        """Mask these examples for training, and return one part of them.

        All parts are masked together, so that the masks do not depend on the number of parts.
        """
        tokens, token_mask, maskable = self.read_and_pad(paragraphs, numbers)
        inputs, positions = mask_for_training(tokens, maskable, self.tokenizer, generator)
        inputs, tokens, token_mask, positions = (
            tensor.chunk(parts)[part] for tensor in (inputs, tokens, token_mask, positions)
        )
        targets = tokens[positions]
        return Batch(
            {"tokens": inputs, "token_mask": token_mask, "positions_to_score": positions}, targets, len(targets)
        )

    def score(
        self, model: Model, paragraphs: TokenShards, numbers: list[int], constant_guess: int = -1
    ) -> dict[str, float]:
        """Return the loss, the accuracy, that of predicting ``constant_guess`` always, and the count of predictions."""
        loss = correct = constant_correct = count = 0.0
        lengths = [len(paragraphs.read_list(number)) for number in numbers]
        for batch, indices in enumerate(batch_by_length(lengths, EVALUATION_BATCH)):
            tokens, token_mask, maskable = self.read_and_pad(paragraphs, [numbers[index] for index in indices])
            inputs, positions = mask_for_evaluation(tokens, maskable, self.tokenizer, batch * EVALUATION_BATCH)
            logits = model(
                inputs.to(model.device),
                token_mask=token_mask.to(model.device),
                positions_to_score=positions.to(model.device),
            ).logits.cpu()
            targets = tokens[positions]
            loss += float(functional.cross_entropy(logits, targets, reduction="sum"))
            correct += float((logits.argmax(-1) == targets).sum())
            constant_correct += float((targets == constant_guess).sum())
            count += len(targets)
        return {
            "loss": loss / count,
            "accuracy": correct / count,
            "unigram_accuracy": constant_correct / count,
            "guesses": count,
        }

    def show_predictions(self, model: Model, texts: list[list[int]], count: int = 8) -> list[dict[str, str]]:
        """Mask the middle token of a few texts, and return the three most probable predictions for each.

        Texts are cut to 32 tokens. Joined paragraphs, which are long, are shown up to that token and read whole.
        """
        tokenizer = self.tokenizer
        rows = []
        for text in [text for text in texts if len(text) >= 8][:count]:
            tokens = text[:32]
            middle = len(tokens) // 2
            if tokens[middle] in self.after:  # between joined paragraphs
                middle += 1
            following = text[middle + 1 :] if self.joined else tokens[middle + 1 :]
            inputs = [*self.before, *tokens[:middle], tokenizer.mask, *following, *self.after]
            logits = model(torch.tensor([inputs], device=model.device)).logits[0, len(self.before) + middle]
            probabilities, predictions = logits.softmax(-1).topk(3)
            guesses = [
                f"{tokenizer.decode([token]).strip()} {probability:.0%}"
                for token, probability in zip(predictions.tolist(), probabilities.tolist(), strict=True)
            ]
            shown = f"{tokenizer.decode(tokens[:middle])} ___{tokenizer.decode(tokens[middle + 1 :])}"
            rows.append(
                {
                    "text": shown.replace("\N{REPLACEMENT CHARACTER}", ""),
                    "hidden": tokenizer.decode([tokens[middle]]).strip(),
                    "guesses": ", ".join(guesses),
                }
            )
        return rows

    def build_report(
        self, model: Model, train: TokenShards, held_out: TokenShards, numbers: list[int]
    ) -> dict[str, Any]:
        """Return the report's fields: scores on held-out examples, and predictions for a few of them."""
        most_frequent = int(count_tokens(train).argmax())
        scores = self.score(model, held_out, numbers, most_frequent)
        texts = [held_out.read_list(number).tolist() for number in numbers]
        noun = "examples" if self.joined else "paragraphs"
        return {
            **scores,
            "guesses": round(scores["guesses"]),
            "unigram_guess": self.tokenizer.decode([most_frequent]),
            "what": f"accuracy: share of the masked tokens predicted correctly, {SHARE:.0%} of the tokens of "
            f"{len(numbers):,} held-out {noun}; unigram_accuracy: always predict the most frequent token of the "
            "training text",
            "unknown_rate": train.unknown_rate,
            "try": _build_prompt(self.tokenizer, texts[0]),
            "examples": self.show_predictions(model, texts),
        }


def count_tokens(tokens: TokenShards) -> Int[Tensor, " vocabulary"]:
    """Count how often each token occurs."""
    counts = torch.zeros(tokens.vocabulary, dtype=torch.long)
    for start in range(0, len(tokens), 2**20):
        piece = tokens.read_tokens(start, min(2**20, len(tokens) - start))
        counts += torch.bincount(piece, minlength=tokens.vocabulary)
    return counts


def _build_prompt(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """Return the beginning of a text with one token masked, as a user would type it."""
    assert tokenizer.mask is not None
    before, after = tokenizer.decode(tokens[:8]), tokenizer.decode(tokens[9:16])
    prompt = f"{before} {tokenizer.id_to_token(tokenizer.mask)}{after}"
    return prompt.replace("\N{REPLACEMENT CHARACTER}", "").strip()


def mask_for_training(
    tokens: TokenIds, maskable: TokenFlags, tokenizer: Tokenizer, generator: torch.Generator
) -> tuple[TokenIds, TokenFlags]:
    """Return the model's input, and True at the positions that it has to predict.

    Some of these positions keep their token and some get a random one, so that the model has to predict every token.
    """
    positions = choose_positions(maskable, generator)
    replacement = torch.rand(tokens.shape, generator=generator)
    ordinary = list_ordinary_tokens(tokenizer)
    random_tokens = ordinary[torch.randint(len(ordinary), tokens.shape, generator=generator)]
    inputs = torch.where(positions & (replacement < 0.9), random_tokens, tokens)
    assert tokenizer.mask is not None
    return inputs.masked_fill(positions & (replacement < 0.8), tokenizer.mask), positions


def mask_for_evaluation(
    tokens: TokenIds, maskable: TokenFlags, tokenizer: Tokenizer, number: int
) -> tuple[TokenIds, TokenFlags]:
    """Return the model's input, with the mask token at every position to predict, and True at these positions.

    Equal numbers give equal positions.
    """
    positions = choose_positions(maskable, torch.Generator().manual_seed(EVALUATION_SEED + number))
    assert tokenizer.mask is not None
    return tokens.masked_fill(positions, tokenizer.mask), positions


def choose_positions(maskable: TokenFlags, generator: torch.Generator) -> TokenFlags:
    """Choose 15 % of each row's maskable positions at random, at least one."""
    ranks = torch.rand(maskable.shape, generator=generator).masked_fill(~maskable, 2.0).argsort(-1).argsort(-1)
    counts = (maskable.sum(-1, keepdim=True) * SHARE).round().clamp_min(1)
    return (ranks < counts) & maskable


@lru_cache(maxsize=2)
def list_ordinary_tokens(tokenizer: Tokenizer) -> Int[Tensor, " tokens"]:
    """Return the ids of all tokens that are not special."""
    special = {
        tokenizer.begin, tokenizer.end, tokenizer.pad, tokenizer.mask, tokenizer.unknown, tokenizer.separator,
        tokenizer.classify,
    }  # fmt: skip
    return torch.tensor([token for token in range(tokenizer.vocabulary) if token not in special])


def find_surrounding_tokens(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the special tokens that the tokenizer puts around a text: [CLS] and [SEP], <s> and </s>, or none."""
    text = tokenizer.encode("a", special=False)
    with_special = tokenizer.encode("a")
    for start in range(len(with_special) - len(text) + 1):
        if with_special[start : start + len(text)] == text:
            return with_special[:start], with_special[start + len(text) :]
    raise ArgumentError("this tokenizer encodes a text differently when it adds special tokens; use another tokenizer")
