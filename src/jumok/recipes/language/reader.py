"""Recipe ``reader``: train a small Fusion-in-Decoder (Izacard and Grave 2021) to answer questions from passages.

The questions are generated: invented people and names, the answer in exactly one of the passages. The report gives the
share of exact answers by the number of passages, for names and templates that training did not use.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.batches.split import normalize_text
from jumok.data.datasets.invented_facts import PassageQuestion, make_question
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError
from jumok.fields import choice, integer
from jumok.models import Model
from jumok.models.fusion import Fusion, FusionConfig
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.recipes.recipe import Defaults, Options, Recipe, create_model
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import learn_tokenizer, load_or_create_tokenizer, save_tokenizer
from jumok.recipes.shared.splits import split_by_key
from jumok.training import Batch, DataSummary, Settings, Task, compute_mean_loss, compute_token_loss, select_part

from .passage_questions import SPECIAL_TOKENS, ReadingTexts, find_separator, read_questions
from .reader_report import build_generated_report, build_own_report, compute_share

QuestionParts = tuple[list[PassageQuestion], list[PassageQuestion], list[PassageQuestion]]  # train, validate, report

TOKENIZER_QUESTIONS = 4_000  # generated questions from which the tokens are learned
VALIDATION_QUESTIONS = 100
VALIDATION_PASSAGES = 5
ANSWER_TOKENS = 24
# Rotary positions, and names of about two tokens: with added sinusoids or more tokens per name, the model joins the
# beginning of one name to the end of another for much longer (bench/results).
# Three encoder layers: names have two tokens, so one layer joins the tokens of a name, the next finds the name of the
# question, and the third tells it to the answer beside the name. Exact answers come late and suddenly: 57% after 2,500
# steps, 94% after 3,500 (bench/results).
SIZES: dict[str, Any] = {
    "vocabulary": 1600, "width": 128, "layers": 3, "decoder_layers": 2, "heads": 4, "hidden": 256, "order": "pre",
    "positions": "rotary",
}  # fmt: skip
CONFIGS: dict[str, TransformerConfig] = {
    "apart": FusionConfig(length=96, **SIZES),
    "together": TransformerConfig(length=4096, **SIZES),  # all passages as one text
}
SETTINGS: dict[str, Any] = {
    "steps": 6000, "batch": 32, "optimizer": "adamw", "learning_rate": 1.5e-3, "final_rate": 0.0, "warmup": 50,
    "beta2": 0.98, "decay": 0.01, "average": 0.99, "evaluate_every": 500, "save_every": 500,
}  # fmt: skip


@dataclass(frozen=True)
class ReaderOptions(Options):
    """Fields of the reader recipe."""

    without_data = ("passages", "single", "held_out")
    without_start = ("reading",)

    reading: str = choice(
        "apart", ("apart", "together"), "encode each passage apart (Fusion-in-Decoder), or all as one text"
    )
    passages: int = integer(5, "largest number of passages of a training question", 1, 100)
    single: int = integer(
        15, "percent of the steps, at the beginning, with one passage; half of them with one sentence", 0, 100
    )
    held_out: int = integer(100, "number of questions in each cell of the report")


def get_reader_defaults(request: TrainingRequest, options: ReaderOptions, loaded: Loaded | None) -> Defaults:
    """Return the default config and settings."""
    return Defaults(SETTINGS, (CONFIGS[options.reading],), from_data=("start", "end", "pad", "separator"))


def create_reader_task(
    request: TrainingRequest, options: ReaderOptions, settings: Settings, loaded: Loaded | None
) -> Task:
    """Train a Fusion-in-Decoder on generated questions with passages, or on the user's own."""
    own_questions = _read_own_questions(request) if request.data is not None else None
    model: Transformer
    if loaded is None:
        config = request.change(CONFIGS[options.reading])
        tokenizer = load_or_create_tokenizer(request, lambda: _learn_tokenizer(config.vocabulary, own_questions))
        tokens = {"start": tokenizer.begin, "end": tokenizer.end, "pad": tokenizer.pad}
        if isinstance(config, FusionConfig):
            tokens["separator"] = find_separator(tokenizer)
        kind = Fusion if isinstance(config, FusionConfig) else Transformer
        model = create_model(kind, config.replace(vocabulary=tokenizer.vocabulary, **tokens), settings.seed)
    else:
        assert isinstance(loaded.model, Fusion)
        model, tokenizer = loaded.model, loaded.require_tokenizer()
        save_tokenizer(request, tokenizer)
    texts = ReadingTexts(tokenizer, find_separator(tokenizer), model.config.length, isinstance(model, Fusion))

    training, validation, reported = own_questions or ([], _make_validation(), [])
    order = ShuffledEpochs(len(training), settings.seed) if training else None
    single_steps = settings.steps * options.single // 100

    def batches(step: int, part: int, parts: int) -> Batch:
        if order is not None:
            indices = select_part(order.select_indices(step, settings.batch), part, parts)
            return texts.create_batch([training[index] for index in indices])
        passages, sentences = 1, 3
        if step >= single_steps:
            passages = random.Random(f"passages {settings.seed} {step}").randint(1, options.passages)
        elif step < single_steps // 2:
            sentences = 1  # copying a name is learned first, then finding its sentence, then finding its passage
        rows = select_part(list(range(settings.batch)), part, parts)
        return texts.create_batch(
            [make_question(f"{settings.seed} {step} {row}", passages, sentences=sentences) for row in rows]
        )

    def evaluate(model: Model) -> dict[str, float]:
        loss = compute_mean_loss(model, [texts.create_batch(validation)])
        return {"loss": loss, "exact_match": compute_share(texts.answer(model, validation, ANSWER_TOKENS), validation)}

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        if reported:
            return build_own_report(model, texts, reported, ANSWER_TOKENS)
        return build_generated_report(model, texts, options.held_out, ANSWER_TOKENS)

    first = training[:3] or [make_question(f"{settings.seed} 0 {row}", options.passages) for row in range(3)]
    counts = {"validation questions": len(validation)}
    if training:
        counts = {"training questions": len(training), **counts, "held-out questions": len(reported)}
    return Task(
        model, settings, batches, compute_token_loss, evaluate, "exact_match", "higher", tokenizer=tokenizer,
        data={**counts, "vocabulary": tokenizer.vocabulary}, build_report=build_report,
        summary=DataSummary(counts, [_summarize(example) for example in first]),
        examples=len(training) or None,
    )  # fmt: skip


