"""Recipe ``sentiment``: train a text classifier (negative, neutral, positive, or the user's own classes).

An encoder reads the text, and the mean of its hidden vectors is classified. As a baseline, TF-IDF with
logistic regression is trained on the same texts in the same run.

With ``--from minilm`` the encoder is a pretrained one; with ``--data`` the classes are those of the user's file.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import tokenizers
import torch
from jaxtyping import Float
from tokenizers import models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs, pad_sequences
from jumok.data.batches.split import normalize_text
from jumok.data.datasets import text_corpora
from jumok.data.readers.text_examples import read_labelled_texts
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer, optional
from jumok.models import Config, Model
from jumok.models.bert import BERT, BERTConfig
from jumok.models.classifier import Classifier, ClassifierConfig
from jumok.models.long import Long, LongConfig
from jumok.recipes.recipe import Defaults, Options, Recipe, column_field, copy_parameters, create_model, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared import class_scores
from jumok.recipes.shared.run_tokenizer import load_or_create_tokenizer
from jumok.recipes.shared.seq2seq import batch_by_length
from jumok.recipes.shared.splits import PARTS, fingerprint, split_by_key
from jumok.training import Batch, DataSummary, Settings, TrainingTask, select_part

LabelledTexts = list[tuple[str, str]]  # a text and its label
HELD_OUT = 0.1  # of the user's own texts; the catalogue's texts have a fixed held-out split
VALIDATION = 0.1  # of the examples that are not held out
MAX_CLASSES_SHOWN = 20
MIN_TEXTS_TO_JUDGE = 10
REGULARIZATION = (1.0, 3.0, 10.0)  # scikit-learn's C: larger = weaker regularization
CLASS_WEIGHTS = (None, "balanced")
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


@dataclass(frozen=True)
class SentimentOptions(Options):
    """Fields of the sentiment recipe."""

    with_data = ("text", "label", "header")
    without_start = ("tokens", "vocabulary")

    text: str | None = column_field("column of your table that has the texts")
    label: str | None = column_field("column of your table that has the labels")
    header: str = header_field()
    tokens: str = choice("words", ("words", "pieces"), "kind of tokens: words, or pieces of words")
    vocabulary: int | None = optional(
        integer(16_000, "largest size of the vocabulary; None = 16000 words, or 8000 pieces", 260)
    )
    longest: int = integer(64, "longest training text in tokens; the rest of a text is cut off", 2)
    hidden_words: int | None = optional(
        integer(10, "percent of the words to mask at each step; None = 10, with --from 0", 0, 90)
    )
    smooth: int = integer(10, "label smoothing in percent", 0, 90)


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
) -> TrainingTask:
    """Train a classifier on short English texts with three classes, or on the user's own labelled texts."""
    if importlib.util.find_spec("sklearn") is None:
        raise ArgumentError(
            "the sentiment recipe compares its model with scikit-learn's logistic regression: "
            'pip install "jumok[train]"'
        )
    texts = train_texts, _, held_out_texts = _read_texts(request, options)
    names = class_scores.list_class_names(
        [label for part in texts for _, label in part], request.data or "the sentiment set"
    )
    if loaded is None:
        tokenizer = _load_or_learn_tokenizer(request, options, train_texts)
        encoder = request.change(ENCODER.replace(vocabulary=tokenizer.vocabulary))
        config = request.change(ClassifierConfig(encoder=encoder, pool="mean", dropout=encoder.dropout))
    else:
        tokenizer = loaded.require_tokenizer()
        start = _get_start_config(loaded)
        config = request.change(start.replace(encoder=request.change(start.encoder).to_json()))
    model = create_model(Classifier, class_scores.set_class_count(request, config, names), settings.seed)
    if loaded is not None:
        _copy_loaded_parameters(model, loaded, names)
    max_tokens = min(options.longest, model.config.encoder.length)
    hidden_words = options.hidden_words
    if hidden_words is None:
        hidden_words = 10 if request.start is None else 0
    train_rows, validation_rows, held_out_rows = (
        [encode_truncated(text, tokenizer, max_tokens) for text, _ in part] for part in texts
    )
    train_labels, validation_labels, held_out_labels = (
        torch.tensor([names.index(label) for _, label in part]) for part in texts
    )
    class_counts = torch.bincount(train_labels, minlength=len(names)).clamp_min(1)
    # all classes contribute equally to the loss; the mean of the weights over the examples is 1
    class_weights = len(train_labels) / (len(names) * class_counts.float())
    order = LengthGroups(ShuffledEpochs(len(train_rows), settings.seed), lambda index: len(train_rows[index]))

    def batches(step: int, part: int, parts: int) -> Batch:
        indices = order.select_indices(step, settings.batch)
        tokens, token_mask = pad_sequences([train_rows[index] for index in indices], 0)
        if hidden_words:  # so that the model does not depend on single words
            masking = tokenizer.unknown if tokenizer.mask is None else tokenizer.mask
            if masking is None:
                raise ArgumentError("this tokenizer has no mask or unknown token; leave hidden_words at 0")
            generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
            tokens[torch.rand(tokens.shape, generator=generator) < hidden_words / 100] = masking
        rows = select_part(list(range(len(indices))), part, parts)
        inputs = {"tokens": tokens[rows], "token_mask": token_mask[rows]}
        return Batch(inputs, train_labels[indices][rows], len(rows))

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        logits = model(**batch.inputs).logits
        weights, smoothing = class_weights.to(logits.device), options.smooth / 100
        return functional.cross_entropy(logits, batch.targets, weights, label_smoothing=smoothing, reduction="sum")

    def evaluate(model: Model) -> dict[str, float]:
        predictions = compute_logits(model, validation_rows).argmax(-1)
        table = class_scores.count_confusions(validation_labels, predictions, len(names))
        return {"macro_f1": class_scores.compute_macro_f1(table), "accuracy": class_scores.compute_accuracy(table)}

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        request.show_message("training the baseline, TF-IDF and logistic regression, on the same texts")
        baseline = torch.tensor([names.index(label) for label in predict_baseline(*texts)])
        probabilities = compute_logits(model, held_out_rows).softmax(-1)
        unknown = [token == tokenizer.unknown for row in held_out_rows for token in row]
        samples = [
            {
                "text": text[:120],
                "is": label,
                "called": names[int(row.argmax())],
                "share": round(float(row.max()), 3),
                "baseline": names[int(baseline_class)],
            }
            for (text, label), row, baseline_class in islice(
                zip(held_out_texts, probabilities, baseline, strict=True), REPORTED_SAMPLES
            )
        ]
        return {
            **class_scores.compare_with_baseline(probabilities.argmax(-1), baseline, held_out_labels, names),
            "try": held_out_texts[0][0],
            "unknown_rate": sum(unknown) / len(unknown),
            "samples": samples,
        }

    data = {
        "texts": [len(part) for part in texts],
        "classes": list(names),
        "fingerprint": fingerprint(f"{text}\t{label}" for part in texts for text, label in part),
    }
    labels = Counter(label for part in texts for _, label in part)
    counts = {
        **{f"{name} texts": len(part) for name, part in zip(PARTS, texts, strict=True)},
        "classes": len(labels),
        **{f"texts of class {label!r}": count for label, count in labels.most_common(MAX_CLASSES_SHOWN)},
    }
    summary = DataSummary(counts, [{"text": text, "label": label} for text, label in train_texts[:3]])
    return TrainingTask(
        Loaded(model, tokenizer, labels=names), settings, batches, loss, evaluate, "macro_f1", "higher", data=data,
        build_report=build_report, summary=summary, examples=len(train_rows),
    )  # fmt: skip


