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

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.datasets import toy_tasks
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer
from jumok.models import Model
from jumok.models.gpt import GPT, GPTConfig
from jumok.recipes.recipe import Defaults, Options, Recipe, create_model
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.seq2seq import generate_by_length
from jumok.recipes.shared.text_scores import compute_exact_match
from jumok.training import (
    IGNORE_INDEX,
    Batch,
    Settings,
    TrainingTask,
    compute_mean_loss,
    compute_token_loss,
    select_part,
)

VALIDATION = 10  # one in ten training questions is used to choose the best checkpoint instead
EVALUATION_BATCH = 1_000
REPORTED_MISTAKES = 20
REPORTED_SAMPLES = 5
Question = tuple[str, str]  # question and answer: "85+50=" and "531"

# dropout: without it one or two held-out answers stay wrong, because there are few training questions
SORT_CONFIG = GPTConfig(width=48, layers=3, heads=3, hidden=192, dropout=0.1)  # the size of minGPT's gpt-nano
ADD_CONFIG = GPTConfig(width=128, layers=2, heads=4, hidden=512)  # the size of minGPT's adder
COMMON_SETTINGS = {"learning_rate": 2e-3, "final_rate": 0.02, "warmup": 100, "beta2": 0.95, "decay": 0.1}
SORT_SETTINGS = {**COMMON_SETTINGS, "steps": 2000, "batch": 64, "evaluate_every": 500, "save_every": 500}
ADD_SETTINGS = {**COMMON_SETTINGS, "steps": 1500, "batch": 256, "evaluate_every": 250, "save_every": 250}


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


def create_sort_task(
    request: TrainingRequest, options: SortOptions, settings: Settings, loaded: Loaded | None
) -> TrainingTask:
    """Train a GPT of the size of minGPT's gpt-nano to sort 6 digits; a quarter of the 729 questions is held out."""
    examples = (
        toy_tasks.make_sort_examples(side, length=options.digits, kinds=options.kinds) for side in ("held-out", "train")
    )
    held_out, train = ([(f"{_join(row)}=", _join(answer)) for row, answer in part] for part in examples)
    return _create_task(request, held_out, train, SORT_CONFIG, settings, loaded)


def create_add_task(
    request: TrainingRequest, options: AddOptions, settings: Settings, loaded: Loaded | None
) -> TrainingTask:
    """Train a GPT of the size of minGPT's adder to add two-digit numbers; a tenth of the sums is held out.

    The answer begins with its last digit, so that the model computes carries in order: 85+50=531.
    """
    digits, backwards = options.digits, options.answer == "backwards"
    held_out, train = (
        [
            (f"{_join(row[:digits])}+{_join(row[digits:])}=", _join(answer))
            for row, answer in toy_tasks.make_addition_examples(side, digits=digits, backwards=backwards)
        ]
        for side in ("held-out", "train")
    )
    return _create_task(request, held_out, train, ADD_CONFIG, settings, loaded)


FROM_DATA = ("vocabulary", "length", "fixed_length")
sort = Recipe(
    create_sort_task, Defaults(SORT_SETTINGS, (SORT_CONFIG,), FROM_DATA), (GPT,), SortOptions, reads_data=False
)
add = Recipe(create_add_task, Defaults(ADD_SETTINGS, (ADD_CONFIG,), FROM_DATA), (GPT,), AddOptions, reads_data=False)


def _create_task(
    request: TrainingRequest,
    held_out: list[Question],
    questions: list[Question],
    config: GPTConfig,
    settings: Settings,
    loaded: Loaded | None,
) -> TrainingTask:
    validation, train = questions[: len(questions) // VALIDATION], questions[len(questions) // VALIDATION :]
    if not (held_out and validation and train):
        raise ArgumentError(
            f"there are only {len(held_out) + len(questions)} different questions, too few to hold some out; set "
            "more digits"
        )
    question_length, answer_length = (len(text) for text in held_out[0])
    length = question_length + answer_length
    model: Model
    if loaded is None:
        tokenizer = Tokenizer.for_characters("".join(question + answer for question, answer in train))
        # the context ends with the answer, so that generation stops there
        config = config.replace(vocabulary=tokenizer.vocabulary, length=length, fixed_length=True)
        model = create_model(GPT, request.change(config), settings.seed)
    else:
        _check_start(request, loaded, train, length)
        model, tokenizer = loaded.model, loaded.require_tokenizer()
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
        return {
            "loss": compute_mean_loss(model, [create_batch(validation_rows)]),
            "right": compute_exact_match(answers, [answer for _, answer in validation]),
        }

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        rows = [
            {"question": question, "answer": answer, "should_be": correct}
            for answer, (question, correct) in zip(answer_questions(model, held_out), held_out, strict=True)
        ]
        mistakes = [row for row in rows if row["answer"] != row["should_be"]]
        return {
            "right": 1 - len(mistakes) / len(rows),
            "try": held_out[0][0],
            "what": f"right: share of all {len(rows):,} held-out questions with every digit correct; {len(train):,} "
            f"other questions were used for training and {len(validation):,} to choose the checkpoint",
            "wrong": len(mistakes),
            "wrong_answers": mistakes[:REPORTED_MISTAKES] or "none",
            "samples": rows[:REPORTED_SAMPLES],
        }

    data = {
        "questions": len(held_out) + len(questions), "held_out": len(held_out), "first": "".join(held_out[0]),
        "letters": question_length,
    }  # fmt: skip
    return TrainingTask(
        Loaded(model, tokenizer), settings, batches, compute_token_loss, evaluate, data=data,
        build_report=build_report, examples=len(train_rows),
    )  # fmt: skip


def _check_start(request: TrainingRequest, loaded: Loaded, questions: list[Question], length: int) -> None:
    """Refuse a model that has not one token for each digit, or reads fewer tokens than a question and its answer."""
    tokenizer = loaded.require_tokenizer()
    rows = {tuple(tokenizer.encode(question + answer, special=False)) for question, answer in questions}
    if any(len(row) != length or tokenizer.unknown in row for row in rows):
        raise ArgumentError(f"the tokenizer of {request.start} must encode each digit as one token")
    longest = loaded.model.context_length
    if longest is not None and longest < length:
        raise ArgumentError(
            f"{request.start} reads at most {longest} tokens, but a question and its answer have {length}"
        )


def _join(digits: list[int]) -> str:
    return "".join(map(str, digits))
