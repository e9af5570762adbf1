"""Build batches of masked paragraphs, and score a masked language model on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional

from jumok.data.batches.batch_order import pad_sequences
from jumok.data.token_shards import TokenShards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models import Model
from jumok.recipes.shared.batched_decoding import batch_by_length
from jumok.training import Batch

from .masking import SHARE, find_surrounding_tokens, mask_for_evaluation, mask_for_training

EVALUATION_BATCH = 64


class PaddedExamples(NamedTuple):
    """Examples of equal length: the tokens, the token mask, and True where a token may be masked."""

    tokens: Int[Tensor, "batch length"]
    token_mask: Bool[Tensor, "batch length"]
    maskable: Bool[Tensor, "batch length"]


class MaskedExamples:
    """Builds padded batches of paragraphs and scores a model on them."""

    def __init__(self, tokenizer: Tokenizer, padding_id: int, *, joined: bool = False) -> None:
        """Look up the special tokens of the tokenizer.

        Args:
            padding_id: The padding token id to use if the tokenizer has none.
            joined: Whether an example consists of several paragraphs, with the tokens that end a text between them.
        """
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
        """Return the loss, the accuracy, the accuracy of ``constant_guess`` and the number of predictions.

        Args:
            constant_guess: The token id that the baseline always predicts; default -1, no token.
        """
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

    def write_report(
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
