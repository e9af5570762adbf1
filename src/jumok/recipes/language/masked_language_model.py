"""Recipe ``masked``: train a BERT to predict masked tokens from the text on both sides (Devlin et al. 2019).

Examples are paragraphs, and a tenth of them is held out. In held-out paragraphs every scored position is masked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs, pad_sequences
from jumok.data.token_store.token_shards import TokenShards, fingerprint_tokenizer
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import integer, optional
from jumok.models import Model
from jumok.models.bert import BERT, BERTConfig
from jumok.recipes.recipe import Defaults, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.batched_decoding import batch_by_length
from jumok.recipes.shared.run_tokenizer import FOLDER
from jumok.training import Batch, Settings, Task

from .masking import SHARE, find_surrounding_tokens, mask_for_evaluation, mask_for_training
from .paragraphs import MIN_TOKENS, ParagraphOptions, load_or_learn_tokenizer, prepare_paragraphs

VALIDATION_EXAMPLES = 500  # held-out examples that choose the best checkpoint; the report uses other ones
REPORT_EXAMPLES = 2_000
WAVE_AMPLITUDE = 0.05  # of the sines and cosines that the position embedding starts from
EVALUATION_BATCH = 64

CONFIG = BERTConfig(length=128, width=128, layers=4, heads=4, hidden=512, segments=1, head="mlm")
SETTINGS_FROM_SCRATCH: dict[str, Any] = {
    "steps": 3000, "batch": 32, "optimizer": "muon", "learning_rate": 4e-3, "matrix_rate": 1e-2, "final_rate": 0.02,
    "warmup": 100, "beta2": 0.98, "decay": 0.01, "clip": 1.0, "evaluate_every": 500, "save_every": 500,
}  # fmt: skip
SETTINGS_FINE_TUNING: dict[str, Any] = {
    "steps": 500, "batch": 32, "learning_rate": 2e-4, "final_rate": 0.0, "warmup": 50, "beta2": 0.98,
    "decay": 0.01, "clip": 1.0, "evaluate_every": 100, "save_every": 100,
}  # fmt: skip


@dataclass(frozen=True)
class MaskedOptions(ParagraphOptions):
    """Fields of the recipe masked."""

    with_start = ("window",)

    window: int | None = optional(integer(128, "longest example in tokens; None = 128, or the model's length", 8))


def get_masked_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings: a small BERT, or a low learning rate for a pretrained one.

    Args:
        request: The training request.
    """
    if request.start is not None:
        return Defaults(SETTINGS_FINE_TUNING)
    return Defaults(SETTINGS_FROM_SCRATCH, (CONFIG,))


