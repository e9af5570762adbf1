"""Recipe ``induction``: train a two-block GPT on bytes to repeat sequences that occurred earlier in its context.

A head of the first block attends to the previous token. A head of the second block attends to the token that followed
the last occurrence of the current token, and predicts it again: an induction head (Elhage et al. 2021, Olsson et al.
2022). The training data is generated anew at each step, so that nothing can be memorised.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypedDict

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from jumok.data.datasets import toy_tasks
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.draw import save_head_grid
from jumok.errors import ArgumentError, DrawError
from jumok.generate import generate
from jumok.models import Model
from jumok.models.gpt import GPT, llama_config
from jumok.recipes.recipe import Defaults, recipe
from jumok.recipes.request import TrainingRequest
from jumok.training import IGNORE_INDEX, Batch, Settings, Task, compute_token_loss, select_part

from .repeated_bytes import PIECE_BYTES, InductionOptions, generate_piece, generate_rows, read_own_text

SEQUENCES_PER_KIND = 100  # test sequences of each kind
# tied=False: with tied embeddings the predicted token and the token to search for share their vectors, and induction is
# not learned in this recipe's steps. attention_bias: attention to the previous token can ignore the current one.
CONFIG = llama_config(
    vocabulary=256, length=512, width=96, layers=2, heads=2, hidden=64, tied=False, attention_bias=True
)
PROMPTS = ("Mary gave John a book; Mary", "호랑이와 곶감, 호랑이와")

Rows = Int[Tensor, "sequence byte"]  # test sequences: a piece and the same piece again


class HeadScores(TypedDict):
    """How much of a head's weight is on the previous token, and on the token that an induction head attends to."""

    block: int
    head: int
    previous_token: float
    induction: float


def get_induction_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings."""
    settings = {
        "steps": 1500, "batch": 8, "learning_rate": 2e-3, "final_rate": 0.02, "warmup": 50, "beta2": 0.99, "decay": 0.0,
        "clip": 1.0, "evaluate_every": 250, "save_every": 250,
    }  # fmt: skip
    return Defaults(settings, () if request.start is not None else (CONFIG,))


@recipe(get_induction_defaults, InductionOptions)
def induction(request: TrainingRequest) -> Task:
    """Train a GPT to repeat bytes, words and texts that occurred earlier in its context."""
    settings = request.take_settings(**get_induction_defaults(request).settings)
    model, tokenizer = _create_or_continue_model(request, settings)
    length, text = model.config.length, read_own_text(request)
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

    def report(model: Model, folder: Path) -> dict[str, Any]:
        sequences = create_repeated_test_sequences(length, held_out_text)
        first_loss, second_loss = compute_half_losses(model, sequences["bytes"])
        heads = score_heads(model, sequences["bytes"])
        best = max(heads, key=lambda head: head["induction"])
        _save_head_maps(model, tokenizer, folder, request)
        return {
            **{f"right_{kind}": compute_repeat_accuracy(model, rows) for kind, rows in sequences.items()},
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
    return Task(
        model,
        settings,
        batches,
        compute_token_loss,
        evaluate,
        "right",
        "higher",
        tokenizer=tokenizer,
        data=data,
        report=report,
    )


def _create_batch(names: list[str], length: int, window: int, periodic: bool, text: bytes) -> Batch:
    """Generate ``length // window`` rows for each name."""
    generated = [row for name in names for row in generate_rows(name, length // window, window + 1, periodic, text)]
    rows = torch.tensor([row for row, _ in generated])
    first_targets = torch.tensor([first for _, first in generated])[:, None]
    is_target = torch.arange(window + 1) >= first_targets
    targets = rows.masked_fill(~is_target, IGNORE_INDEX)[:, 1:]
    return Batch({"tokens": rows[:, :-1]}, targets, int((targets != IGNORE_INDEX).sum()))


def _create_or_continue_model(request: TrainingRequest, settings: Settings) -> tuple[GPT, Tokenizer]:
    tokenizer = Tokenizer.for_bytes()
    loaded = request.load_start()
    if loaded is not None:
        letters = "§\n가"
        tokens = [] if loaded.tokenizer is None else loaded.tokenizer.encode(letters)
        if not isinstance(loaded.model, GPT) or tokens != list(letters.encode()):
            raise ArgumentError(f"the induction recipe can start only from a gpt on bytes; {request.start} is not one")
        return loaded.model, tokenizer
    model = request.create_model(GPT, request.take_config(CONFIG), settings)
    _disable_heads(model)
    return model, tokenizer


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


def create_repeated_test_sequences(context_length: int, user_text: bytes = b"") -> dict[str, Rows]:
    """Return held-out sequences of each kind, no longer than the context; each is a piece and the same piece again."""
    half = min(PIECE_BYTES, context_length // 2)
    sizes = {"bytes": half, "short": min(16, half), "long": context_length // 2}
    sequences = {
        kind: torch.tensor(
            [
                first + second
                for first, second in toy_tasks.make_repetition_examples(SEQUENCES_PER_KIND, size, "held-out")
            ]
        )
        for kind, size in sizes.items()
    }
    for kind in ("words", "hangul", *(["text"] if user_text else [])):
        pieces = [
            generate_piece(f"held out {kind} {number}", kind, half, user_text) for number in range(SEQUENCES_PER_KIND)
        ]
        sequences[kind] = torch.tensor([piece + piece for piece in pieces])
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


def score_heads(model: Model, rows: Rows) -> list[HeadScores]:
    """Measure for every head the mean weight on the previous token and, in the second half, on the induction target.

    The induction target is the token that followed the current token in the first half.
    """
    half = rows.shape[1] // 2
    scores: list[HeadScores] = []
    for block, weights in enumerate(model(rows.to(model.device), weights=True).weights):
        previous_token = weights.diagonal(-1, -2, -1)[..., 1:].mean((0, 2)).tolist()
        induction = weights.diagonal(1 - half, -2, -1)[..., 1:].mean((0, 2)).tolist()
        for head in range(len(induction)):
            scores.append(
                {
                    "block": block,
                    "head": head,
                    "previous_token": previous_token[head],
                    "induction": induction[head],
                }
            )
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
    try:
        save_head_grid(folder / "heads.png", patterns, letters, letters, titles=titles)
    except DrawError as error:  # drawing is optional, and must not fail a finished run
        request.report(f"heads.png was not drawn: {error}")