sentiment = Recipe(create_sentiment_task, get_sentiment_defaults, (BERT, Long, Classifier), SentimentOptions)


def _read_texts(
    request: TrainingRequest, options: SentimentOptions
) -> tuple[LabelledTexts, LabelledTexts, LabelledTexts]:
    """Return the labelled texts for training, for validation and for the report."""
    name = request.select_dataset("sentiment", text_corpora.LABELLED_TEXTS)
    if name is not None:
        read = text_corpora.LABELLED_TEXTS[name]
        texts = list(read("train", request.show_download))
        train, validation, _ = split_by_key([text for text, _ in texts], 0.0, VALIDATION / 2)
        held_out = list(read("held-out", request.show_download))
    else:
        problems = request.create_problem_log()
        file_format = request.create_file_format(options.header)
        texts = list(read_labelled_texts(request.require_files(), problems, options.text, options.label, file_format))
        request.show_problems(problems)
        count = len({label for _, label in texts})
        if len(texts) >= MIN_TEXTS_TO_JUDGE and 2 * count > len(texts):
            raise ArgumentError(
                f"{len(texts):,} texts have {count:,} different labels, such as {texts[0][1][:40]!r}; if the labels "
                "are in another column, say which with label=NAME and text=NAME, or with the numbers of the columns"
            )
        keys = [normalize_text(text) for text, _ in texts]
        train, validation, held_out_indices = split_by_key(keys, HELD_OUT, VALIDATION)
        held_out = [texts[index] for index in held_out_indices]
    train_texts = [texts[index] for index in train]
    if len({label for _, label in train_texts}) < 2:
        raise ArgumentError(
            f"all training texts have the label {train_texts[0][1]!r}; give texts of at least two classes"
        )
    return train_texts, [texts[index] for index in validation], held_out


