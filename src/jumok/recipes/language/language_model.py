"""Recipes ``text``, ``text-fast`` and ``gpt2``: train a GPT on text, with characters, bytes or byte pairs.

``text-fast`` reaches the same loss in less time, with rotary positions, RMS norms, gated feed-forwards and the
optimizer Muon; bench/results lists how much each contributes. ``gpt2`` has the blocks of GPT-2 and learned byte pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data import catalogue
from jumok.data.batches.batch_order import RandomWindows
from jumok.data.batches.split import Split
from jumok.data.datasets import text_corpora
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_examples import TextPiece, encode_pieces, read_pieces
from jumok.data.token_shards import INDEX_FILE, TokenShards, fingerprint_tokenizer
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer, optional
from jumok.generate import Sampling, generate
from jumok.models import Model
from jumok.models.gpt import GPT, GPTConfig
from jumok.recipes.recipe import Defaults, Options, Recipe, column_field, create_model, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import load_or_create_tokenizer, save_tokenizer
from jumok.recipes.shared.stored_data import TOKENS_FOLDER, load_tokens, write_tokens
from jumok.training import (
    Batch,
    DataSummary,
    Settings,
    TrainingTask,
    compute_mean_loss,
    compute_token_loss,
    select_part,
)

TOKEN_KINDS = ("characters", "bytes", "gpt2", "learned")
HELD_OUT = 0.1  # the last tenth of the text
STORED_INDEX = f"{TOKENS_FOLDER}/{INDEX_FILE}"  # in the run's folder, once the text is stored as tokens


TEXT_CONFIG = GPTConfig(length=64, width=128, layers=4, heads=4, hidden=512, activation="gelu")
# the steps and batches of nanoGPT's setting for a CPU; the learning rate is twice as high, and decays further
TEXT_SETTINGS: dict[str, Any] = {
    "steps": 2000, "batch": 12, "learning_rate": 2e-3, "final_rate": 0.02, "warmup": 100, "beta2": 0.99,
    "decay": 0.1, "clip": 1.0, "evaluate_every": 500, "save_every": 500,
}  # fmt: skip
FAST_CONFIG = GPTConfig(
    length=64, width=128, layers=4, heads=4, hidden=352, positions="rotary", feedforward="gated", activation="silu",
    attention_bias=False, output_bias=False, feedforward_bias=False,
)  # fmt: skip
FAST_SETTINGS: dict[str, Any] = {
    "steps": 380, "batch": 12, "optimizer": "muon", "learning_rate": 6e-3, "matrix_rate": 2e-2, "final_rate": 0.02,
    "warmup": 30, "beta2": 0.99, "decay": 0.05, "clip": 1.0, "evaluate_every": 380, "save_every": 190,
}  # fmt: skip
# GPT-2's blocks, with 64 of the width for each head, at a size that two cores train in half an hour
GPT2_CONFIG = GPTConfig(length=128, width=192, layers=5, heads=3, hidden=768)
GPT2_SETTINGS: dict[str, Any] = {
    **FAST_SETTINGS, "steps": 3000, "batch": 16, "warmup": 60, "evaluate_every": 500, "save_every": 250,
}  # fmt: skip


@dataclass(frozen=True)
class TextOptions(Options):
    """Fields of the recipes text, text-fast and gpt2."""

    with_data = ("text", "header")
    with_start = ("window",)
    without_start = ("tokens", "vocabulary")

    tokens: str = choice("characters", TOKEN_KINDS, "kind of tokens")
    vocabulary: int | None = optional(integer(2048, "size of the vocabulary with tokens=learned; None = 2048", 257))
    window: int | None = optional(integer(256, "tokens per training example; None = 256, or the model's length", 2))
    evaluated: int | None = optional(
        integer(2**20, "largest number of held-out tokens to evaluate on; None = 2**20, with --from 2**14", 1)
    )
    text: str | None = column_field("column of your table that has the texts")
    header: str = header_field()


@dataclass(frozen=True)
class BytePairOptions(TextOptions):
    """Fields of the recipe gpt2."""

    tokens: str = choice("learned", TOKEN_KINDS, "kind of tokens")


def create_text_task(
    request: TrainingRequest, options: TextOptions, settings: Settings, loaded: Loaded | None, config: GPTConfig
) -> TrainingTask:
    """Train a GPT on text, or continue to train a loaded one."""
    if loaded is None:
        tokenizer = _load_or_create_tokenizer(request, options)
        config = request.change(config).replace(vocabulary=tokenizer.vocabulary)
        model, window = create_model(GPT, config, settings.seed), config.length
    else:
        assert isinstance(loaded.model, GPT)
        model, tokenizer, length = loaded.model, loaded.require_tokenizer(), loaded.model.config.length
        window = options.window or min(length, 256)
        if window > length:
            raise ArgumentError(f"window of the {request.recipe} recipe must be from 2 to {length}, not {window}")
        save_tokenizer(request, tokenizer)
    if (request.folder / TOKENS_FOLDER).is_dir():  # a resumed run
        tokens = load_tokens(request)
    else:
        problems = request.create_problem_log()
        pieces = encode_pieces(_read_pieces(request, options, problems), tokenizer)
        tokens = write_tokens(request, tokenizer, pieces)
        request.show_problems(problems)
    count = len(tokens)
    train_count = int(count * (1 - HELD_OUT))
    if count - train_count <= window:
        field = "length" if request.start is None else "window"
        raise ArgumentError(
            f"the text has {count:,} tokens, but its last tenth must be longer than the window, {window}; give more "
            f"text or a smaller {field} (--set {field}=...)"
        )
    evaluated = options.evaluated
    if evaluated is None:
        # evaluating a large pretrained model is slow, and a sample is enough to see whether it improves
        evaluated = max(window + 1, 2**20 if request.start is None else 2**14)
    if evaluated <= window:
        raise ArgumentError(f"evaluated must be larger than the window, {window}, not {evaluated}")
    evaluation_end = min(count, train_count + evaluated)
    windows = RandomWindows(train_count, window + 1, settings.seed)

    def batches(step: int, part: int, parts: int) -> Batch:
        starts = select_part(windows.select_starts(step, settings.batch), part, parts)
        return _create_batch(torch.stack([tokens.read_tokens(start, window + 1) for start in starts]))

    def evaluate(model: Model) -> dict[str, float]:
        held_out = read_held_out_batches(tokens, train_count, evaluation_end, window)
        return {"loss": compute_mean_loss(model, held_out)}

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        prompt = tokens.read_tokens(train_count, min(16, window // 2)).tolist()
        limit = min(300, (model.context_length or window) - len(prompt))
        continuation = generate(model, [prompt], limit=limit, sampling=Sampling(0.8, top_k=200))[0]
        part = "the whole" if evaluation_end == count else "the beginning of the"
        metrics = evaluate(model)
        evaluated_count = evaluation_end - train_count
        evaluated_text = tokenizer.decode(tokens.read_tokens(train_count, evaluated_count).tolist())
        return {
            **metrics,
            # does not depend on the tokens, so that runs with other tokens can be compared
            "bits_per_byte": metrics["loss"] / math.log(2) * evaluated_count / len(evaluated_text.encode()),
            "what": f"loss: cross-entropy per token, in nats, over {part} last tenth of the text "
            f"({evaluated_count:,} tokens)",
            "unknown_rate": tokens.unknown_rate,
            "try": tokenizer.decode(prompt),
            "sample": tokenizer.decode(prompt + continuation),
        }

    data = {
        "tokens": count,
        "vocabulary": tokenizer.vocabulary,
        "tokenizer": fingerprint_tokenizer(tokenizer),
    }
    summary = DataSummary(
        {"training tokens": train_count, "held-out tokens": count - train_count},
        [{"text": tokenizer.decode(tokens.read_tokens(0, min(64, train_count)).tolist())}],
    )
    return TrainingTask(
        Loaded(model, tokenizer), settings, batches, compute_token_loss, evaluate, data=data,
        build_report=build_report, summary=summary, examples=max(1, train_count // window),
    )  # fmt: skip


START_SETTINGS = {"optimizer": "adamw", "learning_rate": 1e-4, "decay": 0.01}  # of a pretrained model
text = Recipe(
    partial(create_text_task, config=TEXT_CONFIG),
    Defaults(TEXT_SETTINGS, (TEXT_CONFIG,), ("vocabulary",), {**TEXT_SETTINGS, **START_SETTINGS}),
    (GPT,),
    TextOptions,
    stored=STORED_INDEX,
)
text_fast = replace(
    text,
    create_task=partial(create_text_task, config=FAST_CONFIG),
    defaults=Defaults(FAST_SETTINGS, (FAST_CONFIG,), ("vocabulary",), {**FAST_SETTINGS, **START_SETTINGS}),
)
gpt2 = replace(
    text,
    create_task=partial(create_text_task, config=GPT2_CONFIG),
    defaults=Defaults(GPT2_SETTINGS, (GPT2_CONFIG,), ("vocabulary",), {**GPT2_SETTINGS, **START_SETTINGS}),
    options=BytePairOptions,
)


def read_held_out_batches(tokens: TokenShards, begin: int, end: int, window: int, rows: int = 64) -> Iterator[Batch]:
    """Yield the tokens from ``begin`` to ``end`` in windows that do not overlap; the last window may be shorter."""
    starts = range(begin, end - 1, window)
    full_windows = [start for start in starts if start + window + 1 <= end]
    for first in range(0, len(full_windows), rows):
        chunk = full_windows[first : first + rows]
        yield _create_batch(torch.stack([tokens.read_tokens(start, window + 1) for start in chunk]))
    if len(full_windows) < len(starts):
        yield _create_batch(tokens.read_tokens(starts[-1], end - starts[-1])[None])


def _create_batch(rows: Int[Tensor, "batch window"]) -> Batch:
    """Build a batch in which each token is the target of the tokens before it."""
    return Batch({"tokens": rows[:, :-1]}, rows[:, 1:], rows[:, 1:].numel())


def _read_pieces(request: TrainingRequest, options: TextOptions, problems: ProblemLog) -> Iterator[TextPiece]:
    """Yield the texts; a text of a table ends with a line break, so that it is not joined to the next one."""
    name = request.select_dataset("shakespeare", text_corpora.TEXTS)
    if name is None:
        file_format = request.create_file_format(options.header)
        pieces = read_pieces(request.require_files(), problems, options.text, file_format)
    else:
        sides: tuple[Split, ...] = ("train", "held-out")
        read = text_corpora.TEXTS[name]
        pieces = (TextPiece(passage, True) for side in sides for passage in read(side, request.show_download))
    for piece in pieces:
        is_open = piece.ends_document and not piece.text.endswith("\n")
        yield TextPiece(piece.text + "\n", True) if is_open else piece


def _load_or_create_tokenizer(request: TrainingRequest, options: TextOptions) -> Tokenizer:
    if options.vocabulary is not None and options.tokens != "learned":
        raise ArgumentError(
            f"vocabulary can be set with tokens=learned only; tokens={options.tokens} has a fixed vocabulary"
        )

    def create() -> Tokenizer:
        if options.tokens == "bytes":
            return Tokenizer.for_bytes()
        if options.tokens == "gpt2":
            return Tokenizer.load(catalogue.download_entry("gpt2-tokenizer", request.show_message))
        texts = (piece.text for piece in _read_pieces(request, options, request.create_problem_log()))
        if options.tokens == "learned":
            return Tokenizer.train(texts, options.vocabulary or 2048)
        characters: set[str] = set()
        for text in texts:
            characters.update(text)
        return Tokenizer.for_characters("".join(sorted(characters)))

    return load_or_create_tokenizer(request, create)
