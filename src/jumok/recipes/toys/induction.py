"""induction: a GPT of two blocks on bytes learns that what came once comes again. One block's head looks at the token
before; one head of the next looks for the token that stood behind such a one last time, and says it again: an induction
head (Elhage et al. 2021, Olsson et al. 2022). Nothing is worth learning by heart, because every piece is drawn anew."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from jumok.data.datasets import toy_tasks
from jumok.data.readers import documents as texts
from jumok.data.readers.lines import ProblemLog
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.draw import save_head_grid
from jumok.errors import ArgumentError, DrawError
from jumok.generate import generate
from jumok.models import Model
from jumok.models.gpt import GPT, llama_config
from jumok.recipes.recipe import Defaults, recipe
from jumok.recipes.request import TrainingRequest
from jumok.training import IGNORE_INDEX, Batch, Settings, Task, select_part, token_loss

from . import repeated_bytes

SEQUENCES_PER_KIND = 100  # sequences of each kind that the model is tried on
MOST_TEXT = 2_000_000  # bytes of a person's own text
HALF = 64  # bytes of a piece that is tried
PROMPTS = ("Mary gave John a book; Mary", "호랑이와 곶감, 호랑이와")


def induction_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings."""
    settings = {
        "steps": 1500, "batch": 8, "learning_rate": 2e-3, "final_rate": 0.02, "warmup": 50, "beta2": 0.99, "decay": 0.0,
        "clip": 1.0, "evaluate_every": 250, "save_every": 250,
    }  # fmt: skip
    # Its own output map: with the embedding's, what follows and what is looked for are the same vectors, and induction
    # is not learned in the time of this recipe. Biases: looking one back asks for nothing in the token itself.
    config = llama_config(
        vocabulary=Tokenizer.for_bytes().vocabulary, length=512, width=96, layers=2, heads=2, hidden=64, tied=False,
        attention_bias=True,
    )  # fmt: skip
    return Defaults(settings, () if request.start is not None else (config,))


