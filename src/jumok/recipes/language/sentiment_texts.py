"""Labelled texts for the recipe ``sentiment``: read and split them, turn them into tokens, and classify them by the
baseline, TF-IDF features and logistic regression."""

from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from jumok.data.batches.split import normalize_text
from jumok.data.datasets import text_corpora
from jumok.data.readers.text_examples import read_labelled_texts
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer, optional
from jumok.recipes.recipe import Options, column_field, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.splits import split_by_key
from jumok.training import DataSummary

LabelledTexts = list[tuple[str, str]]  # a text and its label

HELD_OUT = 0.1  # of the user's own texts; the catalogue's texts have a fixed held-out split
VALIDATION = 0.1  # of the examples that are not held out
MAX_CLASSES_SHOWN = 20
MIN_TEXTS_TO_JUDGE = 10
REGULARIZATION = (1.0, 3.0, 10.0)  # scikit-learn's C: larger = weaker regularization
CLASS_WEIGHTS = (None, "balanced")


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


class SplitTexts(NamedTuple):
    """Labelled texts in three parts; the validation texts choose the best checkpoint."""

    train: LabelledTexts
    validation: LabelledTexts
    held_out: LabelledTexts


def read_split_texts(request: TrainingRequest, options: SentimentOptions) -> SplitTexts:
    """Read the labelled texts and split them into three parts."""
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
        _refuse_labels_that_do_not_repeat(texts)
        keys = [normalize_text(text) for text, _ in texts]
        train, validation, held_out_indices = split_by_key(keys, HELD_OUT, VALIDATION)
        held_out = [texts[index] for index in held_out_indices]
    train_texts = [texts[index] for index in train]
    if len({label for _, label in train_texts}) < 2:
        raise ArgumentError(
            f"all training texts have the label {train_texts[0][1]!r}; give texts of at least two classes"
        )
    return SplitTexts(train_texts, [texts[index] for index in validation], held_out)


def _refuse_labels_that_do_not_repeat(texts: LabelledTexts) -> None:
    """Raise ArgumentError if most labels occur once: then the labels are probably in another column."""
    count = len({label for _, label in texts})
    if len(texts) >= MIN_TEXTS_TO_JUDGE and 2 * count > len(texts):
        raise ArgumentError(
            f"{len(texts):,} texts have {count:,} different labels, such as {texts[0][1][:40]!r}; if the labels are in "
            "another column, say which with label=NAME and text=NAME, or with the numbers of the columns"
        )


def summarize_texts(texts: SplitTexts) -> DataSummary:
    """Return the number of texts in each part and of each label, and the first training texts."""
    labels = Counter(label for part in texts for _, label in part)
    counts = {
        "training texts": len(texts.train),
        "validation texts": len(texts.validation),
        "held-out texts": len(texts.held_out),
        "classes": len(labels),
        **{f"texts of class {label!r}": count for label, count in labels.most_common(MAX_CLASSES_SHOWN)},
    }
    return DataSummary(counts, [{"text": text, "label": label} for text, label in texts.train[:3]])


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


def require_scikit_learn() -> None:
    """Raise an ArgumentError if scikit-learn is not installed. The recipe calls this before it trains."""
    if importlib.util.find_spec("sklearn") is None:
        raise ArgumentError(
            "the sentiment recipe compares its model with scikit-learn's logistic regression: "
            'pip install "jumok[train]"'
        )


def predict_baseline(train: LabelledTexts, validation: LabelledTexts, held_out: LabelledTexts) -> list[str]:
    """Train the baseline and return its labels for the held-out texts.

    The settings with the best macro-F1 on the validation texts are chosen; the final model is then trained on the
    training and the validation texts.
    """
    from sklearn.metrics import f1_score

    baseline = _Baseline(train)
    labels = [label for _, label in validation]
    best_score = -1.0
    best_settings: tuple[float, str | None] = (1.0, None)
    for class_weight in CLASS_WEIGHTS:
        for strength in REGULARIZATION:
            predictions = baseline.predict(validation, strength, class_weight)
            score = float(f1_score(labels, predictions, average="macro"))
            if score > best_score:
                best_score, best_settings = score, (strength, class_weight)
    return _Baseline(train + validation).predict(held_out, *best_settings)


class _Baseline:
    """TF-IDF features of words, punctuation marks and bigrams; with more than 1,000 texts, only repeated ones."""

    def __init__(self, texts: LabelledTexts) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.vectorizer = TfidfVectorizer(
            ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]", min_df=2 if len(texts) > 1000 else 1
        )
        self.features = self.vectorizer.fit_transform([text for text, _ in texts])
        self.labels = [label for _, label in texts]

    def predict(self, texts: LabelledTexts, strength: float, class_weight: str | None) -> list[str]:
        """Fit the logistic regression and return its labels for other texts."""
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=strength, class_weight=class_weight, max_iter=2000)
        model.fit(self.features, self.labels)
        return [str(label) for label in model.predict(self.vectorizer.transform([text for text, _ in texts]))]