def create_masked_task(request: TrainingRequest) -> Task:
    """Train a small BERT to predict masked tokens, or continue with an existing BERT.

    Args:
        request: The training request; ``--data`` is texts, by default books of Project Gutenberg.
    """
    loaded = request.load_start()
    settings = request.settings(**get_masked_defaults(request).settings)
    if loaded is None:
        tokenizer = load_or_learn_tokenizer(request)
        model = _create_model(request, tokenizer, settings)
        length = model.config.length
    else:
        tokenizer, model = _continue_model(request, loaded, settings)
        tokenizer.save(request.folder / FOLDER)
        length = request.options(MaskedOptions).window or min(128, model.config.length)
    examples = MaskedExamples(tokenizer, model.config.padding_id or 0)
    max_tokens = min(length, model.config.length) - examples.special_count
    if max_tokens < MIN_TOKENS:
        raise ArgumentError(f"a length of {length} leaves no room for a text; give at least 8")

    train, held_out, facts = prepare_paragraphs(request, tokenizer, max_tokens)
    order = LengthGroups(ShuffledEpochs(train.lists, settings.seed), lambda number: len(train.read_list(number)))
    validation_count = held_out.lists if held_out.lists < 4 else min(VALIDATION_EXAMPLES, held_out.lists // 4)
    shuffled = ShuffledEpochs(held_out.lists).batch_indices(0, min(held_out.lists, validation_count + REPORT_EXAMPLES))
    validation = shuffled[:validation_count]
    reported = shuffled[validation_count:] or shuffled

    def batches(step: int, part: int, parts: int) -> Batch:
        # masked for all parts together and then cut, so that the masks do not depend on the number of parts
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        tokens, token_mask, maskable = examples.pad(train, order.batch_indices(step, settings.batch))
        inputs, positions = mask_for_training(tokens, maskable, tokenizer, generator)
        inputs, tokens, token_mask, positions = (
            tensor.chunk(parts)[part] for tensor in (inputs, tokens, token_mask, positions)
        )
        targets = tokens[positions]
        return Batch(
            {"tokens": inputs, "token_mask": token_mask, "positions_to_score": positions}, targets, len(targets)
        )

    def evaluate(model: Model) -> dict[str, float]:
        scores = examples.score(model, held_out, validation)
        return {"loss": scores["loss"], "accuracy": scores["accuracy"]}

    def report(model: Model, folder: Path) -> dict[str, Any]:
        most_frequent = int(count_tokens(train).argmax())
        scores = examples.score(model, held_out, reported, most_frequent)
        texts = [held_out.read_list(number).tolist() for number in reported]
        return {
            **scores,
            "guesses": round(scores["guesses"]),
            "unigram_guess": tokenizer.decode([most_frequent]),
            "what": f"accuracy: share of the masked tokens predicted correctly, {SHARE:.0%} of the tokens of "
            f"{len(reported):,} held-out paragraphs; unigram_accuracy: always predict the most frequent token of the "
            "training text",
            "unknown_rate": train.unknown_rate,
            **facts,
            "try": _write_prompt(tokenizer, texts[0]),
            "examples": examples.show_predictions(model, texts),
        }

    data = {
        "examples": train.lists, "tokens": len(train), "held_out": held_out.lists, "vocabulary": tokenizer.vocabulary,
        "tokenizer": fingerprint_tokenizer(tokenizer),
    }  # fmt: skip
    return Task(model, settings, batches, compute_masked_loss, evaluate, tokenizer=tokenizer, data=data, report=report)


masked = recipe(get_masked_defaults, MaskedOptions)(create_masked_task)


class MaskedExamples:
    """Builds padded batches of paragraphs and scores a model on them."""

    def __init__(self, tokenizer: Tokenizer, padding_id: int) -> None:
        """Look up the special tokens of the tokenizer.

        Args:
            tokenizer: The run's tokenizer; it has a mask token.
            padding_id: The padding token if the tokenizer has none.
        """
        self.tokenizer = tokenizer
        self.before, self.after = find_surrounding_tokens(tokenizer)
        self.padding_id = padding_id if tokenizer.pad is None else tokenizer.pad

    @property
    def special_count(self) -> int:
        """The number of special tokens around each example."""
        return len(self.before) + len(self.after)

    def pad(
        self, paragraphs: TokenShards, numbers: Iterable[int]
    ) -> tuple[Int[Tensor, "batch length"], Bool[Tensor, "batch length"], Bool[Tensor, "batch length"]]:
        """Return the tokens of these examples, the token mask, and True where a token may be masked.

        Args:
            paragraphs: The stored paragraphs.
            numbers: Which of them.
        """
        rows = [[*self.before, *paragraphs.read_list(number).tolist(), *self.after] for number in numbers]
        tokens, token_mask = pad_sequences(rows, self.padding_id)
        lengths = token_mask.sum(-1, keepdim=True)
        positions = torch.arange(tokens.shape[1])
        maskable = (positions >= len(self.before)) & (positions < lengths - len(self.after))
        return tokens, token_mask, maskable

    def score(
        self, model: Model, paragraphs: TokenShards, numbers: list[int], constant_guess: int = -1
    ) -> dict[str, float]:
        """Return the loss, the accuracy, the accuracy of a constant guess and the number of predictions.

        Args:
            model: A BERT with a masked-language-model head.
            paragraphs: The stored paragraphs.
            numbers: Which of them.
            constant_guess: The token that the comparison always predicts; default -1, no token.
        """
        loss = correct = constant_correct = count = 0.0
        lengths = [len(paragraphs.read_list(number)) for number in numbers]
        for batch, indices in enumerate(batch_by_length(lengths, EVALUATION_BATCH)):
            tokens, token_mask, maskable = self.pad(paragraphs, [numbers[index] for index in indices])
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

        Args:
            model: A BERT with a masked-language-model head.
            texts: The token ids of each text.
            count: The largest number of texts.
        """
        tokenizer = self.tokenizer
        rows = []
        for tokens in [text[:32] for text in texts if len(text) >= 8][:count]:
            middle = len(tokens) // 2
            inputs = [*self.before, *tokens[:middle], tokenizer.mask, *tokens[middle + 1 :], *self.after]
            logits = model(torch.tensor([inputs], device=model.device)).logits[0, len(self.before) + middle]
            probabilities, predictions = logits.softmax(-1).topk(3)
            guesses = [
                f"{tokenizer.decode([token]).strip()} {probability:.0%}"
                for token, probability in zip(predictions.tolist(), probabilities.tolist(), strict=True)
            ]
            text = f"{tokenizer.decode(tokens[:middle])} ___{tokenizer.decode(tokens[middle + 1 :])}"
            rows.append(
                {
                    "text": text.replace("\N{REPLACEMENT CHARACTER}", ""),
                    "hidden": tokenizer.decode([tokens[middle]]).strip(),
                    "guesses": ", ".join(guesses),
                }
            )
        return rows


def compute_masked_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy of the masked tokens, summed.

    Args:
        model: A BERT with a masked-language-model head.
        batch: Its inputs include ``positions_to_score``; its targets are the tokens at these positions.
    """
    return functional.cross_entropy(model(**batch.inputs).logits, batch.targets, reduction="sum")


def count_tokens(tokens: TokenShards) -> Int[Tensor, " vocabulary"]:
    """Count how often each token occurs.

    Args:
        tokens: The stored tokens; they are read piece by piece.
    """
    counts = torch.zeros(tokens.vocabulary, dtype=torch.long)
    for start in range(0, len(tokens), 2**20):
        piece = tokens.read_tokens(start, min(2**20, len(tokens) - start))
        counts += torch.bincount(piece, minlength=tokens.vocabulary)
    return counts


def _create_model(request: TrainingRequest, tokenizer: Tokenizer, settings: Settings) -> BERT:
    config = request.config(CONFIG)
    model = request.model(BERT, config.replace(vocabulary=tokenizer.vocabulary, head="mlm"), settings)
    _initialise_as_waves(model.positions.table.weight)
    return model


@torch.no_grad()
def _initialise_as_waves(table: Tensor) -> None:
    """Start the learned positions as sines and cosines.

    One rotation then maps each position to the next, and heads soon attend to the neighbours of a masked token. From
    independent random positions they did not within this recipe's steps.
    """
    length, width = table.shape
    exponents = torch.arange(width // 2) / (width // 2)
    angles = torch.arange(length)[:, None] * float(length) ** -exponents
    table[:, : 2 * len(exponents)] = torch.cat([angles.sin(), angles.cos()], -1) * WAVE_AMPLITUDE


def _continue_model(request: TrainingRequest, loaded: Loaded, settings: Settings) -> tuple[Tokenizer, BERT]:
    """Return the loaded BERT; without a masked-language-model head it gets a new one."""
    if not isinstance(loaded.model, BERT):
        raise ArgumentError(f"the recipe masked continues a bert; {request.start} is a {loaded.family}")
    tokenizer = loaded.tokenizer
    if tokenizer is None or tokenizer.mask is None:
        raise ArgumentError(f"the recipe masked needs a tokenizer with a mask token; {request.start} has none")
    config, parameters = loaded.model.config, loaded.model.state_dict()
    if config.head != "mlm":
        activation = config.activation if config.padding_id is None else "gelu"  # as in BERT's and RoBERTa's heads
        config = config.replace(head="mlm", head_activation=activation)
        parameters = {name: tensor for name, tensor in parameters.items() if not name.startswith("head.")}
    model = request.model(BERT, config, settings)
    mismatches = model.load_state_dict(parameters, strict=False)
    assert not mismatches.unexpected_keys
    assert all(name.startswith("head.") for name in mismatches.missing_keys)
    return tokenizer, model


def _write_prompt(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """Return the beginning of a text with one token masked, as a user would type it."""
    assert tokenizer.mask is not None
    before, after = tokenizer.decode(tokens[:8]), tokenizer.decode(tokens[9:16])
    prompt = f"{before} {tokenizer.id_to_token(tokenizer.mask)}{after}"
    return prompt.replace("\N{REPLACEMENT CHARACTER}", "").strip()