def _load_or_learn_tokenizer(request: TrainingRequest, options: SentimentOptions, train: LabelledTexts) -> Tokenizer:
    """Load the run's tokenizer, or learn words or pieces of words from the training texts."""
    vocabulary = options.vocabulary or (16_000 if options.tokens == "words" else 8_000)

    def learn() -> Tokenizer:
        texts = [text for text, _ in train]
        if options.tokens == "words":
            return learn_words(texts, vocabulary, SPECIAL_TOKENS)
        return Tokenizer.train(texts, vocabulary, SPECIAL_TOKENS)

    return load_or_create_tokenizer(request, learn)


def learn_words(texts: list[str], vocabulary: int, special: dict[str, str]) -> Tokenizer:
    """Learn a tokenizer of lower-case words and punctuation marks that occur at least twice.

    >>> tokenizer = learn_words(["Good film, good cast", "A good film."], 300, {"unknown": "<unk>"})
    >>> [tokenizer.id_to_token(token) for token in tokenizer.encode("GOOD film!")]
    ['good', 'film', '<unk>']
    """
    inner = tokenizers.Tokenizer(models.WordLevel(unk_token=special["unknown"]))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocabulary, min_frequency=2, special_tokens=list(special.values()), show_progress=False
    )
    inner.train_from_iterator(texts, trainer)
    return Tokenizer(inner, special)


def encode_truncated(text: str, tokenizer: Tokenizer, max_tokens: int) -> list[int]:
    """Encode a text; of a long text return the first tokens and the last one."""
    tokens = tokenizer.encode(text) or [0]
    if len(tokens) <= max_tokens:
        return tokens
    return [*tokens[: max_tokens - 1], tokens[-1]]  # keep the last token: it may be a special token


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


def predict_baseline(train: LabelledTexts, validation: LabelledTexts, held_out: LabelledTexts) -> list[str]:
    """Train the baseline and return its labels for the held-out texts.

    The settings with the best macro-F1 on the validation texts are chosen; the final model is then trained on the
    training and the validation texts.
    """
    from sklearn.metrics import f1_score

    baseline = _Baseline(train)
    labels = [label for _, label in validation]
    scores = {
        settings: float(f1_score(labels, baseline.predict(validation, *settings), average="macro"))
        for settings in product(CLASS_WEIGHTS, REGULARIZATION)
    }
    return _Baseline(train + validation).predict(held_out, *max(scores, key=lambda settings: scores[settings]))


class _Baseline:
    """TF-IDF features of words, punctuation marks and bigrams; with more than 1,000 texts, only repeated ones."""

    def __init__(self, texts: LabelledTexts) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.vectorizer = TfidfVectorizer(
            ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]", min_df=2 if len(texts) > 1000 else 1
        )
        self.features = self.vectorizer.fit_transform([text for text, _ in texts])
        self.labels = [label for _, label in texts]

    def predict(self, texts: LabelledTexts, class_weight: str | None, strength: float) -> list[str]:
        """Fit the logistic regression and return its labels for other texts."""
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=strength, class_weight=class_weight, max_iter=2000)
        model.fit(self.features, self.labels)
        return [str(label) for label in model.predict(self.vectorizer.transform([text for text, _ in texts]))]
