"""sentiment: is a text negative, neutral or positive? An encoder reads it, and the mean over its tokens is judged.
TF-IDF and logistic regression learn the same texts in the same run, because a model is worth what it adds to that.

With ``--from minilm`` the encoder is one that has read much before; with ``--data`` the classes are yours.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs, pad_sequences
from jumok.data.batches.split import normalize_text
from jumok.data.datasets import text_corpora
from jumok.data.readers.labelled_texts import read_labelled_texts
from jumok.data.readers.lines import ProblemLog
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer, optional
from jumok.models import Model
from jumok.models.bert import BERTConfig
from jumok.models.classifier import Classifier, ClassifierConfig
from jumok.models.long import LongConfig
from jumok.recipes.recipe import Defaults, Options, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.class_scores import (
    accuracy,
    class_names,
    compare_with_baseline,
    confusion,
    macro_f1,
    set_class_count,
)
from jumok.recipes.shared.splits import fingerprint, split_by_key
from jumok.training import Batch, Task, select_part

from . import tfidf_baseline

HELD_OUT = 0.1  # of a file of your own; the sentiment set has its own part
CHOOSING = 0.1  # of the rest
LONGEST = 64  # tokens that are read of a text while training
SAMPLES = 12


Labelled = list[tuple[str, str]]
Sides = tuple[Labelled, Labelled, Labelled]  # learned from, choosing the best checkpoint, held out for the report


@dataclass(frozen=True)
class SentimentOptions(Options):
    """Fields of the recipe sentiment."""

    without_start = ("tokens", "vocabulary")

    tokens: str = choice("words", ("words", "pieces"), "what a token is: a word, or a piece of a word")
    vocabulary: int | None = optional(
        integer(16_000, "largest size of the vocabulary; None = 16000 words, or 8000 pieces", 260)
    )
    longest: int = integer(LONGEST, "tokens that are read of a text while training", 2)
    hidden_words: int | None = optional(
        integer(10, "percent of the words to hide at each step; None = 10, with --from 0", 0, 90)
    )
    smooth: int = integer(10, "label smoothing in percent", 0, 90)


def sentiment_defaults(request: TrainingRequest) -> Defaults:
    """Return the default configs (encoder and classifier) and settings."""
    threads = torch.get_num_threads()
    if request.start is not None:
        return Defaults({**TUNED, "threads": threads})
    classifier = ClassifierConfig(encoder=ENCODER, pool="mean", dropout=ENCODER.dropout)
    return Defaults({**FRESH, "threads": threads}, (ENCODER, classifier), from_data=("classes",))


@recipe(sentiment_defaults, SentimentOptions)
def sentiment(asked: TrainingRequest) -> Task:
    """Three classes of short English texts, or your own."""
    tfidf_baseline.require_scikit_learn()
    sides = _sides(asked)
    names = class_names([label for side in sides for _, label in side], asked.data or "the sentiment set")
    loaded = asked.load_start()
    options = asked.options(SentimentOptions)
    settings = asked.settings(**sentiment_defaults(asked).settings)
    tokenizer = _tokenizer(asked, [text for text, _ in sides[0]]) if loaded is None else loaded.tokenizer
    config = _fresh(asked, tokenizer) if loaded is None else _known(asked, loaded)
    model = asked.model(Classifier, set_class_count(asked, config, names), settings)
    if loaded is not None:
        _take(model, loaded, names)

    longest = min(options.longest, config.encoder.length)
    usual = 10 if loaded is None else 0
    hidden = (usual if options.hidden_words is None else options.hidden_words) / 100
    smooth = options.smooth / 100
    rows, others, unseen = ([_tokens(text, tokenizer, longest) for text, _ in side] for side in sides)
    labels, wanted, truth = (torch.tensor([names.index(label) for _, label in side]) for side in sides)
    weight = rarity(labels, len(names))
    order = LengthGroups(ShuffledEpochs(len(rows), settings.seed), lambda place: len(rows[place]))

    def batches(step: int, part: int, parts: int) -> Batch:
        chosen = order.batch_indices(step, settings.batch)
        tokens, real = pad_sequences([rows[one] for one in chosen], 0)
        if hidden:  # a text must be understood without some of its words
            draw = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
            tokens[torch.rand(tokens.shape, generator=draw) < hidden] = _blank(tokenizer)
        mine = select_part(list(range(len(chosen))), part, parts)
        return Batch({"tokens": tokens[mine], "token_mask": real[mine]}, labels[chosen][mine], len(mine))

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        """Every class has the same share, as in macro-F1, however few its texts are."""
        logits = model(**batch.inputs).logits
        shares = weight.to(logits.device)
        return functional.cross_entropy(logits, batch.targets, shares, label_smoothing=smooth, reduction="sum")

    def evaluate(model: Model) -> dict[str, float]:
        table = confusion(wanted, scores(model, others).argmax(-1), len(names))
        return {"macro_f1": macro_f1(table), "accuracy": accuracy(table)}

    def report(model: Model, folder: Path) -> dict[str, Any]:
        asked.report("TF-IDF and logistic regression learn the same texts")
        theirs = torch.tensor([names.index(one) for one in tfidf_baseline.predict_baseline(*sides)])
        shares = scores(model, unseen).softmax(-1)
        unknown = [token == tokenizer.unknown for row in unseen for token in row]
        return {
            **compare_with_baseline(shares.argmax(-1), theirs, truth, names),
            "try": sides[2][0][0],
            "unknown_rate": sum(unknown) / len(unknown),
            "samples": _samples(sides[2], shares, theirs, names),
        }

    data = {
        "texts": [len(side) for side in sides],
        "classes": list(names),
        "fingerprint": fingerprint(f"{text}\t{label}" for side in sides for text, label in side),
    }
    return Task(
        model, settings, batches, loss, evaluate, "macro_f1", "higher", tokenizer=tokenizer, labels=names,
        data=data, report=report,
    )  # fmt: skip


# what each of these is worth: LOG.md
FRESH: dict[str, Any] = {
    "steps": 3000, "batch": 64, "learning_rate": 1e-3, "final_rate": 0.0, "warmup": 100, "beta2": 0.99, "decay": 0.1,
    "average": 0.999, "evaluate_every": 200, "save_every": 400, "patience": 6,
}  # fmt: skip
TUNED: dict[str, Any] = {
    "steps": 700, "batch": 32, "learning_rate": 1e-4, "final_rate": 0.0, "warmup": 70, "beta2": 0.99, "decay": 0.01,
    "evaluate_every": 100, "save_every": 200,
}  # fmt: skip
ENCODER = BERTConfig(length=128, width=128, layers=2, heads=4, hidden=256, segments=0, dropout=0.3)


def _sides(asked: TrainingRequest) -> Sides:
    if asked.data is None:
        found = list(text_corpora.read_sentiment("train", asked.report))
        train, choosing, _ = split_by_key([text for text, _ in found], 0.0, CHOOSING / 2)
        held_out = list(text_corpora.read_sentiment("held-out", asked.report))
    else:
        problems = ProblemLog(skip=asked.skip_bad)
        found = list(read_labelled_texts(asked.data, problems))
        if problems.count:
            asked.report(str(problems))
        train, choosing, places = split_by_key([normalize_text(text) for text, _ in found], HELD_OUT, CHOOSING)
        held_out = [found[place] for place in places]
    learned = [found[place] for place in train]
    if len({label for _, label in learned}) < 2:
        raise ArgumentError(f"all texts that can be learned from are {learned[0][1]!r}; give some of another class")
    return learned, [found[place] for place in choosing], held_out


def _tokenizer(asked: TrainingRequest, texts: list[str]) -> Tokenizer:
    """Words, or pieces of words, learned on the training side alone."""
    options = asked.options(SentimentOptions)
    kind = options.tokens
    most = options.vocabulary or (16_000 if kind == "words" else 8_000)
    known = asked.folder / "tokenizer"
    if known.is_dir():  # a run that is taken up again
        return Tokenizer.load(known)
    special = {"pad": "<pad>", "mask": "<mask>", "unknown": "<unk>"}
    made = words(texts, most, special) if kind == "words" else Tokenizer.train(texts, most, special)
    made.save(known)
    return made


def words(texts: list[str], most: int, special: dict[str, str]) -> Tokenizer:
    """Words and marks in small letters, those that occur twice; what is rarer says too little to be learned.

    >>> known = words(["Good film, good cast", "A good film."], 300, {"unknown": "<unk>"})
    >>> [known.token(number) for number in known.encode("GOOD film!")]
    ['good', 'film', '<unk>']
    """
    inner = tokenizers.Tokenizer(models.WordLevel(unk_token=special["unknown"]))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    kinds = list(special.values())
    trainer = trainers.WordLevelTrainer(vocab_size=most, min_frequency=2, special_tokens=kinds, show_progress=False)
    inner.train_from_iterator(texts, trainer)
    return Tokenizer(inner, special)


def _fresh(asked: TrainingRequest, tokenizer: Tokenizer) -> ClassifierConfig:
    encoder = asked.config(ENCODER.replace(vocabulary=tokenizer.vocabulary))
    return asked.config(ClassifierConfig(encoder=encoder, pool="mean", dropout=encoder.dropout))


def _known(asked: TrainingRequest, loaded: Loaded) -> ClassifierConfig:
    """A classifier over an encoder that was loaded, or a classifier that was."""
    given = loaded.config
    if loaded.tokenizer is None or not isinstance(given, ClassifierConfig | BERTConfig | LongConfig):
        raise ArgumentError(
            f"the recipe sentiment starts from an encoder or a classifier that has a tokenizer; {asked.start} is none"
        )
    if not isinstance(given, ClassifierConfig):
        given = ClassifierConfig(encoder=given.replace(head="none", dropout=0.1), dropout=0.1)
    encoder = asked.config(given.encoder)
    return asked.config(given.replace(encoder=encoder.to_json()))


def _take(model: Classifier, loaded: Loaded, names: tuple[str, ...]) -> None:
    """The parameters of what was loaded; the map to classes is a new one where the classes are others."""
    given = loaded.model.state_dict()
    if not isinstance(loaded.model, Classifier):
        given = {f"encoder.{name}": one for name, one in given.items() if not name.startswith("head.")}
    elif loaded.labels != names:
        given = {name: one for name, one in given.items() if not name.startswith("output.")}
    ours = model.state_dict()
    odd = next((name for name in given if name not in ours or ours[name].shape != given[name].shape), None)
    if odd is not None:
        raise ArgumentError(f"the model to start from has another {odd}; leave its sizes as they are")
    model.load_state_dict(given, strict=False)


def _tokens(text: str, tokenizer: Tokenizer, longest: int) -> list[int]:
    ids = tokenizer.encode(text) or [0]
    return ids if len(ids) <= longest else [*ids[: longest - 1], ids[-1]]  # the last may be one that ends every text


def _blank(tokenizer: Tokenizer) -> int:
    """What stands where a word is hidden."""
    for token in (tokenizer.mask, tokenizer.unknown):
        if token is not None:
            return token
    raise ArgumentError("this tokenizer has no token for a hidden word; leave hidden_words at 0")


def rarity(labels: Tensor, classes: int) -> Tensor:
    """A weight for each class, so that all have the same share of the training texts; 1 on average."""
    return len(labels) / (classes * torch.bincount(labels, minlength=classes).clamp_min(1).float())


@torch.inference_mode()
def scores(model: Model, rows: list[list[int]]) -> Tensor:
    """Every class's score for every text; texts of similar length together, so that little is padded."""
    places = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    found = []
    for first in range(0, len(places), 128):
        tokens, real = pad_sequences([rows[place] for place in places[first : first + 128]], 0)
        found.append(model(tokens.to(model.device), token_mask=real.to(model.device)).logits.float().cpu())
    return torch.cat(found)[torch.tensor(places).argsort()]


def _samples(side: Labelled, shares: Tensor, theirs: Tensor, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {
            "text": text[:120],
            "is": label,
            "called": names[int(share.argmax())],
            "share": round(float(share.max()), 3),
            "baseline": names[int(other)],
        }
        for (text, label), share, other in list(zip(side, shares, theirs, strict=True))[:SAMPLES]
    ]