@recipe(induction_defaults)
def induction(asked: TrainingRequest) -> Task:
    """Learn to say again what was said before, whatever it is."""
    settings = asked.settings(**induction_defaults(asked).settings)
    model, tokenizer = _model(asked, settings)
    length, known = model.config.length, _own_text(asked)
    own, held = known[: len(known) * 9 // 10], known[len(known) * 9 // 10 :]

    def batches(step: int, part: int, parts: int) -> Batch:
        """Three lessons: random bytes again and again in small windows, where looking back is soon learned and nothing
        else helps; then pieces of every kind; then the same in whole windows."""
        plain = step < settings.steps // 6
        window = min(length, 32 if plain else 128 if step < settings.steps // 3 else length)
        made = [
            row
            for one in select_part(list(range(settings.batch)), part, parts)
            for row in repeated_bytes.rows(f"{settings.seed} {step} {one}", length // window, window + 1, plain, own)
        ]
        rows = torch.tensor([row for row, _ in made])
        told = torch.arange(window + 1) >= torch.tensor([first for _, first in made])[:, None]
        targets = rows.masked_fill(~told, IGNORE_INDEX)[:, 1:]
        return Batch({"tokens": rows[:, :-1]}, targets, int((targets != IGNORE_INDEX).sum()))

    def evaluate(model: Model) -> dict[str, float]:
        found = {f"right_{name}": right(model, rows) for name, rows in tried(length, held).items()}
        return {"right": sum(found.values()) / len(found), **found}

    def report(model: Model, folder: Any) -> dict[str, Any]:
        rows = tried(length, held)
        first, second = losses(model, rows["bytes"])
        heads = looks(model, rows["bytes"])
        best = max(heads, key=lambda one: one["induction"])
        _draw(model, tokenizer, Path(folder), asked)
        return {
            **{f"right_{name}": right(model, some) for name, some in rows.items()},
            "what": f"of the second half, of {SEQUENCES_PER_KIND} new pieces of each kind, each repeated once "
            f"({HALF} bytes; short 16, long {length // 2}); the first byte of it cannot be known",
            "try": PROMPTS[0],
            "loss_first_half": first,
            "loss_second_half": second,
            "induction_head": f"block {best['block']}, head {best['head']}: {best['induction']:.3f} of its weight is "
            "on the byte behind the last one of that kind",
            "samples": [{"given": one, "goes_on": _continued(model, tokenizer, one)} for one in PROMPTS],
            "heads": heads,
        }

    data = {"length": length, "own_text": len(known), "sha256": hashlib.sha256(known).hexdigest()}
    return Task(
        model, settings, batches, token_loss, evaluate, "right", "higher", tokenizer=tokenizer, data=data, report=report
    )


def _model(asked: TrainingRequest, settings: Settings) -> tuple[GPT, Tokenizer]:
    tokenizer = Tokenizer.for_bytes()
    loaded = asked.load_start()
    if loaded is not None:
        letters = "§\n가"
        reads = [] if loaded.tokenizer is None else loaded.tokenizer.encode(letters)
        if not isinstance(loaded.model, GPT) or reads != list(letters.encode()):
            raise ArgumentError(f"the recipe induction goes on with a gpt that reads bytes; {asked.start} is none")
        return loaded.model, tokenizer
    model = asked.model(GPT, asked.config(induction_defaults(asked).configs[0]), settings)
    _one_head_alone(model)
    return model, tokenizer


@torch.no_grad()
def _one_head_alone(model: GPT) -> None:
    """All heads of the last block but its first begin without values and without an output, and so never learn: else
    every one of them becomes an induction head, and the model copies as well without any of them. The others look
    somewhere, and change nothing: a lens must tell them from the one that matters."""
    parameters = dict(model.named_parameters())
    last, width = f"blocks.{model.config.layers - 1}.attention", model.config.width
    joined = parameters.get(f"{last}.projection.joined.weight")
    if joined is None or len(joined) != 3 * width:  # heads that share their values cannot be told apart
        return
    first = width // model.config.heads
    parameters[f"{last}.output.weight"][:, first:] = 0
    joined[2 * width + first :] = 0


def _own_text(asked: TrainingRequest) -> bytes:
    if asked.data is None:
        return b""
    problems, found, size = ProblemLog(skip=asked.skip_bad), [], 0
    for one in texts.read_documents(asked.data, problems):
        found.append(one.encode())
        size += len(found[-1])
        if size > MOST_TEXT:
            asked.report(f"the first {MOST_TEXT / 1e6:.0f} MB of the text are read")
            break
    if problems.count:
        asked.report(str(problems))
    if size < 40 * HALF:
        raise ArgumentError(f"the text has {size:,} bytes; give at least {40 * HALF:,}")
    return b"".join(found)[:MOST_TEXT]


# what it can do


def tried(length: int, held: bytes = b"") -> dict[str, Tensor]:
    """Held-out rows of each kind: a piece and the same again."""
    half = min(HALF, length // 2)
    sizes = {"bytes": half, "short": min(16, half), "long": length // 2}
    found = {
        name: torch.tensor(
            [here + there for here, there in toy_tasks.make_induction_examples(SEQUENCES_PER_KIND, size, "held-out")]
        )
        for name, size in sizes.items()
    }
    for kind in ("words", "hangul", *(["text"] if held else [])):
        pieces = [repeated_bytes.piece(f"held out {kind} {one}", kind, half, held) for one in range(SEQUENCES_PER_KIND)]
        found[kind] = torch.tensor([one + one for one in pieces])
    return found


def right(model: Model, rows: Tensor) -> float:
    """The share of the second half that the model would have said."""
    half = rows.shape[1] // 2
    guessed = model(rows[:, :-1].to(model.device)).logits[:, half - 1 :].argmax(-1)
    return float((guessed.cpu() == rows[:, half:]).float().mean())


def losses(model: Model, rows: Tensor) -> tuple[float, float]:
    """Cross-entropy a byte, in nats, over the first half and over the second."""
    logits = model(rows[:, :-1].to(model.device)).logits.cpu()
    each = functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")
    half = rows.shape[1] // 2
    return float(each[:, : half - 1].mean()), float(each[:, half - 1 :].mean())


def looks(model: Model, rows: Tensor) -> list[dict[str, Any]]:
    """Of every head, how much of its weight is on the token before, and, in the second half, on the one that stood
    behind the same token in the first."""
    half = rows.shape[1] // 2
    found = []
    for block, weights in enumerate(model(rows.to(model.device), weights=True).weights):
        before = weights.diagonal(-1, -2, -1)[..., 1:].mean((0, 2))
        after = weights.diagonal(1 - half, -2, -1)[..., 1:].mean((0, 2))
        for head, (previous, again) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
            found.append({"block": block, "head": head, "previous_token": previous, "induction": again})
    return found


def _continued(model: Model, tokenizer: Tokenizer, prompt: str) -> str:
    given = tokenizer.encode(prompt)
    room = min(len(given), getattr(model.config, "length", 0) - len(given))
    return tokenizer.decode(generate(model, [given], limit=room)[0]) if room > 0 else ""


def _draw(model: Model, tokenizer: Tokenizer, folder: Path, asked: TrainingRequest) -> None:
    """Every head on a word of random letters that comes twice."""
    given = "qzkfwjxa " * 2
    tokens = torch.tensor([tokenizer.encode(given)], device=model.device)
    if tokens.shape[1] > getattr(model.config, "length", 0):
        return
    found = model(tokens, weights=True).weights
    titles = [f"block {block}, head {head}" for block, one in enumerate(found) for head in range(one.shape[1])]
    letters = [letter.replace(" ", "_") for letter in given]
    try:
        save_head_grid(
            folder / "heads.png", torch.cat([one[0] for one in found]).cpu(), letters, letters, titles=titles
        )
    except DrawError as missing:  # pictures are an extra, and no reason to fail now
        asked.report(f"heads.png was not drawn: {missing}")
