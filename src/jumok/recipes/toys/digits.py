"""sort, add: a small GPT goes on with "021102=" or "85+50=", and only what stands behind "=" is learned. All questions
there are can be written down, so the held-out ones are exact in number, and each is asked (minGPT's two tasks)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.datasets import toy_tasks
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer
from jumok.generate import generate
from jumok.models import Model
from jumok.models.gpt import GPT, GPTConfig
from jumok.recipes.recipe import Defaults, Options, recipe
from jumok.recipes.request import TrainingRequest
from jumok.training import IGNORE_INDEX, Batch, Settings, Task, select_part, token_loss

CHOOSING = 10  # one in so many of those to learn from chooses the best checkpoint instead
AT_ONCE = 1_000
SHOWN = 20  # wrong answers in the report, and as many right ones as fit beside them
Question = tuple[str, str]  # "85+50=" and "531"


@dataclass(frozen=True)
class SortOptions(Options):
    """Fields of the recipe sort."""

    digits: int = integer(6, "number of digits to sort", 1, 20)
    kinds: int = integer(3, "number of different digits", 2, 10)


def sort_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings; the size of minGPT's gpt-nano."""
    # without dropout one or two held-out rows stay wrong: there are few rows to learn from
    config = GPTConfig(width=48, layers=3, heads=3, hidden=192, dropout=0.1)
    settings = {
        "steps": 2000, "batch": 64, "learning_rate": 2e-3, "final_rate": 0.02, "warmup": 100, "beta2": 0.95,
        "decay": 0.1, "evaluate_every": 500, "save_every": 500,
    }  # fmt: skip
    return Defaults(settings, () if request.start is not None else (config,), from_data=("vocabulary", "length"))


@recipe(sort_defaults, SortOptions)
def sort(asked: TrainingRequest) -> Task:
    """Sort 6 digits of 3 kinds, of the size of minGPT's gpt-nano: a quarter of the 729 is held out."""
    options = asked.options(SortOptions)
    held, rest = (
        [
            (f"{_joined(row)}=", _joined(answer))
            for row, answer in toy_tasks.make_sort_examples(side, length=options.digits, kinds=options.kinds)
        ]
        for side in ("held-out", "train")
    )
    return _task(asked, held, rest, sort_defaults(asked))


@dataclass(frozen=True)
class AddOptions(Options):
    """Fields of the recipe add."""

    digits: int = integer(2, "number of digits of each summand", 1, 3)
    answer: str = choice("backwards", ("backwards", "forwards"), "order of the answer's digits; backwards: ones first")


def add_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings; the size of minGPT's adder."""
    settings = {
        "steps": 1500, "batch": 256, "learning_rate": 2e-3, "final_rate": 0.02, "warmup": 100, "beta2": 0.95,
        "decay": 0.1, "evaluate_every": 250, "save_every": 250,
    }  # fmt: skip
    config = GPTConfig(width=128, layers=2, heads=4, hidden=512)
    return Defaults(settings, () if request.start is not None else (config,), from_data=("vocabulary", "length"))


@recipe(add_defaults, AddOptions)
def add(asked: TrainingRequest) -> Task:
    """Add two numbers of two digits, of the size of minGPT's adder: a tenth of the 10,000 sums is held out. The answer
    is written from its last digit, as people carry: 85+50=531."""
    options = asked.options(AddOptions)
    digits, backwards = options.digits, options.answer == "backwards"
    held, rest = (
        [
            (f"{_joined(row[:digits])}+{_joined(row[digits:])}=", _joined(answer))
            for row, answer in toy_tasks.make_addition_examples(side, digits=digits, backwards=backwards)
        ]
        for side in ("held-out", "train")
    )
    return _task(asked, held, rest, add_defaults(asked))


