"""Recipe ``sentiment``: train a text classifier (negative, neutral, positive, or the user's own classes).

An encoder reads the text, and the mean of its hidden vectors is classified. As a baseline, TF-IDF with
logistic regression is trained on the same texts in the same run.

With ``--from minilm`` the encoder is a pretrained one; with ``--data`` the classes are those of the user's file.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs, pad_sequences
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.models import Config, Model
from jumok.models.bert import BERT, BERTConfig
from jumok.models.classifier import Classifier, ClassifierConfig
from jumok.models.long import Long, LongConfig
from jumok.recipes.recipe import Defaults, Recipe, copy_parameters, create_model
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.class_scores import (
    compare_with_baseline,
    compute_accuracy,
    compute_macro_f1,
    count_confusions,
    list_class_names,
    set_class_count,
)
from jumok.recipes.shared.run_tokenizer import load_or_create_tokenizer
from jumok.recipes.shared.seq2seq import batch_by_length
from jumok.recipes.shared.splits import fingerprint
from jumok.training import Batch, Loss, Settings, Task, select_part

from .sentiment_texts import (
    LabelledTexts,
    SentimentOptions,
    encode_truncated,
    learn_words,
    predict_baseline,
    read_split_texts,
    require_scikit_learn,
    summarize_texts,
)

REPORTED_SAMPLES = 12
EVALUATION_BATCH = 128
SPECIAL_TOKENS = {"pad": "<pad>", "mask": "<mask>", "unknown": "<unk>"}

# bench/results lists how much each of these contributes
SETTINGS: dict[str, Any] = {
    "steps": 3000, "batch": 64, "learning_rate": 1e-3, "final_rate": 0.0, "warmup": 100, "beta2": 0.99, "decay": 0.1,
    "average": 0.999, "evaluate_every": 200, "save_every": 400, "patience": 6,
}  # fmt: skip
SETTINGS_FINE_TUNING: dict[str, Any] = {
    "steps": 700, "batch": 32, "learning_rate": 1e-4, "final_rate": 0.0, "warmup": 70, "beta2": 0.99, "decay": 0.01,
    "evaluate_every": 100, "save_every": 200,
}  # fmt: skip

ENCODER = BERTConfig(length=128, width=128, layers=2, heads=4, hidden=256, segments=0, dropout=0.3)


def get_sentiment_defaults(request: TrainingRequest, options: SentimentOptions, loaded: Loaded | None) -> Defaults:
    """Return the default configs (encoder and classifier) and settings."""
    classifier = ClassifierConfig(encoder=ENCODER, pool="mean", dropout=ENCODER.dropout)
    start_configs: tuple[Config, ...] = ()
    if loaded is not None:
        start = _get_start_config(loaded)
        start_configs = (start.encoder, start)
    return Defaults(SETTINGS, (ENCODER, classifier), ("classes",), SETTINGS_FINE_TUNING, start_configs)


def create_sentiment_task(
    request: TrainingRequest, options: SentimentOptions, settings: Settings, loaded: Loaded | None
) -> Task:
    """Train a classifier on short English texts with three classes, or on the user's own labelled texts."""
    require_scikit_learn()
    texts = read_split_texts(request, options)
    names = list_class_names([label for part in texts for _, label in part], request.data or "the sentiment set")
    if loaded is None:
        tokenizer = _load_or_learn_tokenizer(request, options, texts.train)
        encoder = request.change(ENCODER.replace(vocabulary=tokenizer.vocabulary))
        config = request.change(ClassifierConfig(encoder=encoder, pool="mean", dropout=encoder.dropout))
    else:
        tokenizer = loaded.require_tokenizer()
        start = _get_start_config(loaded)
        config = request.change(start.replace(encoder=request.change(start.encoder).to_json()))
    model = create_model(Classifier, set_class_count(request, config, names), settings.seed)
    if loaded is not None:
        _copy_loaded_parameters(model, loaded, names)
    max_tokens = min(options.longest, model.config.encoder.length)
    default_percent = 10 if request.start is None else 0
    masked_share = (default_percent if options.hidden_words is None else options.hidden_words) / 100
    train_rows, validation_rows, held_out_rows = (
        [encode_truncated(text, tokenizer, max_tokens) for text, _ in part] for part in texts
    )
    train_labels, validation_labels, held_out_labels = (
        torch.tensor([names.index(label) for _, label in part]) for part in texts
    )
    loss = create_weighted_loss(compute_class_weights(train_labels, len(names)), options.smooth / 100)
    order = LengthGroups(ShuffledEpochs(len(train_rows), settings.seed), lambda index: len(train_rows[index]))

    def batches(step: int, part: int, parts: int) -> Batch:
        indices = order.select_indices(step, settings.batch)
        tokens, token_mask = pad_sequences([train_rows[index] for index in indices], 0)
        if masked_share:  # so that the model does not depend on single words
            generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
            tokens[torch.rand(tokens.shape, generator=generator) < masked_share] = _get_masking_token(tokenizer)
        rows = select_part(list(range(len(indices))), part, parts)
        inputs = {"tokens": tokens[rows], "token_mask": token_mask[rows]}
        return Batch(inputs, train_labels[indices][rows], len(rows))

    def evaluate(model: Model) -> dict[str, float]:
        predictions = compute_logits(model, validation_rows).argmax(-1)
        table = count_confusions(validation_labels, predictions, len(names))
        return {"macro_f1": compute_macro_f1(table), "accuracy": compute_accuracy(table)}

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        request.show_message("training the baseline, TF-IDF and logistic regression, on the same texts")
        baseline = torch.tensor([names.index(label) for label in predict_baseline(*texts)])
        probabilities = compute_logits(model, held_out_rows).softmax(-1)
        unknown = [token == tokenizer.unknown for row in held_out_rows for token in row]
        return {
            **compare_with_baseline(probabilities.argmax(-1), baseline, held_out_labels, names),
            "try": texts.held_out[0][0],
            "unknown_rate": sum(unknown) / len(unknown),
            "samples": _list_samples(texts.held_out, probabilities, baseline, names),
        }

    data = {
        "texts": [len(part) for part in texts],
        "classes": list(names),
        "fingerprint": fingerprint(f"{text}\t{label}" for part in texts for text, label in part),
    }
    return Task(
        model, settings, batches, loss, evaluate, "macro_f1", "higher", tokenizer=tokenizer, labels=names,
        data=data, build_report=build_report, summary=summarize_texts(texts), examples=len(train_rows),
    )  # fmt: skip


