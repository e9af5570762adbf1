"""Recipe ``masked``: train a BERT to predict masked tokens from the text on both sides (Devlin et al. 2019), or an
encoder for long texts.

A tenth of the paragraphs is held out. In held-out paragraphs every scored token is replaced by the mask token. A BERT
reads paragraphs. ``model=long`` reads consecutive paragraphs, joined and cut into examples of equal length: paragraphs
are short, and FNet cannot ignore padding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs
from jumok.data.token_shards import fingerprint_tokenizer
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.models import Model
from jumok.models.bert import BERT, BERTConfig
from jumok.models.long import Long, LongConfig
from jumok.recipes.recipe import Defaults, Recipe, create_model
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import save_tokenizer
from jumok.recipes.shared.stored_data import FACTS_FILE
from jumok.training import Batch, DataSummary, Settings, Task

from .masked_examples import MaskedExamples
from .paragraphs import MIN_TOKENS, MaskedOptions, load_or_learn_tokenizer, prepare_paragraphs

VALIDATION_EXAMPLES = 500  # held-out examples that choose the best checkpoint; the report uses other ones
REPORT_EXAMPLES = 2_000
WAVE_AMPLITUDE = 0.05  # of the sines and cosines that the position embedding is initialised with

Encoder = BERT | Long
CONFIGS: dict[str, BERTConfig | LongConfig] = {
    "bert": BERTConfig(length=128, width=128, layers=4, heads=4, hidden=512, segments=1, head="mlm"),
    "long": LongConfig(
        length=512, width=128, layers=4, heads=4, hidden=512, window=32, random=2, block=32, features=64, head="mlm"
    ),
}
BATCHES = {"bert": 32, "long": 8}  # about equally many tokens
SETTINGS: dict[str, Any] = {
    "steps": 3000, "optimizer": "muon", "learning_rate": 4e-3, "matrix_rate": 1e-2, "final_rate": 0.02,
    "warmup": 100, "beta2": 0.98, "decay": 0.01, "clip": 1.0, "evaluate_every": 500, "save_every": 500,
}  # fmt: skip
SETTINGS_FINE_TUNING: dict[str, Any] = {
    "steps": 500, "learning_rate": 2e-4, "final_rate": 0.0, "warmup": 50, "beta2": 0.98,
    "decay": 0.01, "clip": 1.0, "evaluate_every": 100, "save_every": 100,
}  # fmt: skip


def get_masked_defaults(request: TrainingRequest, options: MaskedOptions, loaded: Loaded | None) -> Defaults:
    """Return the default config and settings of the chosen or loaded architecture."""
    batch = {"batch": BATCHES[options.model if loaded is None else loaded.family]}
    return Defaults(SETTINGS | batch, (CONFIGS[options.model],), start_settings=SETTINGS_FINE_TUNING | batch)


def create_masked_task(
    request: TrainingRequest, options: MaskedOptions, settings: Settings, loaded: Loaded | None
) -> Task:
    """Train a small BERT or long-text encoder to predict masked tokens, or continue with an existing one."""
    if loaded is None:
        tokenizer = load_or_learn_tokenizer(request, options)
        model = _create_model(request, options.model, tokenizer, settings)
        length = model.config.length
    else:
        tokenizer = loaded.require_tokenizer()
        if tokenizer.mask is None:
            raise ArgumentError(f"the masked recipe needs a tokenizer with a mask token; {request.start} has none")
        model = _continue_model(loaded, settings)
        save_tokenizer(request, tokenizer)
        longest = model.config.length if isinstance(model, Long) else min(128, model.config.length)
        length = options.window or longest
    is_long = isinstance(model, Long)
    padding_id = None if isinstance(model, Long) else model.config.padding_id
    examples = MaskedExamples(tokenizer, padding_id or 0, joined=is_long)
    max_tokens = min(length, model.config.length) - examples.special_count
    if max_tokens < MIN_TOKENS:
        raise ArgumentError(f"a length of {length} is too short for a text and its special tokens; give at least 8")

    train, held_out, facts = prepare_paragraphs(
        request, options, tokenizer, max_tokens, examples.after if is_long else None
    )
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

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        return {**examples.build_report(model, train, held_out, reported), **facts}

    data = {
        "examples": train.lists, "tokens": len(train), "held_out": held_out.lists, "vocabulary": tokenizer.vocabulary,
        "tokenizer": fingerprint_tokenizer(tokenizer),
    }  # fmt: skip
    noun = "examples" if is_long else "paragraphs"
    summary = DataSummary(
        {f"training {noun}": train.lists, "training tokens": len(train), f"held-out {noun}": held_out.lists},
        [{"text": tokenizer.decode(train.read_list(number).tolist())} for number in range(min(3, train.lists))],
    )
    return Task(
        model, settings, batches, compute_masked_loss, evaluate, tokenizer=tokenizer, data=data,
        build_report=build_report, summary=summary, examples=train.lists,
    )  # fmt: skip


def compute_masked_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy of the masked tokens, summed."""
    return functional.cross_entropy(model(**batch.inputs).logits, batch.targets, reduction="sum")


def _create_model(request: TrainingRequest, kind: str, tokenizer: Tokenizer, settings: Settings) -> Encoder:
    config = request.change(CONFIGS[kind]).replace(vocabulary=tokenizer.vocabulary, head="mlm")
    model = create_model(BERT if kind == "bert" else Long, config, settings.seed)
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


def _continue_model(loaded: Loaded, settings: Settings) -> Encoder:
    """Return the loaded model; without a masked-language-model head it gets a new one."""
    assert isinstance(loaded.model, Encoder)
    config, parameters = loaded.model.config, loaded.model.state_dict()
    if config.head != "mlm":
        if isinstance(config, BERTConfig):
            activation = config.activation if config.padding_id is None else "gelu"  # as in BERT's and RoBERTa's heads
            config = config.replace(head_activation=activation)
        config = config.replace(head="mlm")
        parameters = {name: tensor for name, tensor in parameters.items() if not name.startswith("head.")}
    model = create_model(type(loaded.model), config, settings.seed)
    mismatches = model.load_state_dict(parameters, strict=False)
    assert not mismatches.unexpected_keys
    assert all(name.startswith("head.") for name in mismatches.missing_keys)
    return model


masked = Recipe(create_masked_task, get_masked_defaults, (BERT, Long), MaskedOptions, stored=FACTS_FILE)
