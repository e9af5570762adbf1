"""Recipe ``reader``: train a small Fusion-in-Decoder (Izacard and Grave 2021) to answer questions from passages.

The questions are generated: invented people and names, the answer in exactly one of the passages. The report gives the
share of exact answers by the number of passages, for names and templates that training did not use.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.batches.split import normalize_text
from jumok.data.datasets.invented_facts import NamePart, PassageQuestion, make_question
from jumok.data.tokenizers.passage_tokens import PASSAGE_MARK
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError
from jumok.fields import choice, integer
from jumok.models import Model
from jumok.models.fusion import Fusion, FusionConfig, measure_passage_attention, score_without_passages
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.recipes.recipe import Defaults, Options, Recipe, create_model
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import load_or_create_tokenizer, save_tokenizer
from jumok.recipes.shared.splits import split_by_key
from jumok.recipes.shared.text_scores import compute_exact_match
from jumok.training import (
    Batch,
    DataSummary,
    Settings,
    TrainingTask,
    compute_mean_loss,
    compute_token_loss,
    select_part,
)

from .passage_questions import SPECIAL_TOKENS, ReadingTexts, find_separator, read_questions

QuestionParts = tuple[list[PassageQuestion], list[PassageQuestion], list[PassageQuestion]]  # train, validate, report
TOKENIZER_QUESTIONS = 4_000  # generated questions from which the tokens are learned
VALIDATION_QUESTIONS = 100
VALIDATION_PASSAGES = 5
ANSWER_TOKENS = 24
PASSAGE_COUNTS = (1, 2, 5, 10, 20)
CITATION_PASSAGES = 5
REPORTED_SAMPLES = 6
#: the rows of the report: a name, the part of the names, and whether the templates are held out
CONDITIONS: tuple[tuple[str, NamePart, bool], ...] = (
    ("known names, known templates", "train", False),
    ("held-out names", "report", False),
    ("held-out templates", "train", True),
    ("held-out names and templates", "report", True),
)
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
) -> TrainingTask:
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

    training, validation, reported = own_questions or ([], [], [])
    if own_questions is None:
        names = [f"validation {index}" for index in range(VALIDATION_QUESTIONS)]
        validation = [make_question(name, VALIDATION_PASSAGES, names="validation") for name in names]
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
        return {"loss": loss, "exact_match": _compute_share(texts.answer(model, validation, ANSWER_TOKENS), validation)}

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        if reported:
            return _report_answers(
                model, texts, reported, f"{len(reported):,} held-out questions, decoded greedily", {}
            )
        return _build_generated_report(model, texts, options.held_out)

    first = training[:3] or [make_question(f"{settings.seed} 0 {row}", options.passages) for row in range(3)]
    rows = [
        {"question": example.question, "passages": " | ".join(example.passages), "answer": example.answer}
        for example in first
    ]
    counts = {"validation questions": len(validation)}
    if training:
        counts = {"training questions": len(training), **counts, "held-out questions": len(reported)}
    return TrainingTask(
        Loaded(model, tokenizer), settings, batches, compute_token_loss, evaluate, "exact_match", "higher",
        data={**counts, "vocabulary": tokenizer.vocabulary}, build_report=build_report,
        summary=DataSummary(counts, rows), examples=len(training) or None,
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


def _learn_tokenizer(vocabulary: int, own_questions: QuestionParts | None) -> Tokenizer:
    generated = (make_question(f"tokenizer {index}", 3) for index in range(TOKENIZER_QUESTIONS))
    questions = generated if own_questions is None else own_questions[0]
    # with the space before them, names have the same tokens in questions, answers and passages
    texts = (
        text
        for example in questions
        for text in (example.question, f" {example.answer}", *(f" {passage}" for passage in example.passages))
    )
    return Tokenizer.train(texts, vocabulary, SPECIAL_TOKENS, drop_first_space=True)


reader = Recipe(create_reader_task, get_reader_defaults, (Fusion,), ReaderOptions)


def _make_report_questions(count: int, passages: int, names: NamePart, held_out: bool) -> list[PassageQuestion]:
    """Return the questions of one cell of the report; the same for every model."""
    seeds = [f"report {names} {held_out} {passages} {index}" for index in range(count)]
    return [make_question(seed, passages, names=names, held_out_templates=held_out) for seed in seeds]


def _build_generated_report(model: Model, texts: ReadingTexts, count: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for name, names, held_out in CONDITIONS:
        rows.append({"questions": name})
        for passages in PASSAGE_COUNTS:
            examples = _make_report_questions(count, passages, names, held_out)
            answers = texts.answer(model, examples, ANSWER_TOKENS)
            rows[-1][f"{passages} passages"] = _compute_share(answers, examples)
    rows.append({"questions": "guess: a random name of the right kind in the passages"})
    for passages in PASSAGE_COUNTS:
        examples = _make_report_questions(count, passages, "report", False)
        share = statistics.mean(1 / max(1, len(example.candidates)) for example in examples)
        rows[-1][f"{passages} passages"] = round(share, 4)

    description = f"{count} generated questions in each cell, decoded greedily; exact_match: held-out names, "
    held_out_names = _make_report_questions(count, CITATION_PASSAGES, "report", False)
    return _report_answers(
        model, texts, held_out_names, f"{description}{CITATION_PASSAGES} passages", {"by_passages": rows}
    )


def _report_answers(
    model: Model, texts: ReadingTexts, examples: Sequence[PassageQuestion], description: str, table: dict[str, Any]
) -> dict[str, Any]:
    """Answer the questions, and return the score, the tested citations and some answers, wrong ones first."""
    answers = texts.answer(model, examples, ANSWER_TOKENS)
    pairs = sorted(zip(examples, answers, strict=True), key=lambda pair: pair[0].answer == pair[1])
    return {
        "try": write_example(examples[0]),
        "exact_match": _compute_share(answers, examples),
        "what": description,
        **table,
        **_report_citations(model, texts, examples, answers),
        "samples": [
            {"question": example.question, "expected": example.answer, "answer": answer}
            for example, answer in pairs[:REPORTED_SAMPLES]
        ],
    }


def _report_citations(
    model: Model, texts: ReadingTexts, examples: Sequence[PassageQuestion], answers: Sequence[str]
) -> dict[str, Any]:
    """Return how often the passage that an answer of a Fusion depends on is the right one."""
    if not isinstance(model, Fusion):
        return {}
    rows = []
    for name, is_included in (("all answers", (True, False)), ("exact answers", (True,))):
        pairs = [
            (example, answer)
            for example, answer in zip(examples, answers, strict=True)
            if example.right is not None and len(example.passages) > 1 and (answer == example.answer) in is_included
        ]
        if pairs:
            rows.append({"questions": name, **_score_citations(model, texts, pairs)})
    if not rows:
        return {}
    return {
        "citations": rows,
        "citations_what": "the passage whose cut lowers the log-probability of the answer most, against the passage "
        "with the largest cross-attention: how often is it the one with the right answer? A wrong answer may come from "
        "another passage",
    }


def _score_citations(
    model: Fusion, texts: ReadingTexts, pairs: Sequence[tuple[PassageQuestion, str]]
) -> dict[str, int | float]:
    right_by_cut, right_by_weight, right_drops, other_drops = [], [], [], []
    for example, answer in pairs:
        assert example.right is not None
        effects = measure_passages(model, texts.encode_source(example), texts.encode_answer(answer))
        right_by_cut.append(effects.drops.index(max(effects.drops)) == example.right)
        right_by_weight.append(effects.weights.index(max(effects.weights)) == example.right)
        right_drops.append(effects.drops.pop(example.right))
        other_drops += effects.drops
    return {
        "count": len(pairs),
        "right_by_cutting": round(float(statistics.mean(right_by_cut)), 4),
        "right_by_attention": round(float(statistics.mean(right_by_weight)), 4),
        "median_drop_right_passage": round(statistics.median(right_drops), 3),
        "median_drop_other_passages": round(statistics.median(other_drops), 3),
    }


def _compute_share(answers: Sequence[str], examples: Sequence[PassageQuestion]) -> float:
    return round(compute_exact_match(answers, [example.answer for example in examples]), 4)


def write_example(example: PassageQuestion) -> str:
    """Return a question and its passages as one line, as ``jumok run`` reads it."""
    parts = [example.question, *example.passages]
    return f" {PASSAGE_MARK} ".join(part.replace(PASSAGE_MARK, "/") for part in parts)


class PassageEffects(NamedTuple):
    """What each passage contributes to an answer."""

    drops: list[float]  # how much the log-probability of the answer falls when the passage is cut
    weights: list[float]  # the cross-attention on it, as the mean over layers, heads and tokens of the answer


def measure_passages(model: Fusion, source: list[int], answer: list[int]) -> PassageEffects:
    """Cut each passage in turn. Passages are encoded apart, so cutting one changes no other passage."""
    tokens = torch.tensor([source], device=model.device)
    passages = range(source.count(model.config.separator))
    clean, *cut = score_without_passages(model, tokens, answer, [(), *((number,) for number in passages)]).sum(1)
    weights = measure_passage_attention(model, tokens, answer)
    return PassageEffects([float(clean - score) for score in cut], weights)
