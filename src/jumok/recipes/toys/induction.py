"""Recipe ``induction``: train a two-block GPT on bytes to repeat sequences that occurred earlier in its context.

A head of the first block attends to the previous token. A head of the second block attends to the token that followed
the last occurrence of the current token, and predicts it again: an induction head (Elhage et al. 2021, Olsson et al.
2022). The training data is generated anew at each step, so that nothing can be memorised.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.datasets import text_corpora, toy_tasks
from jumok.data.readers.text_examples import read_documents
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.draw import save_head_grid
from jumok.errors import ArgumentError
from jumok.generate import generate
from jumok.models import Model
from jumok.models.gpt import GPT, llama_config
from jumok.recipes.recipe import Defaults, Options, Recipe, column_field, create_model, header_field
from jumok.recipes.request import TrainingRequest
from jumok.training import IGNORE_INDEX, Batch, Settings, TrainingTask, compute_token_loss, select_part

SEQUENCES_PER_KIND = 100  # test sequences of each kind
# tied=False: with tied embeddings the predicted token and the token to search for share their vectors, and induction is
# not learned in this recipe's steps. attention_bias: attention to the previous token can ignore the current one.
CONFIG = llama_config(
    vocabulary=256, length=512, width=96, layers=2, heads=2, hidden=64, tied=False, attention_bias=True
)
SETTINGS = {
    "steps": 1500, "batch": 8, "learning_rate": 2e-3, "final_rate": 0.02, "warmup": 50, "beta2": 0.99, "decay": 0.0,
    "clip": 1.0, "evaluate_every": 250, "save_every": 250,
}  # fmt: skip
PROMPTS = ("Mary gave John a book; Mary", "호랑이와 곶감, 호랑이와")

MAX_TEXT_BYTES = 2_000_000  # of the user's own text
PIECE_BYTES = 64  # length of the repeated piece in a test sequence
BYTE_VALUES = 256
LETTERS = "abcdefghijklmnopqrstuvwxyz"
GAPS = (" ",) * 27 + (", ", ". ", "\n")  # between words
KIND_WEIGHTS = {"bytes": 6, "words": 3, "hangul": 3, "text": 6}  # relative frequency of each kind of piece

Row = tuple[list[int], int]  # the bytes, and the index of the first byte that is a training target
Rows = Int[Tensor, "sequence byte"]  # test sequences: a piece and the same piece again


@dataclass(frozen=True)
class InductionOptions(Options):
    """Fields of the induction recipe."""

    with_data = ("text", "header")

    text: str | None = column_field("column of your table that has the texts")
    header: str = header_field()


def create_induction_task(
    request: TrainingRequest, options: InductionOptions, settings: Settings, loaded: Loaded | None
) -> TrainingTask:
    """Train a GPT to repeat bytes, words and texts that occurred earlier in its context."""
    tokenizer = Tokenizer.for_bytes()
    if loaded is None:
        model = create_model(GPT, request.change(CONFIG), settings.seed)
        _disable_heads(model)
    else:
        letters = "§\n가"
        if loaded.require_tokenizer().encode(letters) != list(letters.encode()):
            raise request.explain_start("a gpt on bytes", loaded)
        assert isinstance(loaded.model, GPT)
        model = loaded.model
    length, text = model.config.length, _read_own_text(request, options)
    train_text, held_out_text = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]

    def batches(step: int, part: int, parts: int) -> Batch:
        indices = select_part(list(range(settings.batch)), part, parts)
        names = [f"{settings.seed} {step} {index}" for index in indices]
        # first random bytes with one period in short windows, which only attention to earlier tokens can predict; then
        # pieces of every kind in longer windows; then the same in windows of the full length
        if step < settings.steps // 6:
            return _create_batch(names, length, min(length, 32), True, train_text)
        window = min(length, 128) if step < settings.steps // 3 else length
        return _create_batch(names, length, window, False, train_text)

    def evaluate(model: Model) -> dict[str, float]:
        sequences = create_repeated_test_sequences(length, held_out_text)
        scores = {f"right_{kind}": compute_repeat_accuracy(model, rows) for kind, rows in sequences.items()}
        return {"right": sum(scores.values()) / len(scores), **scores}

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        rows = create_repeated_test_sequences(length, held_out_text)["bytes"]
        first_loss, second_loss = compute_half_losses(model, rows)
        heads = score_heads(model, rows)
        best = max(heads, key=lambda head: head["induction"])
        _save_head_maps(model, tokenizer, folder, request)
        return {
            **{name: score for name, score in evaluate(model).items() if name != "right"},
            "what": f"share of the second half predicted correctly, over {SEQUENCES_PER_KIND} new pieces of each kind, "
            f"each repeated once ({PIECE_BYTES} bytes; short 16, long {length // 2}); the first byte of the second "
            "half cannot be predicted",
            "try": PROMPTS[0],
            "loss_first_half": first_loss,
            "loss_second_half": second_loss,
            "induction_head": f"block {best['block']}, head {best['head']}: {best['induction']:.3f} of its weight is "
            "on the byte after the last occurrence of the current byte",
            "samples": [{"given": prompt, "goes_on": _continue_prompt(model, tokenizer, prompt)} for prompt in PROMPTS],
            "heads": heads,
        }

    data = {"length": length, "own_text": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    return TrainingTask(
        Loaded(model, tokenizer), settings, batches, compute_token_loss, evaluate, "right", "higher", data=data,
        build_report=build_report,
    )  # fmt: skip


induction = Recipe(create_induction_task, Defaults(SETTINGS, (CONFIG,)), (GPT,), InductionOptions)


def _create_batch(names: list[str], length: int, window: int, periodic: bool, text: bytes) -> Batch:
    """Generate ``length // window`` rows for each name."""
    generated = [row for name in names for row in generate_rows(name, length // window, window + 1, periodic, text)]
    rows = torch.tensor([row for row, _ in generated])
    first_targets = torch.tensor([first for _, first in generated])[:, None]
    is_target = torch.arange(window + 1) >= first_targets
    targets = rows.masked_fill(~is_target, IGNORE_INDEX)[:, 1:]
    return Batch({"tokens": rows[:, :-1]}, targets, int((targets != IGNORE_INDEX).sum()))


def _read_own_text(request: TrainingRequest, options: InductionOptions) -> bytes:
    """Return the text of ``--data``, or b"" without it."""
    if request.data is None:
        return b""
    problems = request.create_problem_log()
    name = request.select_dataset(None, text_corpora.TEXTS)
    if name is not None:
        texts = text_corpora.TEXTS[name]("train", request.show_download)
    else:
        file_format = request.create_file_format(options.header)
        texts = read_documents(request.require_files(), problems, options.text, file_format)
    documents, size = [], 0
    for document in texts:
        documents.append(document.encode())
        size += len(documents[-1])
        if size > MAX_TEXT_BYTES:
            request.show_message(f"only the first {MAX_TEXT_BYTES / 1e6:.0f} MB of the text are read")
            break
    request.show_problems(problems)
    if size < 40 * PIECE_BYTES:
        raise ArgumentError(f"the text has {size:,} bytes; give at least {40 * PIECE_BYTES:,}")
    return b"".join(documents)[:MAX_TEXT_BYTES]


@torch.no_grad()
def _disable_heads(model: GPT) -> None:
    """Set the values and outputs of all heads except the first in the last block to zero; their gradients stay zero.

    Otherwise every head of the block becomes an induction head, and ablating a single one has no effect. The disabled
    heads still have attention weights, so the model shows that weights alone do not prove that a head matters.
    """
    parameters = dict(model.named_parameters())
    last_attention, width = f"blocks.{model.config.layers - 1}.attention", model.config.width
    joined = parameters.get(f"{last_attention}.projection.joined.weight")
    if joined is None or len(joined) != 3 * width:  # heads that share values cannot be disabled one by one
        return
    head_width = width // model.config.heads
    parameters[f"{last_attention}.output.weight"][:, head_width:] = 0
    joined[2 * width + head_width :] = 0


def generate_rows(name: str, count: int, size: int, periodic: bool, text: bytes = b"") -> Iterator[Row]:
    """Yield rows of repeated bytes.

    Args:
        periodic: True: random bytes with one period, with targets from the first repetition on. False: pieces of any
            kind, each repeated two to four times, some with other bytes in between; every byte is a target.
    """
    rng = random.Random(f"repeats {name}")
    for _ in range(count):
        if periodic:
            period = rng.randint(max(2, size // 8), size // 2)
            piece = rng.choices(range(BYTE_VALUES), k=period)
            yield (piece * (size // period + 1))[:size], period
        else:
            yield _generate_mixed_row(rng, size, text), 0


def generate_piece(name: str, kind: str, size: int, text: bytes = b"") -> list[int]:
    """Return one piece without repetition."""
    return _generate_piece(random.Random(f"piece {name}"), kind, size, text)


def _generate_mixed_row(rng: random.Random, size: int, text: bytes) -> list[int]:
    row: list[int] = []
    while len(row) < size:
        # uniform in the logarithm of the length, so that short pieces are as frequent as long ones
        length = max(3, int(2 ** rng.uniform(2, (size // 2).bit_length())))
        piece = _generate_any_piece(rng, min(length, size // 2), text)
        gap = rng.randint(1, 12) if rng.random() < 0.4 else 0
        for _ in range(rng.randint(2, 4)):
            row += piece
            if gap:
                row += _generate_any_piece(rng, gap, text)
    return row[:size]


def _generate_any_piece(rng: random.Random, size: int, text: bytes) -> list[int]:
    kinds = [kind for kind in KIND_WEIGHTS if kind != "text" or len(text) > size]
    kind = rng.choices(kinds, [KIND_WEIGHTS[kind] for kind in kinds])[0]
    return _generate_piece(rng, kind, size, text)


def _generate_piece(rng: random.Random, kind: str, size: int, text: bytes) -> list[int]:
    if kind == "bytes":
        # half of the pieces use few byte values, so that bytes also recur by chance and one matching byte is not enough
        values = BYTE_VALUES if rng.random() < 0.5 else int(2 ** rng.uniform(3, 8))
        return rng.choices(rng.sample(range(BYTE_VALUES), values), k=size)
    if kind == "text":
        first = rng.randrange(len(text) - size + 1)
        return list(text[first : first + size])
    piece = b""
    while len(piece) < size:
        piece += (_generate_word(rng, kind) + rng.choice(GAPS)).encode()
    return list(piece[:size])


def _generate_word(rng: random.Random, kind: str) -> str:
    if kind == "hangul":
        return "".join(chr(rng.randrange(0xAC00, 0xD7A4)) for _ in range(rng.randint(1, 4)))
    word = "".join(rng.choices(LETTERS, k=rng.randint(2, 9)))
    return word.capitalize() if rng.random() < 0.2 else word


def create_repeated_test_sequences(context_length: int, user_text: bytes = b"") -> dict[str, Rows]:
    """Return held-out sequences of each kind, no longer than the context; each is a piece and the same piece again."""
    half = min(PIECE_BYTES, context_length // 2)
    sizes = {"bytes": half, "short": min(16, half), "long": context_length // 2}
    sequences = {}
    for kind, size in sizes.items():
        examples = toy_tasks.make_repetition_examples(SEQUENCES_PER_KIND, size, "held-out")
        sequences[kind] = torch.tensor([first + second for first, second in examples])
    for kind in ("words", "hangul", *(["text"] if user_text else [])):
        names = [f"held out {kind} {number}" for number in range(SEQUENCES_PER_KIND)]
        sequences[kind] = torch.tensor([2 * generate_piece(name, kind, half, user_text) for name in names])
    return sequences


def compute_repeat_accuracy(model: Model, rows: Rows) -> float:
    """Return the share of the second half that the model predicts correctly."""
    half = rows.shape[1] // 2
    predictions = model(rows[:, :-1].to(model.device)).logits[:, half - 1 :].argmax(-1)
    return float((predictions.cpu() == rows[:, half:]).float().mean())


def compute_half_losses(model: Model, rows: Rows) -> tuple[float, float]:
    """Return the cross-entropy per byte, in nats, of the first half and of the second."""
    logits = model(rows[:, :-1].to(model.device)).logits.cpu()
    losses = functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")
    half = rows.shape[1] // 2
    return float(losses[:, : half - 1].mean()), float(losses[:, half - 1 :].mean())


def score_heads(model: Model, rows: Rows) -> list[dict[str, Any]]:
    """Measure for every head the mean weight on the previous token and, in the second half, on the induction target.

    The induction target is the token that followed the current token in the first half.
    """
    half = rows.shape[1] // 2
    scores: list[dict[str, Any]] = []
    for block, weights in enumerate(model(rows.to(model.device), weights=True).weights):
        previous_token, induction = (
            weights.diagonal(offset, -2, -1)[..., 1:].mean((0, 2)).tolist() for offset in (-1, 1 - half)
        )
        for head, means in enumerate(zip(previous_token, induction, strict=True)):
            scores.append({"block": block, "head": head, "previous_token": means[0], "induction": means[1]})
    return scores


def _continue_prompt(model: Model, tokenizer: Tokenizer, prompt: str) -> str:
    tokens = tokenizer.encode(prompt)
    limit = min(len(tokens), (model.context_length or 0) - len(tokens))
    return tokenizer.decode(generate(model, [tokens], limit=limit)[0]) if limit > 0 else ""


def _save_head_maps(model: Model, tokenizer: Tokenizer, folder: Path, request: TrainingRequest) -> None:
    """Draw the weights of every head on a random word that occurs twice."""
    text = "qzkfwjxa " * 2
    tokens = torch.tensor([tokenizer.encode(text)], device=model.device)
    if tokens.shape[1] > (model.context_length or 0):
        return
    layer_weights = model(tokens, weights=True).weights
    titles = [
        f"block {block}, head {head}" for block, weights in enumerate(layer_weights) for head in range(weights.shape[1])
    ]
    patterns = torch.cat([weights[0] for weights in layer_weights]).cpu()
    letters = [letter.replace(" ", "_") for letter in text]
    with request.skip_undrawn("heads.png"):
        save_head_grid(folder / "heads.png", patterns, letters, letters, titles=titles)
