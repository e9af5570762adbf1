"""text: a GPT learns to go on with a text, character by character or in pieces of words. ``text-fast`` learns the same
in less time: rotary positions, norms without means, gates, Muon (LOG.md says what each is worth)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jumok.data import catalogue
from jumok.data.batches.batch_order import RandomWindows
from jumok.data.datasets import text_corpora
from jumok.data.readers import documents as texts
from jumok.data.readers.lines import ProblemLog
from jumok.data.token_store import token_shards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer, optional
from jumok.generate import Sampling, generate
from jumok.models import Model
from jumok.models.gpt import GPT, GPTConfig
from jumok.recipes.recipe import Defaults, Options, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.learned_tokenizer import learn_tokenizer
from jumok.training import Batch, Task, select_part, token_loss

TOKENS = ("characters", "bytes", "gpt2", "learned")
HELD_OUT = 0.1  # the last tenth of the text


@dataclass(frozen=True)
class TextOptions(Options):
    """Fields of the recipes text and text-fast."""

    with_start = ("window",)
    without_start = ("tokens", "vocabulary")

    tokens: str = choice("characters", TOKENS, "what a token is")
    vocabulary: int | None = optional(integer(2048, "size of the vocabulary with tokens=learned; None = 2048", 257))
    window: int | None = optional(integer(256, "tokens of a training example; None = 256, or the model's length", 2))
    evaluated: int | None = optional(
        integer(2**20, "tokens of the last tenth of the text to evaluate on; None = 2**20, with --from 2**14", 1)
    )


def text_defaults(request: TrainingRequest) -> Defaults:
    """The size, batches and steps of nanoGPT's setting for a CPU; with twice its learning rate, which falls further."""
    config = GPTConfig(length=64, width=128, layers=4, heads=4, hidden=512, activation="gelu")
    settings = {
        "steps": 2000, "batch": 12, "learning_rate": 2e-3, "final_rate": 0.02, "warmup": 100, "beta2": 0.99,
        "decay": 0.1, "clip": 1.0, "evaluate_every": 500, "save_every": 500,
    }  # fmt: skip
    return _defaults(request, config, settings)


def text_fast_defaults(request: TrainingRequest) -> Defaults:
    """The same size and text in a third of the time."""
    config = GPTConfig(
        length=64, width=128, layers=4, heads=4, hidden=352, positions="rotary", feedforward="gated",
        activation="silu", attention_bias=False, output_bias=False, feedforward_bias=False,
    )  # fmt: skip
    settings = {
        "steps": 380, "batch": 12, "optimizer": "muon", "learning_rate": 6e-3, "matrix_rate": 2e-2, "final_rate": 0.02,
        "warmup": 30, "beta2": 0.99, "decay": 0.05, "clip": 1.0, "evaluate_every": 380, "save_every": 190,
    }  # fmt: skip
    return _defaults(request, config, settings)


def _defaults(request: TrainingRequest, config: GPTConfig, settings: dict[str, Any]) -> Defaults:
    if request.start is None:
        return Defaults(settings, (config,), from_data=("vocabulary",))
    # a pretrained model is fine-tuned with a low learning rate
    return Defaults({**settings, "optimizer": "adamw", "learning_rate": 1e-4, "decay": 0.01})


@recipe(text_defaults, TextOptions)
def text(asked: TrainingRequest) -> Task:
    """A GPT learns a text."""
    return _task(asked, text_defaults(asked))


@recipe(text_fast_defaults, TextOptions)
def text_fast(asked: TrainingRequest) -> Task:
    """A GPT learns a text, in less time."""
    return _task(asked, text_fast_defaults(asked))


