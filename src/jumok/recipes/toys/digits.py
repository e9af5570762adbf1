"""Recipes ``sort`` and ``add``: a small GPT continues "021102=" or "85+50=" (minGPT's two tasks).

Only the digits after "=" are training targets. All possible questions are enumerated, so that the model can be
tested on every held-out question.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.datasets import toy_tasks
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer
from jumok.models import Model
from jumok.models.gpt import GPT, GPTConfig
from jumok.recipes.recipe import Defaults, Options, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.batched_decoding import generate_by_length
from jumok.recipes.shared.text_scores import compute_exact_match
from jumok.training import IGNORE_INDEX, Batch, Settings, Task, compute_token_loss, select_part

VALIDATION = 10  # one in ten training questions is used to choose the best checkpoint instead
EVALUATION_BATCH = 1_000
REPORTED_MISTAKES = 20
REPORTED_SAMPLES = 5
Question = tuple[str, str]  # question and answer: "85+50=" and "531"


# dropout: without it one or two held-out answers stay wrong, because there are few training questions
SORT_CONFIG = GPTConfig(width=48, layers=3, heads=3, hidden=192, dropout=0.1)  # the size of minGPT's gpt-nano
ADD_CONFIG = GPTConfig(width=128, layers=2, heads=4, hidden=512)  # the size of minGPT's adder


@dataclass(frozen=True)
class SortOptions(Options):
    """Fields of the sort recipe."""

    digits: int = integer(6, "number of digits to sort", 1, 20)
    kinds: int = integer(3, "number of different digits", 2, 10)


@dataclass(frozen=True)
class AddOptions(Options):
    """Fields of the add recipe."""

    digits: int = integer(2, "number of digits of each summand", 1, 3)
    answer: str = choice("backwards", ("backwards", "forwards"), "order of the answer's digits; backwards: ones first")


def get_sort_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings of the sort recipe."""
    settings = {
        "steps": 2000, "batch": 64, "learning_rate": 2e-3, "final_rate": 0.02, "warmup": 100, "beta2": 0.95,
        "decay": 0.1, "evaluate_every": 500, "save_every": 500,
    }  # fmt: skip
    configs = () if request.start is not None else (SORT_CONFIG,)
    return Defaults(settings, configs, from_data=("vocabulary", "length", "fixed_length"))


def get_add_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings of the add recipe."""
    settings = {
        "steps": 1500, "batch": 256, "learning_rate": 2e-3, "final_rate": 0.02, "warmup": 100, "beta2": 0.95,
        "decay": 0.1, "evaluate_every": 250, "save_every": 250,
    }  # fmt: skip
    configs = () if request.start is not None else (ADD_CONFIG,)
    return Defaults(settings, configs, from_data=("vocabulary", "length", "fixed_length"))


@recipe(get_sort_defaults, SortOptions)
def sort(request: TrainingRequest) -> Task:
    """Train a GPT of the size of minGPT's gpt-nano to sort 6 digits; a quarter of the 729 questions is held out."""
    options = request.take_options(SortOptions)
    held_out, train = (
        [
            (f"{_join(row)}=", _join(answer))
            for row, answer in toy_tasks.make_sort_examples(side, length=options.digits, kinds=options.kinds)
        ]
        for side in ("held-out", "train")
    )
    settings = request.take_settings(**get_sort_defaults(request).settings)
    return _create_task(request, held_out, train, SORT_CONFIG, settings)


@recipe(get_add_defaults, AddOptions)
def add(request: TrainingRequest) -> Task:
    """Train a GPT of the size of minGPT's adder to add two-digit numbers; a tenth of the sums is held out.

    The answer begins with its last digit, so that the model computes carries in order: 85+50=531.
    """
    options = request.take_options(AddOptions)
    digits, backwards = options.digits, options.answer == "backwards"
    held_out, train = (
        [
            (f"{_join(row[:digits])}+{_join(row[digits:])}=", _join(answer))
            for row, answer in toy_tasks.make_addition_examples(side, digits=digits, backwards=backwards)
        ]
        for side in ("held-out", "train")
    )
    settings = request.take_settings(**get_add_defaults(request).settings)
    return _create_task(request, held_out, train, ADD_CONFIG, settings)