def create_weighted_loss(class_weights: Float[Tensor, " classes"], smoothing: float) -> Loss:
    """Return a function that computes the cross-entropy with a weight for each class, summed over the texts."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        logits = model(**batch.inputs).logits
        weights = class_weights.to(logits.device)
        return functional.cross_entropy(logits, batch.targets, weights, label_smoothing=smoothing, reduction="sum")

    return loss


def _load_or_learn_tokenizer(request: TrainingRequest, options: SentimentOptions, train: LabelledTexts) -> Tokenizer:
    """Load the run's tokenizer, or learn words or pieces of words from the training texts."""
    vocabulary = options.vocabulary or (16_000 if options.tokens == "words" else 8_000)

    def learn() -> Tokenizer:
        texts = [text for text, _ in train]
        if options.tokens == "words":
            return learn_words(texts, vocabulary, SPECIAL_TOKENS)
        return Tokenizer.train(texts, vocabulary, SPECIAL_TOKENS)

    return load_or_create_tokenizer(request, learn)


def _get_start_config(loaded: Loaded) -> ClassifierConfig:
    """Return the config of the loaded classifier, or of a new classifier on the loaded encoder."""
    config = loaded.config
    if isinstance(config, ClassifierConfig):
        return config
    assert isinstance(config, BERTConfig | LongConfig)
    return ClassifierConfig(encoder=config.replace(head="none", dropout=0.1), dropout=0.1)


def _copy_loaded_parameters(model: Classifier, loaded: Loaded, names: tuple[str, ...]) -> None:
    """Copy the loaded parameters; the output layer is new if the classes differ, and the head if its widths do."""
    parameters = loaded.model.state_dict()
    if not isinstance(loaded.model, Classifier):
        parameters = {f"encoder.{name}": tensor for name, tensor in parameters.items() if not name.startswith("head.")}
    elif loaded.labels != names:
        parameters = {name: tensor for name, tensor in parameters.items() if not name.startswith("output.")}
    if isinstance(loaded.model, Classifier) and loaded.model.config.head_hidden != model.config.head_hidden:
        parameters = {name: tensor for name, tensor in parameters.items() if name.startswith("encoder.")}
    copy_parameters(model, parameters)


def _get_masking_token(tokenizer: Tokenizer) -> int:
    for token in (tokenizer.mask, tokenizer.unknown):
        if token is not None:
            return token
    raise ArgumentError("this tokenizer has no mask or unknown token; leave hidden_words at 0")


def compute_class_weights(labels: Int[Tensor, " example"], classes: int) -> Float[Tensor, " classes"]:
    """Return class weights that make all classes contribute equally to the loss; their mean over the examples is 1."""
    return len(labels) / (classes * torch.bincount(labels, minlength=classes).clamp_min(1).float())


@torch.inference_mode()
def compute_logits(model: Model, rows: list[list[int]]) -> Float[Tensor, "text classes"]:
    """Return the class logits of every text, computed in batches of similar length."""
    batches = list(batch_by_length([len(row) for row in rows], EVALUATION_BATCH))
    logits = []
    for indices in batches:
        tokens, token_mask = pad_sequences([rows[index] for index in indices], 0)
        output = model(tokens.to(model.device), token_mask=token_mask.to(model.device))
        logits.append(output.logits.float().cpu())
    order = torch.tensor([index for indices in batches for index in indices])
    return torch.cat(logits)[order.argsort()]


def _list_samples(
    texts: LabelledTexts, probabilities: Tensor, baseline: Tensor, names: tuple[str, ...]
) -> list[dict[str, str | float]]:
    return [
        {
            "text": text[:120],
            "is": label,
            "called": names[int(row.argmax())],
            "share": round(float(row.max()), 3),
            "baseline": names[int(baseline_class)],
        }
        for (text, label), row, baseline_class in islice(
            zip(texts, probabilities, baseline, strict=True), REPORTED_SAMPLES
        )
    ]


sentiment = Recipe(create_sentiment_task, get_sentiment_defaults, (BERT, Long, Classifier), SentimentOptions)
