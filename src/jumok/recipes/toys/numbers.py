"""Recipe ``numbers``: learn the rule "+2" from examples, with real numbers as input and output.

The model is scored on held-out sequences; it decodes autoregressively, from its own earlier outputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.models import Model
from jumok.models.numeric import Numeric, NumericConfig
from jumok.recipes.recipe import Defaults, Options, Recipe, create_model
from jumok.recipes.request import TrainingRequest
from jumok.training import Batch, Settings, TrainingTask

LENGTH = 5
LOWEST, HIGHEST = 0.0, 100.0
CONFIG = NumericConfig(trained_lowest=LOWEST, trained_highest=HIGHEST, trained_length=LENGTH)
SAMPLE = [10.0, 20.0, 30.0, 40.0, 50.0]
SETTINGS = {
    "steps": 6000, "batch": 64, "learning_rate": 1e-2, "final_rate": 0.0, "warmup": 200, "decay": 0.0, "clip": 1.0,
    "beta2": 0.999, "evaluate_every": 500, "save_every": 1000,
}  # fmt: skip
HELD_OUT = 1_000
HELD_OUT_SEED = 2**40  # no training step uses this seed


def create_numbers_task(
    request: TrainingRequest, options: Options, settings: Settings, loaded: Loaded | None
) -> TrainingTask:
    """Train a model to add 2 to each of 5 numbers from 0 to 100."""
    if loaded is not None:
        model = loaded.model
    else:
        config = request.change(CONFIG)
        for name in ("trained_lowest", "trained_highest", "trained_length"):
            if getattr(config, name) != getattr(CONFIG, name):
                raise ArgumentError(
                    f"{name} cannot be set: this recipe trains on {LENGTH} numbers from {LOWEST:g} to {HIGHEST:g}"
                )
        model = create_model(Numeric, config, settings.seed)

    def batches(step: int, part: int, parts: int) -> Batch:
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        source = sample_sequences(settings.batch, generator).chunk(parts)[part]
        answer = source + 2
        return Batch({"source": source, "target": answer[:, :-1]}, answer, answer.numel())

    def evaluate(model: Model) -> dict[str, float]:
        assert isinstance(model, Numeric)
        source = sample_sequences(HELD_OUT, torch.Generator().manual_seed(HELD_OUT_SEED))
        errors = (model.predict(source.to(model.device), LENGTH).cpu() - (source + 2)).abs()
        return {"error": float(errors.mean()), "right": float((errors < 0.5).all(-1).float().mean())}

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        assert isinstance(model, Numeric)
        answer = model.predict(torch.tensor([SAMPLE], device=model.device), LENGTH)[0].tolist()
        return {
            **evaluate(model),
            "what": f"right: share of {HELD_OUT:,} unseen sequences with every number within 0.5, decoded from the "
            "model's own outputs; error: mean absolute error",
            "try": ",".join(f"{number:g}" for number in SAMPLE),
            "example": {"given": SAMPLE, "decoded": [round(number, 2) for number in answer]},
        }

    data = {"rule": "+2", "length": LENGTH, "from": 0, "to": 100}
    return TrainingTask(
        Loaded(model), settings, batches, compute_squared_error, evaluate, "error", data=data,
        build_report=build_report,
    )  # fmt: skip


def sample_sequences(count: int, generator: torch.Generator) -> Float[Tensor, "sequence number"]:
    """Draw sequences of 5 numbers from 0 to 100: from five equal numbers to any five, often at the ends of the range.

    Five independent numbers would almost never be all equal or all near an end, where the model would then be wrong.
    """
    centre, spread = (torch.rand(count, 1, generator=generator) * (HIGHEST - LOWEST) for _ in range(2))
    numbers = LOWEST + centre + spread * (2 * torch.rand(count, LENGTH, generator=generator) - 1)
    return numbers.clamp(LOWEST, HIGHEST)


def compute_squared_error(model: nn.Module, batch: Batch) -> Tensor:
    """Return the squared errors, summed; numbers are divided by 100, so that gradients have an ordinary size."""
    answers = model(**batch.inputs).numbers
    return functional.mse_loss(answers / 100, batch.targets / 100, reduction="sum")


numbers = Recipe(
    create_numbers_task, Defaults(SETTINGS, (CONFIG,)), (Numeric,), reads_data=False, needs_tokenizer=False
)