def _create_task(
    request: TrainingRequest,
    held_out: list[Question],
    questions: list[Question],
    config: GPTConfig,
    settings: Settings,
) -> Task:
    request.refuse_data()
    validation, train = questions[: len(questions) // VALIDATION], questions[len(questions) // VALIDATION :]
    if not (held_out and validation and train):
        raise ArgumentError(
            f"there are only {len(held_out) + len(questions)} different questions, too few to hold some out; set "
            "more digits"
        )
    question_length, answer_length = (len(text) for text in held_out[0])
    model, tokenizer = _create_or_continue_model(request, config, settings, train, question_length + answer_length)
    train_rows, validation_rows = (
        torch.tensor([tokenizer.encode(question + answer, special=False) for question, answer in part])
        for part in (train, validation)
    )
    order = ShuffledEpochs(len(train_rows), settings.seed)

    def create_batch(rows: Int[Tensor, "batch length"]) -> Batch:
        targets = rows[:, 1:].clone()
        targets[:, : question_length - 1] = IGNORE_INDEX
        return Batch({"tokens": rows[:, :-1]}, targets, answer_length * len(rows))

    def batches(step: int, part: int, parts: int) -> Batch:
        return create_batch(train_rows[select_part(order.select_indices(step, settings.batch), part, parts)])

    def answer_questions(model: Model, questions: list[Question]) -> list[str]:
        prompts = [tokenizer.encode(question, special=False) for question, _ in questions]
        answers = generate_by_length(model, prompts, limit=answer_length, size=EVALUATION_BATCH)
        return [tokenizer.decode(answer) for answer in answers]

    def evaluate(model: Model) -> dict[str, float]:
        answers = answer_questions(model, validation)
        batch = create_batch(validation_rows).to(model.device)
        return {
            "loss": float(compute_token_loss(model, batch)) / batch.count,
            "right": compute_exact_match(answers, [answer for _, answer in validation]),
        }

    def report(model: Model, folder: Path) -> dict[str, Any]:
        counts = (
            f"{len(train):,} other questions were used for training and {len(validation):,} to choose the checkpoint"
        )
        return _build_report(answer_questions(model, held_out), held_out, counts)

    data = {
        "questions": len(held_out) + len(questions), "held_out": len(held_out), "first": "".join(held_out[0]),
        "letters": question_length,
    }  # fmt: skip
    return Task(
        model, settings, batches, compute_token_loss, evaluate, tokenizer=tokenizer, data=data, report=report,
        examples=len(train_rows),
    )  # fmt: skip


def _build_report(answers: list[str], questions: list[Question], counts: str) -> dict[str, Any]:
    rows = [
        {"question": question, "answer": answer, "should_be": correct}
        for answer, (question, correct) in zip(answers, questions, strict=True)
    ]
    mistakes = [row for row in rows if row["answer"] != row["should_be"]]
    return {
        "right": 1 - len(mistakes) / len(questions),
        "try": questions[0][0],
        "what": f"right: share of all {len(questions):,} held-out questions with every digit correct; {counts}",
        "wrong": len(mistakes),
        "wrong_answers": mistakes[:REPORTED_MISTAKES] or "none",
        "samples": rows[:REPORTED_SAMPLES],
    }


def _create_or_continue_model(
    request: TrainingRequest, config: GPTConfig, settings: Settings, questions: list[Question], length: int
) -> tuple[GPT, Tokenizer]:
    """Return a model whose context ends with the answer, so that generation stops there."""
    loaded = request.load_start()
    if loaded is None:
        tokenizer = Tokenizer.for_characters("".join(question + answer for question, answer in questions))
        config = request.take_config(config.replace(vocabulary=tokenizer.vocabulary, length=length, fixed_length=True))
        return request.create_model(GPT, config, settings), tokenizer
    if not isinstance(loaded.model, GPT) or loaded.tokenizer is None:
        raise ArgumentError(
            f"the {request.recipe} recipe can start only from a gpt with a tokenizer; {request.start} is not one"
        )
    rows = {tuple(loaded.tokenizer.encode(question + answer, special=False)) for question, answer in questions}
    if any(len(row) != length or loaded.tokenizer.unknown in row for row in rows):
        raise ArgumentError(f"the tokenizer of {request.start} must encode each digit as one token")
    if loaded.model.config.length < length:
        raise ArgumentError(
            f"{request.start} reads at most {loaded.model.config.length} tokens, but a question and its answer have "
            f"{length}"
        )
    return loaded.model, loaded.tokenizer


def _join(digits: list[int]) -> str:
    return "".join(map(str, digits))