def _task(asked: TrainingRequest, held: list[Question], rest: list[Question], defaults: Defaults) -> Task:
    asked.refuse_data()
    settings = asked.settings(**defaults.settings)
    choosing, taught = rest[: len(rest) // CHOOSING], rest[len(rest) // CHOOSING :]
    if not (held and choosing and taught):
        raise ArgumentError(
            f"there are only {len(held) + len(rest)} questions of that kind, too few to hold some out; ask for more "
            "digits"
        )
    question, answer = (len(one) for one in held[0])
    model, tokenizer = _model(asked, defaults, settings, taught, question + answer)
    rows, others = (
        torch.tensor([tokenizer.encode(given + wanted, special=False) for given, wanted in some])
        for some in (taught, choosing)
    )
    order = ShuffledEpochs(len(rows), settings.seed)

    def batch(chosen: Tensor) -> Batch:
        targets = chosen[:, 1:].clone()
        targets[:, : question - 1] = IGNORE_INDEX
        return Batch({"tokens": chosen[:, :-1]}, targets, answer * len(chosen))

    def batches(step: int, part: int, parts: int) -> Batch:
        return batch(rows[select_part(order.batch_indices(step, settings.batch), part, parts)])

    def answered(model: Model, questions: list[Question]) -> list[str]:
        found: list[str] = []
        for first in range(0, len(questions), AT_ONCE):
            prompts = [tokenizer.encode(given, special=False) for given, _ in questions[first : first + AT_ONCE]]
            found += [tokenizer.decode(one) for one in generate(model, prompts, limit=answer)]
        return found

    def evaluate(model: Model) -> dict[str, float]:
        found = answered(model, choosing)
        right = sum(one == wanted for one, (_, wanted) in zip(found, choosing, strict=True)) / len(choosing)
        asked_for = batch(others).to(model.device)
        return {"loss": float(token_loss(model, asked_for)) / asked_for.count, "right": right}

    def report(model: Model, folder: Any) -> dict[str, Any]:
        told = [
            {"question": given, "answer": found, "should_be": wanted}
            for found, (given, wanted) in zip(answered(model, held), held, strict=True)
        ]
        wrong = [one for one in told if one["answer"] != one["should_be"]]
        return {
            "right": 1 - len(wrong) / len(held),
            "try": held[0][0],
            "what": f"of all {len(held):,} held-out questions, answered to the last digit; {len(taught):,} others were "
            f"learned from, and {len(choosing):,} chose the best checkpoint",
            "wrong": len(wrong),
            "wrong_answers": wrong[:SHOWN] or "none",
            "samples": told[:5],
        }

    data = {"questions": len(held) + len(rest), "held_out": len(held), "first": "".join(held[0]), "letters": question}
    return Task(model, settings, batches, token_loss, evaluate, tokenizer=tokenizer, data=data, report=report)


def _model(
    asked: TrainingRequest, defaults: Defaults, settings: Settings, taught: list[Question], length: int
) -> tuple[GPT, Tokenizer]:
    """The model ends where an answer ends: as many places as a question and its answer have."""
    loaded = asked.load_start()
    if loaded is None:
        tokenizer = Tokenizer.for_characters("".join(given + wanted for given, wanted in taught))
        config = asked.config(defaults.configs[0].replace(vocabulary=tokenizer.vocabulary, length=length))
        return asked.model(GPT, config, settings), tokenizer
    if not isinstance(loaded.model, GPT) or loaded.tokenizer is None:
        raise ArgumentError(f"the recipe {asked.recipe} goes on with a gpt that has a tokenizer; {asked.start} is none")
    found = {tuple(loaded.tokenizer.encode(given + wanted, special=False)) for given, wanted in taught}
    if any(len(one) != length or loaded.tokenizer.unknown in one for one in found):
        raise ArgumentError(f"{asked.start} does not read each digit as a token of its own, as this recipe must")
    if loaded.model.config.length < length:
        raise ArgumentError(f"{asked.start} reads {loaded.model.config.length} tokens, and {length} are needed")
    return loaded.model, loaded.tokenizer


def _joined(digits: list[int]) -> str:
    return "".join(map(str, digits))