def _task(asked: TrainingRequest, defaults: Defaults) -> Task:
    options = asked.options(TextOptions)
    settings = asked.settings(**defaults.settings)
    loaded = asked.load_start()
    if loaded is not None:
        if not isinstance(loaded.model, GPT) or loaded.tokenizer is None:
            raise ArgumentError(
                f"the recipe {asked.recipe} goes on with a gpt that has a tokenizer; {asked.start} is none"
            )
        tokenizer, model = loaded.tokenizer, loaded.model
        window, field = options.window or min(model.config.length, 256), "window"
        if window > model.config.length:
            raise ArgumentError(
                f"window of the recipe {asked.recipe} must be from 2 to {model.config.length}, not {window}"
            )
    else:
        tokenizer = _tokenizer(asked)
        (default,) = defaults.configs
        config = asked.config(default).replace(vocabulary=tokenizer.vocabulary)
        model = asked.model(GPT, config, settings)
        window, field = model.config.length, "length"
    tokens = _tokens(asked, tokenizer)
    count = len(tokens)
    train = int(count * (1 - HELD_OUT))
    if count - train <= window:
        raise ArgumentError(
            f"the text has {count:,} tokens; the last tenth must be more than a window of {window}. "
            f"Give more text, or --set {field}=... (shorter)"
        )
    # a large model reads slowly, and is known to be good: a sample is enough
    sample = max(window + 1, 2**20 if loaded is None else 2**14)
    evaluated = sample if options.evaluated is None else options.evaluated
    if evaluated <= window:
        raise ArgumentError(f"evaluated must be more than a window of {window}, not {evaluated}")
    last = min(count, train + evaluated)
    windows = RandomWindows(train, window + 1, settings.seed)

    def batches(step: int, part: int, parts: int) -> Batch:
        starts = select_part(windows.batch_indices(step, settings.batch), part, parts)
        rows = torch.stack([tokens.read_tokens(start, window + 1) for start in starts])
        return Batch({"tokens": rows[:, :-1]}, rows[:, 1:], rows[:, 1:].numel())

    def evaluate(model: Model) -> dict[str, float]:
        total = seen = 0.0
        for batch in held_out(tokens, train, last, window):
            total += float(token_loss(model, batch.to(model.device)))
            seen += batch.count
        return {"loss": total / seen}

    def report(model: Model, folder: Any) -> dict[str, Any]:
        start = tokens.read_tokens(train, min(16, window // 2)).tolist()
        room = min(300, getattr(model.config, "length", window) - len(start))
        part = "the whole" if last == count else "the beginning of the"
        new = generate(model, [start], limit=room, sampling=Sampling(0.8, top_k=200))[0]
        return {
            **evaluate(model),
            "what": f"cross-entropy a token, in nats, over {part} last tenth of the text ({last - train:,} tokens)",
            "unknown_rate": tokens.unknown_rate,
            "try": tokenizer.decode(start),
            "sample": tokenizer.decode(start + new),
        }

    data = {
        "tokens": count,
        "vocabulary": tokenizer.vocabulary,
        "tokenizer": token_shards.fingerprint_tokenizer(tokenizer),
    }
    return Task(model, settings, batches, token_loss, evaluate, tokenizer=tokenizer, data=data, report=report)


def held_out(tokens: token_shards.TokenShards, begin: int, end: int, window: int, rows: int = 64) -> Iterator[Batch]:
    """Every token from ``begin`` to ``end``, in windows that do not overlap; the last one is shorter."""
    starts = range(begin, end - 1, window)
    whole = [start for start in starts if start + window + 1 <= end]
    for first in range(0, len(whole), rows):
        yield _batch(torch.stack([tokens.read_tokens(start, window + 1) for start in whole[first : first + rows]]))
    if len(whole) < len(starts):
        yield _batch(tokens.read_tokens(starts[-1], end - starts[-1])[None])


def _batch(rows: Tensor) -> Batch:
    return Batch({"tokens": rows[:, :-1]}, rows[:, 1:], rows[:, 1:].numel())


def _pieces(asked: TrainingRequest, problems: ProblemLog) -> Iterator[texts.TextPiece]:
    if asked.data is not None:
        return texts.read_pieces(asked.data, problems)
    return (
        texts.TextPiece(one, True)
        for side in ("train", "held-out")
        for one in text_corpora.read_shakespeare(side, asked.report)
    )


def _tokenizer(asked: TrainingRequest) -> Tokenizer:
    options = asked.options(TextOptions)
    kind = options.tokens
    if options.vocabulary is not None and kind != "learned":
        raise ArgumentError(f"a vocabulary is chosen with --set tokens=learned alone; that of tokens={kind} is given")
    known = asked.folder / "tokenizer"
    if known.is_dir():  # a run that is taken up again
        return Tokenizer.load(known)
    if kind == "bytes":
        return Tokenizer.for_bytes()
    if kind == "gpt2":
        return Tokenizer.load(catalogue.download_entry("gpt2-tokenizer", asked.report))
    found = (piece.text for piece in _pieces(asked, ProblemLog(skip=asked.skip_bad)))
    if kind == "learned":
        return learn_tokenizer(found, options.vocabulary or 2048, {})
    characters: set[str] = set()
    for one in found:
        characters.update(one)
    return Tokenizer.for_characters("".join(sorted(characters)))


def _tokens(asked: TrainingRequest, tokenizer: Tokenizer) -> token_shards.TokenShards:
    place = asked.folder / "tokens"
    if place.is_dir():
        found = token_shards.TokenShards(place)
        found.verify()
        return found
    problems = ProblemLog(skip=asked.skip_bad)
    made = token_shards.write_shards(
        texts.encode_pieces(_pieces(asked, problems), tokenizer),
        place,
        tokenizer.vocabulary,
        unknown=tokenizer.unknown,
        fingerprint=token_shards.fingerprint_tokenizer(tokenizer),
        report=asked.report,
    )
    if problems.count:
        asked.report(str(problems))
    Path(asked.folder / "tokenizer").mkdir(exist_ok=True)
    tokenizer.save(asked.folder / "tokenizer")
    return made