def _read_own_questions(request: TrainingRequest) -> QuestionParts:
    """Return the user's questions for training, for validation and for the report."""
    request.select_dataset(None, ())
    problems = request.create_problem_log()
    questions = read_questions(request.require_files(), problems)
    request.show_problems(problems)
    parts = split_by_key([normalize_text(example.question) for example in questions], 0.1, 0.1)
    training, validation, reported = ([questions[index] for index in indices] for indices in parts)
    if not (training and validation and reported):
        raise DataError(f"{len(questions)} questions are too few to hold some out; give at least 20 different ones")
    return training, validation[:VALIDATION_QUESTIONS], reported


def _make_validation() -> list[PassageQuestion]:
    return [
        make_question(f"validation {index}", VALIDATION_PASSAGES, names="validation")
        for index in range(VALIDATION_QUESTIONS)
    ]


def _learn_tokenizer(vocabulary: int, own_questions: QuestionParts | None) -> Tokenizer:
    if own_questions is None:
        questions = [make_question(f"tokenizer {index}", 3) for index in range(TOKENIZER_QUESTIONS)]
    else:
        questions = own_questions[0]
    # with the space before them, names have the same tokens in questions, answers and passages
    texts = (
        text
        for example in questions
        for text in (example.question, f" {example.answer}", *(f" {passage}" for passage in example.passages))
    )
    return learn_tokenizer(texts, vocabulary, SPECIAL_TOKENS, drop_first_space=True)


def _summarize(example: PassageQuestion) -> dict[str, str]:
    return {"question": example.question, "passages": " | ".join(example.passages), "answer": example.answer}


reader = Recipe(create_reader_task, get_reader_defaults, (Fusion,), ReaderOptions)
