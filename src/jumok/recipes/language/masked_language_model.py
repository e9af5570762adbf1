"""Recipe ``masked``: train a BERT to predict masked tokens from the text on both sides (Devlin et al. 2019).

Examples are paragraphs, and a tenth of them is held out. In held-out paragraphs every scored token is replaced by
the mask token.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs
from jumok.data.token_store.token_shards import fingerprint_tokenizer
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import integer, optional
from jumok.models import Model
from jumok.models.bert import BERT, BERTConfig
from jumok.recipes.recipe import Defaults, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import save_tokenizer
from jumok.training import Batch, DataSummary, Settings, Task

from .masked_examples import MaskedExamples
from .paragraphs import FACTS_FILE, MIN_TOKENS, ParagraphOptions, load_or_learn_tokenizer, prepare_paragraphs

VALIDATION_EXAMPLES = 500  # held-out examples that choose the best checkpoint; the report uses other ones
REPORT_EXAMPLES = 2_000
WAVE_AMPLITUDE = 0.05  # of the sines and cosines that the position embedding is initialised with

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
    """Fields of the masked recipe."""

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
    settings = request.take_settings(**get_masked_defaults(request).settings)
    if loaded is None:
        tokenizer = load_or_learn_tokenizer(request)
        model = _create_model(request, tokenizer, settings)
        length = model.config.length
    else:
        tokenizer, model = _continue_model(request, loaded, settings)
        save_tokenizer(request, tokenizer)
        length = request.take_options(MaskedOptions).window or min(128, model.config.length)
    examples = MaskedExamples(tokenizer, model.config.padding_id or 0)
    max_tokens = min(length, model.config.length) - examples.special_count
    if max_tokens < MIN_TOKENS:
        raise ArgumentError(f"a length of {length} is too short for a text and its special tokens; give at least 8")

    train, held_out, facts = prepare_paragraphs(request, tokenizer, max_tokens)
    order = LengthGroups(ShuffledEpochs(train.lists, settings.seed), lambda number: len(train.read_list(number)))
    validation_count = held_out.lists if held_out.lists < 4 else min(VALIDATION_EXAMPLES, held_out.lists // 4)
    shuffled = ShuffledEpochs(held_out.lists).select_indices(0, min(held_out.lists, validation_count + REPORT_EXAMPLES))
    validation = shuffled[:validation_count]
    reported = shuffled[validation_count:] or shuffled

    def batches(step: int, part: int, parts: int) -> Batch:
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        numbers = order.select_indices(step, settings.batch)
        return examples.create_batch(train, numbers, generator, part, parts)

    def evaluate(model: Model) -> dict[str, float]:
        scores = examples.score(model, held_out, validation)
        return {"loss": scores["loss"], "accuracy": scores["accuracy"]}

    def report(model: Model, folder: Path) -> dict[str, Any]:
        return {**examples.write_report(model, train, held_out, reported), **facts}

    data = {
        "examples": train.lists, "tokens": len(train), "held_out": held_out.lists, "vocabulary": tokenizer.vocabulary,
        "tokenizer": fingerprint_tokenizer(tokenizer),
    }  # fmt: skip
    summary = DataSummary(
        {"training paragraphs": train.lists, "training tokens": len(train), "held-out paragraphs": held_out.lists},
        [{"text": tokenizer.decode(train.read_list(number).tolist())} for number in range(min(3, train.lists))],
    )
    return Task(
        model, settings, batches, compute_masked_loss, evaluate, tokenizer=tokenizer, data=data, report=report,
        summary=summary, examples=train.lists,
    )  # fmt: skip


masked = recipe(get_masked_defaults, MaskedOptions, stored=FACTS_FILE)(create_masked_task)


def compute_masked_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy of the masked tokens, summed.

    Args:
        model: A BERT with a masked-language-model head.
        batch: Its inputs include ``positions_to_score``; its targets are the tokens at these positions.
    """
    return functional.cross_entropy(model(**batch.inputs).logits, batch.targets, reduction="sum")


def _create_model(request: TrainingRequest, tokenizer: Tokenizer, settings: Settings) -> BERT:
    config = request.take_config(CONFIG)
    model = request.create_model(BERT, config.replace(vocabulary=tokenizer.vocabulary, head="mlm"), settings)
    _initialise_as_waves(model.positions.table.weight)
    return model


@torch.no_grad()
def _initialise_as_waves(table: Tensor) -> None:
    """Initialise the learned positions as sines and cosines.

    The same rotation then maps every position to the next, and heads soon learn to attend to the neighbours of a masked
    token. With random initial positions they did not learn this within the recipe's steps.
    """
    length, width = table.shape
    exponents = torch.arange(width // 2) / (width // 2)
    angles = torch.arange(length)[:, None] * float(length) ** -exponents
    table[:, : 2 * len(exponents)] = torch.cat([angles.sin(), angles.cos()], -1) * WAVE_AMPLITUDE


def _continue_model(request: TrainingRequest, loaded: Loaded, settings: Settings) -> tuple[Tokenizer, BERT]:
    """Return the loaded BERT; without a masked-language-model head it gets a new one."""
    if not isinstance(loaded.model, BERT):
        raise ArgumentError(f"the masked recipe can start only from a bert; {request.start} is a {loaded.family}")
    tokenizer = loaded.tokenizer
    if tokenizer is None or tokenizer.mask is None:
        raise ArgumentError(f"the masked recipe needs a tokenizer with a mask token; {request.start} has none")
    config, parameters = loaded.model.config, loaded.model.state_dict()
    if config.head != "mlm":
        activation = config.activation if config.padding_id is None else "gelu"  # as in BERT's and RoBERTa's heads
        config = config.replace(head="mlm", head_activation=activation)
        parameters = {name: tensor for name, tensor in parameters.items() if not name.startswith("head.")}
    model = request.create_model(BERT, config, settings)
    mismatches = model.load_state_dict(parameters, strict=False)
    assert not mismatches.unexpected_keys
    assert all(name.startswith("head.") for name in mismatches.missing_keys)
    return tokenizer, model
