"""Read labelled texts for the recipe ``sentiment``, split them, and turn them into tokens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from jumok.data.batches.split import normalize_text
from jumok.data.datasets import text_corpora
from jumok.data.readers.text_examples import read_labelled_texts
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.recipes.recipe import Options, column_field, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.data_source import require_files, select_dataset
from jumok.recipes.shared.splits import split_by_key
from jumok.training import DataSummary

from .tfidf_baseline import LabelledTexts

HELD_OUT = 0.1  # of the user's own texts; the catalogue's texts have a fixed held-out split
MAX_CLASSES_SHOWN = 20
MIN_TEXTS_TO_JUDGE = 10
VALIDATION = 0.1  # of the examples that are not held out


@dataclass(frozen=True)
class LabelledTextOptions(Options):
    """Fields of a recipe that reads labelled texts."""

    with_data: ClassVar[tuple[str, ...]] = ("text", "label", "header")

    text: str | None = column_field("column of your table that has the texts")
    label: str | None = column_field("column of your table that has the labels")
    header: str = header_field()


class SplitTexts(NamedTuple):
    """Labelled texts in three parts.

    Attributes:
        validation: The texts that choose the best checkpoint.
    """

    train: LabelledTexts
    validation: LabelledTexts
    held_out: LabelledTexts


def read_split_texts(request: TrainingRequest) -> SplitTexts:
    """Read the labelled texts and split them into three parts."""
    name = select_dataset(request, "sentiment", text_corpora.LABELLED_TEXTS)
    if name is not None:
        read = text_corpora.LABELLED_TEXTS[name]
        texts = list(read("train", request.download_report))
        train, validation, _ = split_by_key([text for text, _ in texts], 0.0, VALIDATION / 2)
        held_out = list(read("held-out", request.download_report))
    else:
        problems = request.create_problem_log()
        options = request.take_options(LabelledTextOptions)
        file_format = request.create_file_format(options.header)
        texts = list(read_labelled_texts(require_files(request), problems, options.text, options.label, file_format))
        if problems.count:
            request.report(str(problems))
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
